"""Vector operations on one device: bytes and FLOP of each, and the seconds that bandwidth and peak rate allow.

    seconds = max(host call, floor + (compute³ + memory³)^(1/3))

compute = FLOP / (peak rate of the precision); memory = bytes moved / bandwidth. Operands are read from memory, not from
a cache: whoever measures walks through more of it than caches hold. A processor's cache reads a line before it writes
it (write-allocate), so that a result which is not an operand too moves twice; GPUs write without reading.
Source of the roof: Williams, Waterman, Patterson 2009, «Roofline», Communications of the ACM 52 (4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final, Literal

from tonnage.sizing.assumption_table import listed
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Basis, Figure
from tonnage.sizing.rates import smooth_max
from tonnage.sizing.tabular_assumptions import TabularAssumptions
from tonnage.sizing.vector_assumptions import VectorAssumptions
from tonnage.values import dataclass

VectorName = Literal["axpy", "dot", "sum", "multiply", "gemm"]
Origin = Literal["profile", "units", "data sheet", "unknown"]
End = Literal["value", "low", "high"]
FP32_BYTES: Final = 4
BF16_BYTES: Final = 2
TILE: Final = 128  # side of a tile of outputs, as `rates.output_tiles` cuts them


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOperation:
    """One operation at one size. `size`: elements of a vector, or the side of a square matrix.

    `fresh_bytes`: of those written, what was not read before.
    """

    name: VectorName
    precision: str
    size: int
    flop: float
    read_bytes: float
    written_bytes: float
    fresh_bytes: float
    kernels: float = 1.0

    @property
    def counted_bytes(self) -> float:
        """Read and written once each, as bandwidth is usually stated."""
        return self.read_bytes + self.written_bytes


def vector_operation(name: VectorName, size: int, precision: str = "fp32") -> VectorOperation:
    """axpy: y ← a·x + y; dot: x·y; sum: Σx; multiply: z ← x∘y; gemm: C ← A·B, all square with side `size`.

    >>> vector_operation("axpy", 1000).counted_bytes, vector_operation("gemm", 1000, "bf16").flop
    (12000.0, 2000000000.0)
    """
    element = float(BF16_BYTES if precision == "bf16" else FP32_BYTES)
    if name == "gemm":
        matrix = float(size) * size * element
        return VectorOperation(
            name=name, precision=precision, size=size, flop=2.0 * float(size) ** 3, read_bytes=2 * matrix,
            written_bytes=matrix, fresh_bytes=matrix,
        )  # fmt: skip
    vector = size * element
    reads, writes, fresh, flop, kernels = {
        "axpy": (2, 1, 0, 2, 1), "dot": (2, 0, 0, 2, 2), "sum": (1, 0, 0, 1, 2), "multiply": (2, 1, 1, 1, 1),
    }[name]  # fmt: skip
    return VectorOperation(
        name=name, precision=precision, size=size, flop=float(flop * size), read_bytes=reads * vector,
        written_bytes=writes * vector, fresh_bytes=fresh * vector, kernels=float(kernels),
    )  # fmt: skip


def listed_operations(
    lengths: Iterable[int], sides: Iterable[int], precisions: Sequence[str]
) -> tuple[VectorOperation, ...]:
    """Vectors of each length in fp32, products of each side in each precision."""
    names: tuple[VectorName, ...] = ("axpy", "dot", "sum", "multiply")
    vectors = [vector_operation(name, length) for name in names for length in lengths]
    return (*vectors, *(vector_operation("gemm", side, one) for one in precisions for side in sides))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What bounds a device: bytes a second, FLOP a second by precision, seconds of a call however small.

    `origin`: where the figures come from; `origin_name`: of a device profile. `reads_before_writing`: caches that fetch
    a line before it is written.
    """

    device: str
    bytes_per_s: Figure
    flop_per_s: Mapping[str, Figure]
    call_s: Figure
    floor_s: Figure
    tiles_to_half: float
    reads_before_writing: bool
    origin: Origin
    origin_name: str | None = None

    def seconds(self, work: VectorOperation) -> Figure | None:
        """Of one call, with the interval that the ends of all rates give together; None where no rate is known."""
        peak = self.flop_per_s.get(work.precision)
        if peak is None:
            return None
        middle = self._seconds(work, peak, "value", "value")
        fast, slow = self._seconds(work, peak, "high", "low"), self._seconds(work, peak, "low", "high")
        return Figure(value=middle, low=fast, high=slow, basis=self.bytes_per_s.basis)

    def _seconds(self, work: VectorOperation, peak: Figure, rate: End, duration: End) -> float:
        moved = work.counted_bytes + (work.fresh_bytes if self.reads_before_writing else 0.0)
        tiles = ceil(work.size / TILE) ** 2 if work.name == "gemm" else 0
        share = tiles / (tiles + self.tiles_to_half) if tiles else 1.0
        busy = smooth_max(work.flop / (getattr(peak, rate) * share), moved / getattr(self.bytes_per_s, rate), 3.0)
        floor: float = work.kernels * getattr(self.floor_s, duration)
        call: float = getattr(self.call_s, duration)
        return max(call, floor + float(busy))


