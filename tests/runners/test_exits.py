"""How ranks tell one another, and the supervisor, that they have ended for good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.runs.exits import exits_left, leave_exit
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.workers import worst_exit

PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["RANK"] == "0":
    sys.exit({code})
time.sleep(60)
"""


def ranks(folder: Path, code: int) -> list[subprocess.Popen[str]]:
    """Two ranks: the first ends with a code, the second hangs and takes no signal."""
    (folder / "hanging.py").write_text(PROGRAM.format(code=code))
    (folder / "exits").mkdir()
    command = [sys.executable, "-m", "tonnage.runners.rank", "--worker", "hanging", "--grace-s", "0.2", str(folder)]
    paths = os.pathsep.join([str(folder), *sys.path])
    return [
        subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": paths, "RANK": str(rank), "TONNAGE_EXITS": str(folder / "exits")},
        )
        for rank in (0, 1)
    ]  # fmt: skip


@pytest.mark.heavy
def test_a_rank_that_hangs_ends_after_one_that_ended_for_good(tmp_path: Path) -> None:
    """The disk is full for rank 0; rank 1, stuck in a collective, goes soon after with the same code, and says why."""
    first, second = ranks(tmp_path, WorkerExit.DISK_FULL)
    first.communicate(timeout=20)
    _, words = second.communicate(timeout=20)
    assert (first.returncode, second.returncode) == (0, 0)  # no crash: the launcher starts nothing anew
    assert "rank 0 ended with code 73" in words
    assert exits_left(tmp_path / "exits") == {0: WorkerExit.DISK_FULL, 1: WorkerExit.DISK_FULL}
    assert worst_exit(tmp_path / "exits", 0) == WorkerExit.DISK_FULL


@pytest.mark.heavy
def test_nobody_ends_after_one_that_is_done(tmp_path: Path) -> None:
    """Rank 0 may be done long before the others."""
    first, second = ranks(tmp_path, WorkerExit.DONE)
    try:
        first.communicate(timeout=20)
        assert exits_left(tmp_path / "exits") == {0: WorkerExit.DONE}
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.5)
    finally:
        second.kill()
        second.communicate()


def test_a_code_takes_no_block_of_the_disk(tmp_path: Path) -> None:
    """A full disk takes it: the file is empty. What else lies there is no code."""
    leave_exit(tmp_path, 3, WorkerExit.DISK_FULL)
    (tmp_path / "asked").touch()
    assert [path.stat().st_blocks for path in tmp_path.glob("rank-*")] == [0]
    assert exits_left(tmp_path) == {3: WorkerExit.DISK_FULL}
    assert worst_exit(tmp_path, WorkerExit.DONE) == WorkerExit.DISK_FULL
    assert worst_exit(tmp_path, WorkerExit.STOPPED) == WorkerExit.STOPPED  # a launcher's own word comes first
