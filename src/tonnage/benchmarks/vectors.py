"""Vector operations timed on a device of this machine by torch. Operands walk through a pool larger than its caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Any, Final, Literal

from tonnage.benchmarks.operations import Arena, queued
from tonnage.benchmarks.timing import CallTimer, Samples, take_samples
from tonnage.calibration.local_profile import Timing
from tonnage.errors import InputError
from tonnage.sizing.vector_work import VectorOperation
from tonnage.units import to_gib

DeviceKind = Literal["cpu", "cuda", "mps"]
POOL_BYTES: Final = 512 * 2**20
QUEUED_CALLS: Final = 20  # on a GPU: launches overlap with what runs
MOST_SETS: Final = 4096
POINT_S: Final = 0.15
FEWEST: Final = 5
FREE_SHARE: Final = 0.4  # of the free memory that operands may take


def devices_here(torch: Any) -> tuple[DeviceKind, ...]:
    """The processor, and the GPU that torch can use. ROCm builds call theirs cuda."""
    if torch.cuda.is_available():
        return ("cpu", "cuda")
    if torch.backends.mps.is_available():
        return ("cpu", "mps")
    return ("cpu",)


def check_room(torch: Any, kind: DeviceKind, lengths: Iterable[int], sides: Iterable[int]) -> None:
    """InputError, with the largest sizes that fit, where the operands of a call do not fit into the device's memory."""
    free = FREE_SHARE * free_bytes(torch, kind)
    most_length, most_side = int(free / 12), int((free / 12) ** 0.5)
    if max(lengths, default=0) > most_length or max(sides, default=0) > most_side:
        raise InputError(
            f"{kind}: {to_gib(free):.3g} GiB may be used, and the operands of a call do not fit",
            hint=f"--length up to {most_length:,}, --side up to {most_side:,}",
        )


def free_bytes(torch: Any, kind: DeviceKind) -> float:
    """Memory of the device that nothing takes now."""
    if kind == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    import psutil

    return float(psutil.virtual_memory().available)


def time_operations(
    torch: Any, kind: DeviceKind, threads: int, listed: Iterable[VectorOperation]
) -> Iterator[tuple[VectorOperation, Timing]]:
    """Each operation with its timing, seconds of one call. torch's threads and tf32 setting are put back."""
    before, allowed = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    torch.set_num_threads(threads)
    waits: dict[str, Callable[[], object]] = {
        "cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize, "cpu": lambda: None,
    }  # fmt: skip
    clock = CallTimer(waits[kind], threads if kind == "cpu" else 0)
    queue = 1 if kind == "cpu" else QUEUED_CALLS
    arenas: dict[Any, Arena] = {}
    try:
        for work in listed:
            torch.backends.cuda.matmul.allow_tf32 = work.precision == "tf32"
            element = torch.bfloat16 if work.precision == "bf16" else torch.float32
            needed = max(POOL_BYTES, int(work.counted_bytes) + 64)
            if element not in arenas or arenas[element].size_bytes < needed:
                arenas.clear()
                arenas[element] = Arena(torch, kind, element, needed)
            call = _call(torch, arenas[element], work)
            samples = Samples()
            take_samples(queued(call, queue), clock, samples, budget_s=POINT_S, fewest=FEWEST)
            yield work, samples.timing(queue, threads=clock.threads)
    finally:
        torch.set_num_threads(before)
        torch.backends.cuda.matmul.allow_tf32 = allowed


def _call(torch: Any, arena: Arena, work: VectorOperation) -> Callable[[], object]:
    """The operation on the next operands of the pool; results go where the pool says, so that nothing is allocated but
    the single number of a dot product or a sum."""
    shape = (work.size, work.size) if work.name == "gemm" else (work.size,)
    operands = {"axpy": 2, "dot": 2, "sum": 1, "multiply": 3, "gemm": 3}[work.name]
    sets = max(1, min(MOST_SETS, int(arena.size_bytes // max(work.counted_bytes, 1.0))))
    pool = cycle([tuple(arena.piece(*shape) for _ in range(operands)) for _ in range(sets)])
    calls: dict[str, Callable[..., object]] = {
        "axpy": lambda x, y: torch.add(y, x, alpha=1e-3, out=y),
        "dot": torch.dot,
        "sum": torch.sum,
        "multiply": lambda x, y, z: torch.mul(x, y, out=z),
        "gemm": lambda x, y, z: torch.mm(x, y, out=z),
    }
    chosen = calls[work.name]
    return lambda: chosen(*next(pool))
