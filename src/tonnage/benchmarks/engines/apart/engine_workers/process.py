"""This process and its children as Linux counts them: processor seconds; cores; death with the parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it dies, so that a killed bench leaves no worker."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def fail(job: dict[str, Any], reason: str) -> None:
    """Leave the reason for which there is no result where the bench reads it."""
    (Path(job["folder"]) / "failure").write_text(reason, encoding="utf-8")


def enter_phase(job: dict[str, Any], phase: str) -> None:
    """Leave what the work is at, so that one which is ended from outside can say where."""
    if job["rank"] == 0:
        (Path(job["folder"]) / "phase").write_text(phase, encoding="utf-8")


def pin(threads: int) -> list[int]:
    """Bind this process to as many cores as it has threads; the cores, [] where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    return cores


def tree_cpu_s() -> float:
    """Processor seconds of this process and of all that live below it (Java, ranks)."""
    own = os.times()
    spent = own.user + own.system + own.children_user + own.children_system
    ticks = os.sysconf("SC_CLK_TCK")
    return spent + sum(_stat(pid)[1] / ticks for pid in descendants(os.getpid()))


def busy_s(cores: list[int], counters: Path = Path("/proc/stat")) -> float | None:
    """Seconds that these cores (all, where none is named) have been busy since the system started, whoever used them,
    and that a hypervisor took from them; None where the system does not tell (/proc/stat of Linux)."""
    try:
        lines = counters.read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{core}" for core in cores} or {"cpu"}
    counted = [line.split()[1:9] for line in lines if line.split(maxsplit=1)[0] in names]
    if len(counted) != len(names):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, iowait, irq, softirq, steal: see proc(5)
    return sum(int(one) for line in counted for place, one in enumerate(line) if place not in (3, 4)) / ticks


def descendants(pid: int) -> list[int]:
    """The processes below `pid`."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        parent, _ = _stat(int(entry.name))
        parents.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], list(parents.get(pid, []))
    while ahead:
        one = ahead.pop()
        found.append(one)
        ahead += parents.get(one, [])
    return found


def _stat(pid: int) -> tuple[int, float]:
    """Parent and clock ticks of a process; (-1, 0) of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1, 0.0
    return int(fields[1]), float(fields[11]) + float(fields[12])