def speed_up(slower: Figure | None, faster: Figure | None) -> Figure | None:
    """How many times as fast the second is; the ends as far apart as both intervals allow. None where one is unknown.

    >>> speed_up(Figure(value=8.0, low=4.0, high=16.0), Figure(value=2.0, low=1.0, high=2.0))
    Figure(value=4.0, low=2.0, high=16.0, basis='computed')
    """
    if slower is None or faster is None:
        return None
    basis: Basis = slower.basis if slower.basis == faster.basis else "computed"
    return Figure(value=slower.value / faster.value, low=slower.low / faster.high, high=slower.high / faster.low,
                  basis=basis)  # fmt: skip


# FLOP a cycle of one core in fp32, by its widest unit (a fused multiply-add is two): two 512-bit units (Intel server
# cores, Zen 5), one pair of 256-bit halves (Zen 4), two 256-bit (AVX2; SVE of Neoverse V1), two 128-bit (Neoverse N1).
# AMX multiplies 16 x 32 by 32 x 16 bf16 tiles in 16 cycles. Sources: Intel 64 and IA-32 Architectures Optimization
# Reference Manual (AMX, FMA throughput); AMD Software Optimization Guides of Zen 4 and Zen 5; Arm Neoverse guides.
_AMD_HALVES: Final = 25  # family of Zen 3 and Zen 4, whose 512-bit operations take two passes
TILE_FLOP: Final = 512.0  # a cycle, from which on it is a unit of tiles
_FP32: Final = (("AVX-512", 64.0), ("AVX2", 32.0), ("SVE", 32.0), ("NEON", 16.0))
_BF16: Final = (("AMX bf16", 1024.0), ("AVX-512 bf16", 128.0), ("Arm bf16", 128.0))


def flop_per_cycle(features: Sequence[str], amd_family: int | None = None) -> dict[str, float]:
    """Precision -> FLOP a cycle of one core with these vector units; empty where none is known.

    >>> flop_per_cycle(("AVX2", "AVX-512", "AMX bf16")), flop_per_cycle(("AVX2", "AVX-512"), amd_family=25)
    ({'fp32': 64.0, 'bf16': 1024.0}, {'fp32': 32.0})
    """
    found: dict[str, float] = {}
    for precision, table in (("fp32", _FP32), ("bf16", _BF16)):
        rate = next((flop for name, flop in table if name in features), None)
        if rate is not None:
            halved = amd_family == _AMD_HALVES and any("AVX-512" in one for one in features)
            found[precision] = rate / 2.0 if halved else rate
    return found


def processor_roof(
    device: str, cores: int, clock_hz: float | None, per_cycle: Mapping[str, float], assumed: TabularAssumptions
) -> Roof:
    """Of a processor that was not measured: its units times its clock, and judgements of a core's memory and calls."""
    given = _ranges(assumed)
    own = _ranges(VectorAssumptions())
    rates = {
        precision: own["tile_product_share" if flop >= TILE_FLOP else "product_share"].scaled(cores * clock_hz * flop)
        for precision, flop in per_cycle.items()
        if clock_hz is not None
    }
    if "fp32" not in rates:
        rates["fp32"] = given["cpu_flop_per_s"].scaled(cores)
    return Roof(
        device=device, bytes_per_s=given["cpu_bytes_per_s"].scaled(cores), flop_per_s=rates,
        call_s=given["cpu_operator_s"], floor_s=Figure(value=0.0, low=0.0, high=0.0, basis="assumed"),
        tiles_to_half=0.0, reads_before_writing=True,
        origin="units",
    )  # fmt: skip


def gpu_roof(device: str, bandwidth_bytes_per_s: float, peaks: Mapping[str, float], assumed: Assumptions) -> Roof:
    """Of a GPU by its data sheet, with the shares that its kernels reach."""
    given = _ranges(assumed)
    return Roof(
        device=device, bytes_per_s=given["memory_peak_fraction"].scaled(bandwidth_bytes_per_s),
        flop_per_s={name: given["gemm_peak_fraction"].scaled(peak) for name, peak in peaks.items()},
        call_s=given["host_launch_us_per_kernel"].scaled(1e-6), floor_s=given["kernel_floor_us"].scaled(1e-6),
        tiles_to_half=assumed.tiles_to_half_rate, reads_before_writing=False, origin="data sheet",
    )  # fmt: skip


def _ranges(values: TabularAssumptions | Assumptions | VectorAssumptions) -> dict[str, Figure]:
    return {one.name: Figure(value=one.value, low=one.low, high=one.high, basis="assumed") for one in listed(values)}
