"""Clocks, power and energy of a cell: what was read beside its worker, cut to the time of preparing and training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, Protocol

from tonnage.values import dataclass

FEWEST_READINGS: Final = 3  # within the work, from which on energy between readings is that of the work


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU at one instant; None: it does not tell. `energy_j` is a counter."""

    clock_hz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    throttled_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReading:
    """The machine at one instant of the system's monotonic clock. `cpu_energy_j`: a counter over all sockets."""

    at_s: float
    cpu_clock_hz: float | None = None
    cpu_energy_j: float | None = None
    gpus: tuple[GpuReading, ...] = ()


class PowerSource(Protocol):
    """Whoever reads processors and the GPUs of a cell."""

    def read(self) -> PowerReading: ...
    def close(self) -> None: ...


OpenPower = Callable[[tuple[str, ...]], PowerSource]  # from the devices of an engine


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPower:
    """Means over the work and its energy, of whole processors and boards whoever used them. None: unknown."""

    cpu_clock_hz: float | None = None
    cpu_power_w: float | None = None
    cpu_energy_j: float | None = None
    gpu_clock_hz: float | None = None
    gpu_power_w: float | None = None
    gpu_energy_j: float | None = None
    throttled_by: str | None = None


def power_of(readings: Sequence[PowerReading], begun_s: float, ended_s: float) -> CellPower:
    """Clocks from the readings within the work; energy of counters (of power, where a GPU has no counter) at its ends,
    in proportion between two readings. Unknown with fewer than `FEWEST_READINGS` within.

    >>> read = [PowerReading(at_s=float(at), cpu_clock_hz=2e9, cpu_energy_j=50.0 * at) for at in range(6)]
    >>> found = power_of(read, 0.5, 4.5)
    >>> found.cpu_energy_j, found.cpu_power_w, found.gpu_energy_j
    (200.0, 50.0, None)
    """
    within = [one for one in readings if begun_s <= one.at_s <= ended_s]
    if len(within) < FEWEST_READINGS:
        return CellPower()
    span = ended_s - begun_s
    energy = _grown([(one.at_s, one.cpu_energy_j) for one in readings], begun_s, ended_s)
    count = min(len(one.gpus) for one in readings)
    boards = [_of_gpu([(one.at_s, one.gpus[place]) for one in readings], begun_s, ended_s) for place in range(count)]
    gpu_energy = _sum(boards)
    throttled = sorted({gpu.throttled_by for one in within for gpu in one.gpus if gpu.throttled_by})
    asked = [gpu.throttled_by for one in within for gpu in one.gpus if gpu.throttled_by is not None]
    return CellPower(
        cpu_clock_hz=_mean([one.cpu_clock_hz for one in within]),
        cpu_power_w=None if energy is None else energy / span, cpu_energy_j=energy,
        gpu_clock_hz=_mean([gpu.clock_hz for one in within for gpu in one.gpus]),
        gpu_power_w=None if gpu_energy is None else gpu_energy / span, gpu_energy_j=gpu_energy,
        throttled_by=", ".join(throttled) if asked else None,
    )  # fmt: skip


def _of_gpu(course: Sequence[tuple[float, GpuReading]], begun_s: float, ended_s: float) -> float | None:
    counted = _grown([(at, one.energy_j) for at, one in course], begun_s, ended_s)
    if counted is not None:
        return counted
    total, summed = 0.0, [(course[0][0], 0.0)]
    for (before, one), (after, other) in pairwise(course):
        if one.power_w is None or other.power_w is None:
            return None
        total += (after - before) * (one.power_w + other.power_w) / 2.0
        summed.append((after, total))
    return _grown(summed, begun_s, ended_s)


def _grown(course: Sequence[tuple[float, float | None]], begun_s: float, ended_s: float) -> float | None:
    """What a counter grew by; None where it is not reported, started again, or was not read before and after."""
    known = [(at, value) for at, value in course if value is not None]
    if len(known) != len(course) or any(two < one for (_, one), (_, two) in pairwise(known)):
        return None
    ends = [_at(known, moment) for moment in (begun_s, ended_s)]
    return None if ends[0] is None or ends[1] is None else ends[1] - ends[0]


def _at(course: Sequence[tuple[float, float]], moment: float) -> float | None:
    for (before, one), (after, two) in pairwise(course):
        if before <= moment <= after and after > before:
            return one + (two - one) * (moment - before) / (after - before)
    return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known and len(known) == len(values) else None
