"""A store in a file of the test's own, and a run folder that could be anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tonnage.runs import EventKind, RunFolder, RunReason, RunSpec
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec
from tonnage.store import Store, open_store

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'home' / 'tonnage.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Started at noon, killed after half an hour, done after another: 4 dollars an hour."""
    run = RunFolder(tmp_path / "home" / "runs" / "one")
    source = DataSource(location="rows.jsonl", format="jsonl")
    run.create(
        RunSpec(
            name="one", task="sequence-classification", model="bert-base", data=DataSpec(train=source),
            guard=GuardSpec(usd_per_hour=4.0),
        )
    )  # fmt: skip
    half_past, one = NOON + timedelta(minutes=30), NOON + timedelta(minutes=60)
    run.record(EventKind.SUBMITTED, who="cli", at=NOON, name="one")
    run.record(EventKind.STARTED, who="supervisor", at=NOON, attempt=1)
    run.record(EventKind.TRAINING, who="rank0", at=NOON, step=1)
    run.record(EventKind.RESTARTING, who="supervisor", at=half_past, reason=RunReason.WORKER_KILLED.value, delay_s=1)
    run.record(EventKind.STARTED, who="supervisor", at=half_past, attempt=2)
    run.record(EventKind.RESUMED, who="rank0", at=half_past, step=10, lost_steps=3)
    run.record(EventKind.SUCCEEDED, who="supervisor", at=one, step=20)
    return run
