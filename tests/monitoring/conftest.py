"""A page of figures that takes posts, and the folder of a run that trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.monitoring.watched import Site

from tonnage.runs import EventKind, RunFolder, RunSpec
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "one")
    data = DataSpec(train=DataSource(location="rows.jsonl", format="jsonl"))
    run.create(RunSpec(name="one", task="causal-lm", model="gpt2", data=data, guard=GuardSpec(usd_per_hour=3.6)))
    run.record(EventKind.STARTED, who="supervisor", attempt=1)
    run.record(EventKind.TRAINING, who="rank0", step=0)
    return run
