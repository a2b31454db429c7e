"""What other programs take of a cell's cores while it works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tonnage.benchmarks.engines.apart.engine_workers import __main__ as worker
from tonnage.benchmarks.engines.apart.engine_workers.process import busy_s

TICKS = os.sysconf("SC_CLK_TCK")
JOB = {"cores": [0, 1], "master": None}


def test_busy_seconds_are_of_the_cores_that_are_named(tmp_path: Path) -> None:
    """Idle and waiting for the disk are not busy; what a hypervisor took is. A core that is not there is unknown, and
    so is all of a system without the file."""
    counters = tmp_path / "stat"
    each = [TICKS * count for count in (1, 2, 3, 50, 60, 4, 5, 6)]
    counters.write_text(f"cpu 0 0 0 0 0 0 0 {TICKS * 100} 0 0\n" + "".join(
        f"cpu{core} {' '.join(map(str, each))} 0 0\n" for core in (0, 1)
    ) + "intr 1\n")  # fmt: skip
    assert busy_s([0], counters) == 21.0
    assert busy_s([0, 1], counters) == 42.0
    assert busy_s([], counters) == 100.0
    assert busy_s([0, 7], counters) is None
    assert busy_s([0], tmp_path / "none") is None


def test_the_work_itself_is_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 busy seconds in 10, of which the work used 9: others took 0.6 cores. A cluster by its address may have
    its workers here, so that nothing is known."""
    ticking = iter([0.0, 10.0, 0.0, 10.0, 0.0, 10.0])
    monkeypatch.setattr(worker.time, "monotonic", lambda: next(ticking))
    busy, own = iter([100.0, 115.0] * 3), iter([1.0, 10.0, 1.0, 1.0, 30.0])
    monkeypatch.setattr(worker, "busy_s", lambda _: next(busy))
    monkeypatch.setattr(worker, "tree_cpu_s", lambda: next(own))
    assert worker.OtherPrograms(JOB).cores() == pytest.approx(0.6)
    assert worker.OtherPrograms(JOB | {"master": "spark://head:7077"}).cores() is None
    assert worker.OtherPrograms(JOB).cores() == 0.0  # counters of different grain never give less than nothing
