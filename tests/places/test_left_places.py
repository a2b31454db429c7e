"""A place that is left without an answer: what its machines may still have cost counts for the run's limits."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tonnage.api import placing
from tonnage.api.failover import leave_place, with_silence
from tonnage.errors import TonnageError
from tonnage.places.record import PlaceRecord, write_record
from tonnage.runs import RunFolder
from tonnage.runs.guards import SpendMeter, breach
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import Heartbeat, has_supervisor, read_heartbeat, write_heartbeat
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec, RunSpec
from tonnage.settings import current_settings

HOURLY = GuardSpec(max_cost_usd=30.0, usd_per_hour=6.0, billing_quantum_s=60.0)
AT = datetime(2026, 11, 27, 12, tzinfo=UTC)
GONE = """[places.gone]
kind = "ssh"
host = "127.0.0.1"
port = 1
folder = "/nowhere"
cores = 1
memory_gib = 1
"""


def test_the_time_of_silence_is_billed() -> None:
    """In quanta begun, as the supervisor would have; hours count without a price as well."""
    beat = Heartbeat(at=AT, pid=1, host="there", held_s=3600.0, spent_usd=6.0)
    told = with_silence(beat, HOURLY, now=AT + timedelta(hours=2, seconds=1))
    assert (told.held_s, told.spent_usd) == (3600.0 + 7201.0, pytest.approx(6.0 + 12.1))
    free = with_silence(beat, GuardSpec(max_s=7200.0), now=AT + timedelta(hours=2))
    assert (free.held_s, free.spent_usd) == (3600.0 + 7200.0, 6.0)
    assert breach(GuardSpec(max_s=7200.0), SpendMeter(held_s=0.0, earlier_s=free.held_s), save_s=1.0) is not None
    assert with_silence(beat, HOURLY, now=AT - timedelta(seconds=9)).spent_usd == 6.0  # a clock that was set back


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("ssh") is None, reason="apt-get install openssh-client")
def test_a_run_that_leaves_a_silent_place_pays_for_its_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours without an answer are two hours at that place's price; the run is lost there and can go on."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places.toml").write_text(GONE)
    folder = RunFolder(tmp_path / "runs" / "one")
    data = DataSpec(train=DataSource(location="/r.csv", format="csv"))
    folder.create(RunSpec(name="one", task="mlp", data=data, guard=HOURLY))
    folder.record(EventKind.SUBMITTED, who="cli", name="one", place="gone")
    folder.record(EventKind.STARTED, who="supervisor", attempt=1)
    write_record(folder, PlaceRecord(place="gone", kind="ssh", token="t", tag="tonnage:h:t:one", number=1, job_id="7"))
    folder.mirror_file.write_text("{}")
    heard = datetime.now(UTC) - timedelta(hours=2)
    write_heartbeat(folder, Heartbeat(at=heard, pid=os.getpid(), host="there", held_s=600.0, spent_usd=1.0))
    assert leave_place(current_settings(), folder) != ""
    beat = read_heartbeat(folder)
    assert beat is not None
    assert beat.held_s == pytest.approx(600.0 + 7200.0, abs=60)
    assert beat.spent_usd == pytest.approx(1.0 + 12.0, abs=0.3)
    assert not has_supervisor(folder)
    assert folder.state().state.value == "lost"


class Silent:
    """A place that does not answer."""

    def teardown(self, folder: RunFolder) -> None:
        raise TonnageError(f"{folder.path.name}: no answer")


@pytest.mark.parametrize(
    ("end", "usd"), [(None, 1.0 + 12.0), (EventKind.FAILED, 1.0), (EventKind.STOPPED, 1.0), (EventKind.SUCCEEDED, 1.0)]
)
def test_a_run_that_had_ended_pays_for_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: EventKind | None, usd: float
) -> None:
    """Its place may be gone for weeks before it is resumed elsewhere."""
    monkeypatch.setattr(placing, "executor_of", lambda *_: Silent())
    folder = RunFolder(tmp_path / "one")
    folder.create(RunSpec(name="one", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv")),
                          guard=HOURLY))  # fmt: skip
    folder.record(EventKind.SUBMITTED, who="cli", name="one", place="gone")
    folder.record(EventKind.STARTED, who="supervisor", attempt=1)
    if end is not None:
        folder.record(end, who="supervisor", reason="BadInput")
    folder.mirror_file.write_text("{}")
    heard = datetime.now(UTC) - timedelta(hours=2)
    write_heartbeat(folder, Heartbeat(at=heard, pid=os.getpid(), host="there", held_s=600.0, spent_usd=1.0))
    assert leave_place(current_settings(), folder) != ""
    beat = read_heartbeat(folder)
    assert beat is not None
    assert beat.spent_usd == pytest.approx(usd, abs=0.3)
    assert (beat.held_s == 600.0) == (end is not None)
    assert not has_supervisor(folder)
