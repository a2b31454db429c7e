"""Vector operations on devices: what was predicted of each, what was measured, and how many times a processor's speed
that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Final

from tonnage.calibration.local_profile import NORMAL_80, DeviceProfile, Timing, combined_log_sd
from tonnage.errors import InputError
from tonnage.sizing.assumption_table import listed
from tonnage.sizing.estimates import Figure, Spread
from tonnage.sizing.vector_assumptions import VectorAssumptions
from tonnage.sizing.vector_work import Origin, Roof, VectorOperation, speed_up
from tonnage.values import dataclass

STREAM_MOVES: Final = 16.0 / 12.0  # bytes an element that caches move over those that a profile's stream counts
FROM_MEMORY_BYTES: Final = 2**20  # of a call, from which on a profile's stream is of memory and not of a call's cost


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorResult:
    """One operation on one device. `times`: how many times as fast as the processor at the same work."""

    device: str
    kind: str  # cpu, cuda, mps, or "catalog": a GPU that is not here
    work: VectorOperation
    predicted_s: Figure | None = None
    measured_s: Figure | None = None
    repeats: int = 0
    disturbed: int = 0  # repeats during which a thread waited for a processor
    predicted_times: Figure | None = None
    measured_times: Figure | None = None
    promised_times: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured seconds over predicted ones."""
        if self.measured_s is None or self.predicted_s is None:
            return None
        return self.measured_s.value / self.predicted_s.value

    @property
    def inside(self) -> bool | None:
        """Whether the measured seconds lie within the predicted interval."""
        if self.measured_s is None or self.predicted_s is None:
            return None
        return self.predicted_s.low <= self.measured_s.value <= self.predicted_s.high

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes a second as measured, each operand counted once."""
        return None if self.measured_s is None else self.work.counted_bytes / self.measured_s.value

    @property
    def flop_per_s(self) -> float | None:
        return None if self.measured_s is None else self.work.flop / self.measured_s.value


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsCompared:
    """All of a run. `origins`: device -> where its prediction comes from, and the name of the profile."""

    rows: tuple[VectorResult, ...]
    origins: Mapping[str, tuple[Origin, str | None]]
    threads: int
    measured_on: str
    torch_version: str | None
    others_cpu_fraction: float | None  # of the cores, taken by other programs meanwhile


def roof_of_profile(profile: DeviceProfile, threads: int, name: str) -> Roof:
    """What bounds a processor that `tonnage calibrate --local` measured. InputError where it lacks these threads.

    Bandwidth is the fastest of the profile's streams from memory, which reads two operands and fetches and writes a
    third; the peak is that of its largest products.
    """
    stream = profile.curve("stream", "fp32", threads)
    rates = [1.0 / point.per_unit_s for point in stream.points if point.size >= FROM_MEMORY_BYTES]
    if not rates:
        raise InputError(f"{profile.name}: no stream from memory was measured", hint="`tonnage calibrate --local`")
    share = next(one for one in listed(VectorAssumptions()) if one.name == "kernel_share")
    reach = exp(NORMAL_80 * combined_log_sd(profile.noise_log_sd, profile.busy_log_sd))
    spread = Spread(low_factor=share.low / reach, high_factor=share.high * reach)
    peaks = {}
    for precision in ("fp32", "bf16"):
        try:
            curve = profile.curve("product", precision, threads)
        except InputError:
            continue  # not measured: the processor does not multiply it
        peaks[precision] = spread.around(1.0 / curve.points[-1].per_unit_s, basis="measured")
    least = stream.points[0].timing.median_s
    return Roof(
        device=name, bytes_per_s=spread.around(max(rates) * STREAM_MOVES, basis="measured"), flop_per_s=peaks,
        call_s=Figure(value=least / 3.0, low=0.0, high=least, basis="assumed"),
        floor_s=Figure(value=0.0, low=0.0, high=0.0, basis="measured"), tiles_to_half=0.0, reads_before_writing=True,
        origin="profile", origin_name=f"{profile.name} of {profile.made_at[:10]}",
    )  # fmt: skip


def compared(rows: Sequence[VectorResult], promises: Mapping[str, float]) -> tuple[VectorResult, ...]:
    """The rows, those of other devices with their multiple of the processor at the same work."""
    of_processor = {_key(one): one for one in rows if one.kind == "cpu"}
    found = []
    for row in rows:
        beside = of_processor.get(_key(row))
        if row.kind == "cpu" or beside is None:
            found.append(row)
            continue
        found.append(
            replace(
                row, predicted_times=speed_up(beside.predicted_s, row.predicted_s),
                measured_times=speed_up(beside.measured_s, row.measured_s), promised_times=promises.get(row.device),
            )
        )  # fmt: skip
    return tuple(found)


def _key(row: VectorResult) -> tuple[str, str, int]:
    """The same work; a product that a GPU does in tf32 is beside the processor's fp32."""
    precision = "fp32" if row.work.precision == "tf32" else row.work.precision
    return row.work.name, precision, row.work.size


def measured_figure(timing: Timing) -> Figure:
    """Median and quartiles of the repeats."""
    return Figure(value=timing.median_s, low=timing.low_quartile_s, high=timing.high_quartile_s, basis="measured")
