"""What others see of a run: appended lines, requests, locks and heartbeats."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tonnage.runs import EventKind, RunFolder, RunSpec, RunStatus, log_parts
from tonnage.runs.liveness import (
    Heartbeat,
    Held,
    has_supervisor,
    hold_lock,
    is_held,
    observed_state,
    read_heartbeat,
    write_heartbeat,
)
from tonnage.runs.logs import LogIndex, RunLogs, position_since, timed_lines
from tonnage.runs.requests import clear_requests, read_request, write_request
from tonnage.runs.spec import DataSource, DataSpec
from tonnage.runs.tail import Tail, last_lines, offset_of_last_lines
from tonnage.supervisor.shim import LogKeeper

NOW = datetime.now(UTC)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "runs" / "one")
    made.create(RunSpec(name="one", task="mlp", data=DataSpec(train=DataSource(location="x", format="csv"))))
    return made


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    """Half a line waits until its other half is there; nothing is read twice."""
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_text("one\ntw")
    assert tail.lines() == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert tail.lines() == ["two", "three"]
    assert tail.lines() == []


def test_a_long_log_is_read_in_pieces(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole lines, no more bytes at once than asked for; a line that is longer comes in pieces."""
    monkeypatch.setattr("tonnage.runs.logs.PIECE_BYTES", 9)
    folder.log_file.write_text("one\ntwo\n" + "x" * 20 + "\nhal")
    logs = RunLogs(folder, offsets={})
    assert list(logs.lines()) == ["one", "two", "x" * 9, "x" * 9, "xx"]
    with folder.log_file.open("a") as file:
        file.write("f\n\n")
    assert list(logs.lines()) == ["half", ""]
    folder.log_file.write_text("anew\n")  # a shorter one in its place
    assert list(logs.lines()) == ["anew"]


def test_a_follower_loses_no_line_at_a_turn(folder: RunFolder) -> None:
    """Lines of a part that another has followed come; what has gone with the oldest part is said."""
    keeper, logs, found = LogKeeper(folder.log_file, largest_bytes=100), RunLogs(folder, offsets={}), []
    for number in range(60):
        keeper.write(b"line %03d\n" % number)
        if number % 7 == 0:
            found += list(logs.lines())
    found += list(logs.lines())
    assert found == [f"line {number:03d}" for number in range(60)]
    assert (folder.path / "log.3.txt").exists()
    late = list(RunLogs(folder, offsets={}).lines())
    gone = 60 * 9 - sum(path.stat().st_size for path in folder.path.glob("log*.txt"))
    assert late[0] == f"tonnage: {gone:,} bytes of the log have gone with its oldest parts"
    assert late[1:] == found[gone // 9 :]


def test_times_of_a_log_that_began_anew(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes count from the first byte that was ever written, whatever part it is in."""
    monkeypatch.setattr("tonnage.runs.logs.NOTE_EVERY_S", 0.0)
    log_parts.begin_at(str(folder.log_file), 1000, b"earlier\n")
    index = folder.path / "log.txt.index"
    keeper = LogKeeper(folder.log_file, largest_bytes=20)
    for number in range(4):
        keeper.write(b"line %03d\n" % number)
    assert [one["offset"] for one in Tail(index).values()] == [1008, 1017, 1026, 1035]
    second = datetime.fromisoformat([*Tail(index).values()][1]["at"])
    since = position_since(folder.log_file, second)
    assert since == 1017
    shown = [line.split("  ")[1] for line in timed_lines(folder.log_file, since)]
    assert shown == ["line 001\n", "line 002\n", "line 003\n"]
    log_parts.forget(str(folder.log_file))
    assert not index.exists()


@pytest.mark.parametrize("count", [0, 1, 3, 500, 20_000])
def test_last_lines_of_a_long_file(tmp_path: Path, count: int) -> None:
    """The same lines as by reading it all, wherever blocks are cut; bytes that are no text count as they are."""
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(12_000)) + b"half")
    every = path.read_bytes().decode(errors="replace").split("\n")[:-1]
    assert last_lines(path, count) == (every[-count:] if count else [])
    with path.open("rb") as file:
        file.seek(offset_of_last_lines(path, count))
        assert len(file.read().split(b"\n")) - 1 == min(count, len(every))


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    """A run that has printed nothing yet."""
    assert last_lines(tmp_path / "none", 5) == []
    assert position_since(tmp_path / "none", NOW) == 0


def test_log_since(tmp_path: Path) -> None:
    """Lines from an instant on; all that is later than the last note is at its end."""
    log = tmp_path / "log.txt"
    log.write_text("early\n")
    index = LogIndex(log)
    index.note(0)
    assert position_since(log, NOW - timedelta(hours=1)) == 0
    assert position_since(log, datetime.now(UTC) + timedelta(hours=1)) == len("early\n")


def test_requests_are_read_as_written(folder: RunFolder) -> None:
    """Who and why; `touch stop` asks too; a new start forgets it."""
    assert read_request(folder.stop_request) is None
    write_request(folder.stop_request, by="cli", reason="enough", at=NOW)
    found = read_request(folder.stop_request)
    assert found is not None
    assert (found.by, found.reason, found.at) == ("cli", "enough", NOW)
    folder.stop_request.write_text("")
    assert read_request(folder.stop_request) is not None
    clear_requests(folder)
    assert read_request(folder.stop_request) is None


def test_a_lock_has_one_holder_and_ends_with_it(tmp_path: Path) -> None:
    """A second holder is refused; after a kill -9 of the first the lock is free."""
    path = tmp_path / "lock"
    assert not is_held(path)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tonnage.runs.liveness import hold_lock\n"
        f"with hold_lock(Path({str(path)!r})):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_held(path)
        with pytest.raises(Held), hold_lock(path):
            pass
        holder.kill()
        holder.wait()
    assert not is_held(path)
    with hold_lock(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_run_without_a_supervisor_is_lost(folder: RunFolder) -> None:
    """Under way by its journal, nobody there: lost, and by whom. Just submitted, it is given time."""
    folder.record(EventKind.SUBMITTED, who="cli", at=NOW)
    assert observed_state(folder, now=NOW).state is RunStatus.PENDING
    assert observed_state(folder, now=NOW + timedelta(minutes=1)).state is RunStatus.LOST
    folder.record(EventKind.TRAINING, who="rank0", at=NOW, step=1)
    assert observed_state(folder).state is RunStatus.LOST
    with hold_lock(folder.pid_file):
        assert observed_state(folder).state is RunStatus.RUNNING
    folder.record(EventKind.SUCCEEDED, who="supervisor", at=NOW)
    assert observed_state(folder).state is RunStatus.SUCCEEDED


def test_a_heartbeat_speaks_for_another_machine(folder: RunFolder) -> None:
    """A lock cannot be seen across machines: there a young heartbeat says that somebody lives, an old one that not."""
    assert read_heartbeat(folder) is None
    beat = Heartbeat(at=NOW, pid=1, host="elsewhere", held_s=3.0, spent_usd=0.5, forecast_end_at=NOW)
    write_heartbeat(folder, beat)
    assert read_heartbeat(folder) == beat
    assert has_supervisor(folder, now=NOW + timedelta(seconds=5))
    assert not has_supervisor(folder, now=NOW + timedelta(minutes=5))
