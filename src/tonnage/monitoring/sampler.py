"""One look at a process and all that it started: memory, processors, GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

import psutil

from tonnage.monitoring.gpu_sample import GpuSample
from tonnage.monitoring.gpus import GpuReader, open_gpus
from tonnage.monitoring.machine_health import machine_health
from tonnage.values import dataclass

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A process tree and its machine at one instant. None: not known."""

    at: datetime  # UTC
    processes: int  # alive in the tree; 0: it is gone
    host_rss_bytes: int | None  # sum over the tree: pages that processes share count in each
    host_uss_bytes: int | None  # what would be free if the tree ended
    cpu_fraction: float | None  # of the processors it may run on, by the tree, since the sample before
    machine_cpu_fraction: float | None  # the same by everything on the machine
    overhead_cpu_fraction: float | None = None  # the same by those that watch over the tree: supervisor and reporter
    gpus: tuple[GpuSample, ...] = ()
    machine: Mapping[str, float] = field(default_factory=dict)  # of processors and memory, as `machine_health` names it

    def to_values(self) -> dict[str, Any]:
        """One line of `samples.jsonl`: what is not known is left out."""
        values = {
            "at": self.at.isoformat(),
            "processes": self.processes,
            "host_rss_bytes": self.host_rss_bytes,
            "host_uss_bytes": self.host_uss_bytes,
            "cpu_fraction": self.cpu_fraction,
            "machine_cpu_fraction": self.machine_cpu_fraction,
            "overhead_cpu_fraction": self.overhead_cpu_fraction,
        }
        known = {name: value for name, value in values.items() if value is not None}
        if self.machine:
            known["machine"] = dict(self.machine)
        return known | ({"gpus": [gpu.to_values() for gpu in self.gpus]} if self.gpus else {})


class Sampler:
    """Samples the tree under `pid`. Keep one: shares of time are since its sample before (the first has none).

    `watchers`: processes outside the tree that are there for its sake.
    """

    def __init__(
        self,
        pid: int,
        *,
        watchers: Sequence[int] = (),
        gpus: GpuReader | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._watchers, self._clock = pid, tuple(watchers), clock
        self._gpus = gpus or open_gpus()
        self._cores = _cores()
        self._tree_load, self._watcher_load = _Load(len(self._cores)), _Load(len(self._cores))
        self._machine: tuple[float, float] | None = None  # busy and total processor seconds

    def sample(self) -> Sample:
        """What holds now. A tree that is gone has no processes; nothing is raised for it."""
        alive, watching = _looks(self._tree()), _looks(_found(self._watchers))
        now = self._clock()
        return Sample(
            at=datetime.now(UTC),
            processes=len(alive),
            host_rss_bytes=sum(look.rss for look in alive) if alive else None,
            host_uss_bytes=_sum([look.uss for look in alive]),
            cpu_fraction=self._tree_load.fraction(alive, now),
            machine_cpu_fraction=self._machine_fraction(),
            overhead_cpu_fraction=self._watcher_load.fraction(watching, now),
            gpus=self._gpus.sample(frozenset(look.key[0] for look in alive)),
            machine=machine_health(),
        )

    def close(self) -> None:
        self._gpus.close()

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._pid)
            return [root, *root.children(recursive=True)]
        except _GONE:
            return []

    def _machine_fraction(self) -> float | None:
        every = psutil.cpu_times(percpu=True)
        times = [every[core] for core in self._cores if core < len(every)]
        total = sum(_total(core) for core in times)
        busy = total - sum(core.idle + getattr(core, "iowait", 0.0) for core in times)
        before, self._machine = self._machine, (busy, total)
        if before is None or total <= before[1]:
            return None
        return min(max((busy - before[0]) / (total - before[1]), 0.0), 1.0)


class _Load:
    """Share of the processors that a group of processes took since it was asked for before."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._busy_s: dict[tuple[int, float], float] = {}
        self._at: float | None = None

    def fraction(self, alive: list[_Look], now: float) -> float | None:
        """None the first time, and where none is alive."""
        before, self._at = self._at, now
        known, self._busy_s = self._busy_s, {look.key: look.busy_s for look in alive}
        if before is None or now <= before or not alive:
            return None
        spent = sum(max(look.busy_s - known.get(look.key, 0.0), 0.0) for look in alive)
        return min(spent / ((now - before) * self._cores), 1.0)


def _looks(processes: Iterable[psutil.Process]) -> list[_Look]:
    return [found for process in processes if (found := _Look.at(process)) is not None]


def _found(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(*_GONE):
            yield psutil.Process(pid)


def _cores() -> tuple[int, ...]:
    """The processors this process and its children may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _total(times: Any) -> float:
    """All seconds of one processor; those of guests are counted in `user` already."""
    return float(sum(times)) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


@dataclass(frozen=True, slots=True)
class _Look:
    """One process, read at once."""

    key: tuple[int, float]  # a number is used again, with another start
    rss: int
    uss: int | None
    busy_s: float

    @classmethod
    def at(cls, process: psutil.Process) -> _Look | None:
        try:
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    return None
                times = process.cpu_times()
                key = (process.pid, process.create_time())
                return cls(key, process.memory_info().rss, _uss(process), times.user + times.system)
        except _GONE:
            return None


def _uss(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_full_info().uss)
    except (psutil.AccessDenied, AttributeError):  # another user's process; a system that does not tell
        return None


def _sum(figures: list[int | None]) -> int | None:
    """None where one is not known: a part is no sum."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None
