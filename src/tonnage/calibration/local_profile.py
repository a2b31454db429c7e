"""A device profile: what was measured of one machine, dated, with the spread of every figure (`device-profile@1`).

A curve says what one unit of work costs over the size of the call it is part of. Times are of an undisturbed machine
where the system can tell (see `Timing.disturbed`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from math import exp, inf, isfinite, log, sqrt
from typing import Final, Literal

from tonnage.calibration.rows import TrainingRow
from tonnage.errors import InputError
from tonnage.sizing.estimates import Spread
from tonnage.sizing.local_work import LocalOperation
from tonnage.values import dataclass

SCHEMA: Final = "tonnage/device-profile@1"
SERVICE_CURVES: Final = "encoder "  # how the operations of an encoder server's curves begin
DeviceKind = Literal["cpu", "cuda"]
NORMAL_QUARTILES: Final = 2 * 0.6745  # quartile distance of a normal law over its standard deviation
MOST_BUSY: Final = 0.9  # of the processors by others: a machine more taken than that tells little
NORMAL_80: Final = 1.2816  # standard deviations of each side that hold 80 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one call over `repeats`: median and quartiles. In `disturbed` of them a thread had to wait for a
    processor; that wait is taken off."""

    median_s: float
    low_quartile_s: float
    high_quartile_s: float
    repeats: int
    disturbed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.low_quartile_s <= self.median_s <= self.high_quartile_s < inf:
            raise ValueError(f"a timing of {self.median_s} s with quartiles that do not stand around it")

    @property
    def log_sd(self) -> float:
        """Spread as the standard deviation of the logarithm, from the quartiles."""
        return log(self.high_quartile_s / self.low_quartile_s) / NORMAL_QUARTILES


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One measured size: `amount` units of work took `timing` a call."""

    size: float
    amount: float
    timing: Timing

    def __post_init__(self) -> None:
        if not (0 < self.size < inf and 0 < self.amount < inf):
            raise ValueError(f"a point of size {self.size} and amount {self.amount}")

    @property
    def per_unit_s(self) -> float:
        return self.timing.median_s / self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCurve:
    """One operation at one precision and thread count; points by growing size."""

    operation: str
    precision: str
    threads: int
    unit: str  # of `amount`: flop, bytes, elements, scores, parameters, calls
    points: tuple[MeasuredPoint, ...]

    def __post_init__(self) -> None:
        if not self.points or any(a.size >= b.size for a, b in zip(self.points, self.points[1:], strict=False)):
            raise ValueError(f"the curve of {self.operation} needs points of growing size")

    @property
    def of_service(self) -> bool:
        """Whether it is of a server's work; `threads` are then workers that compute beside one another."""
        return self.operation.startswith(SERVICE_CURVES)

    def per_unit_s(self, size: float) -> float:
        """Seconds a unit in a call of `size`: straight between points in logarithms, level beyond the ends."""
        sizes = [point.size for point in self.points]
        right = bisect_right(sizes, size)
        if right == 0 or right == len(sizes):
            return self.points[0 if right == 0 else -1].per_unit_s
        below, above = self.points[right - 1], self.points[right]
        share = log(size / below.size) / log(above.size / below.size)
        return exp(log(below.per_unit_s) + share * log(above.per_unit_s / below.per_unit_s))

    def seconds(self, size: float, amount: float) -> float:
        """Seconds of a call. One smaller than the smallest measured costs as much as that: the floor of a call. A curve
        of a single point is a rate and has no floor."""
        least = self.points[0]
        floor_s = least.timing.median_s if least.size == least.amount and len(self.points) > 1 else 0.0
        return max(self.per_unit_s(size) * amount, floor_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Sum over local processes: seconds = alpha + bytes / beta, fitted to the points (least squares on relative
    error)."""

    backend: str
    processes: int
    alpha_s: float
    bytes_per_s: float
    points: tuple[MeasuredPoint, ...]

    def seconds(self, size_bytes: float) -> float:
        return self.alpha_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdentity:
    """What tells one machine from another, and how much of it there is."""

    processor: str  # as the system names it, with family and model
    physical_cores: int
    logical_cores: int
    architecture: str
    memory_gib: float  # of the host
    device: str | None = None  # the GPU's name by its driver
    device_memory_gib: float | None = None

    def same_machine(self, other: MachineIdentity) -> bool:
        """Same processor (and GPU, where both name one) and as many cores."""
        gpus = {name for name in (self.device, other.device) if name is not None}
        mine, theirs = (self.processor, self.physical_cores), (other.processor, other.physical_cores)
        return mine == theirs and len(gpus) < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """One measured device and the rows of work done on it since."""

    name: str
    kind: DeviceKind
    identity: MachineIdentity
    made_at: str  # ISO instant
    versions: tuple[tuple[str, str], ...]
    curves: tuple[DeviceCurve, ...]
    framework_bytes: float  # resident before any model is loaded
    adapter_library_bytes: float = 0.0  # on top of it where adapters are trained
    load_average: float  # over the minute before, when the measurement began
    time_log_sd: float  # prior: spread of predictions on a device that no row is of
    memory_log_sd: float
    prior_source: str
    others_cpu_fraction: float | None = None  # of the processors, by other programs meanwhile; None: not measured
    all_reduce: AllReduce | None = None
    no_all_reduce: str = ""  # why there is none
    usd_per_hour: float | None = None
    rows: tuple[TrainingRow, ...] = ()

    @property
    def memory_gib(self) -> float:
        """Of the device: the host's own where the device is its processor."""
        found = self.identity.memory_gib if self.kind == "cpu" else self.identity.device_memory_gib
        if found is None:
            raise InputError(f"{self.name}: its memory is not known")
        return found

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread counts that training was measured with, smallest first."""
        return tuple(sorted({curve.threads for curve in self.curves if not curve.of_service}))

    @property
    def noise_log_sd(self) -> float:
        """Median spread of the repeats over all points."""
        spreads = sorted(point.timing.log_sd for curve in self.curves for point in curve.points)
        return spreads[len(spreads) // 2]

    @property
    def busy_log_sd(self) -> float:
        """What other programs add to the doubt about a processor's times: alone it may be as much faster as they took
        of it, and with more of them slower. 0 for a GPU, and where it was not measured."""
        others = min(self.others_cpu_fraction or 0.0, MOST_BUSY)
        return -log(1.0 - others) / NORMAL_80 if self.kind == "cpu" else 0.0

    @property
    def disturbed_fraction(self) -> float:
        """Share of repeats during which the system took the processor away."""
        timings = [point.timing for curve in self.curves for point in curve.points]
        return sum(timing.disturbed for timing in timings) / sum(timing.repeats for timing in timings)

    def check(self) -> None:
        """ValueError where a figure cannot be one."""
        positive = {
            "framework_bytes": self.framework_bytes, "time_log_sd": self.time_log_sd,
            "memory_log_sd": self.memory_log_sd, "memory_gib": self.memory_gib,
        }  # fmt: skip
        for name, value in positive.items():
            if not 0 < value < inf:
                raise ValueError(f"{name} is {value}")
        if not 0 <= self.adapter_library_bytes < inf:
            raise ValueError(f"adapter_library_bytes is {self.adapter_library_bytes}")
        if self.usd_per_hour is not None and not (isfinite(self.usd_per_hour) and self.usd_per_hour >= 0):
            raise ValueError(f"usd_per_hour is {self.usd_per_hour}")
        if self.kind not in ("cpu", "cuda") or not self.name or not self.curves:
            raise ValueError("kind, name or curves are missing")

    def curve(self, operation: str, precision: str, threads: int) -> DeviceCurve:
        """The curve of that name; InputError where it was not measured."""
        for curve in self.curves:
            if (curve.operation, curve.precision, curve.threads) == (operation, precision, threads):
                return curve
        raise InputError(
            f"{self.name}: {operation} in {precision} with {threads} threads was not measured",
            hint="`tonnage calibrate --local` measures it where the device can do it",
        )

    def seconds(self, work: LocalOperation, threads: int) -> float:
        """Seconds of all calls of one operation."""
        curve = self.curve(work.operation, work.precision, threads)
        return work.calls * curve.seconds(work.size, work.amount)


def processor_name(cpuinfo: str) -> str:
    """The processor's name with family and model, which tell apart what a cloud calls by one name; "" where the
    text of /proc/cpuinfo names none.

    >>> processor_name("model name\\t: AMD EPYC\\ncpu family\\t: 26\\nmodel\\t\\t: 2\\n")
    'AMD EPYC (family 26 model 2)'
    """
    found: dict[str, str] = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.+?)\s*$", cpuinfo, re.MULTILINE))
    name = found.get("model name", "")
    if name and "cpu family" in found and "model" in found:
        return f"{name} (family {found['cpu family']} model {found['model']})"
    return name


def log_sd_of(spread: Spread) -> float:
    """The standard deviation in logarithms that an 80 % interval says.

    >>> round(log_sd_of(Spread(low_factor=0.8, high_factor=1.25)), 3)
    0.174
    """
    return log(spread.high_factor / spread.low_factor) / (2 * NORMAL_80)


def combined_log_sd(*parts: float) -> float:
    """Independent errors together.

    >>> combined_log_sd(3.0, 4.0)
    5.0
    """
    return sqrt(sum(part * part for part in parts))
