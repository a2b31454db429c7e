"""Vector operations on this machine's devices, predicted first: `tonnage.bench_vectors`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.benchmarks.vectors import DeviceKind
    from tonnage.catalog import Catalog
    from tonnage.side_by_side.vectors import VectorResult, VectorsCompared
    from tonnage.sizing.vector_work import Origin, Roof, VectorOperation

LENGTHS: Final = (2**16, 2**20, 2**24)
SIDES: Final = (256, 2048)
DEVICES: Final = ("cpu", "cuda", "mps")
MOST_SIZE: Final = 2**34
GPU_PRECISIONS: Final = ("fp32", "tf32", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchVectorsOptions(Options):
    """Which devices, how large, and which GPU of the catalog is predicted beside them."""

    devices: tuple[str, ...] = option(
        "--device", "cpu, cuda (ROCm too) or mps. [default: those that are here]", default=(), metavar="KIND"
    )
    gpu: str | None = option(
        "--gpu", "A GPU of the catalog, predicted beside this machine's processor.", default=None, metavar="GPU"
    )
    lengths: tuple[int, ...] = option(
        "--length", "Elements of a vector. [default: 65,536, 1,048,576 and 16,777,216]", default=(), metavar="N"
    )
    sides: tuple[int, ...] = option("--side", "Of the matrices. [default: 256 and 2,048]", default=(), metavar="N")
    threads: int | None = option(
        "--threads", "Of the processor. [default: its cores]", default=None, metavar="N", least=1
    )
    profile: str = option(
        "--profile", "The device profile that the processor's prediction stands on; `none`: units times clock.",
        default="local", metavar="NAME",
    )  # fmt: skip
    predict: bool = option("--predict", "Predict alone; measure nothing.", default=False)
    rows: str | None = option("--rows", "Write the rows here, CSV.", default=None, metavar="FILE")


def bench_vectors(
    options: BenchVectorsOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> Answer[VectorsCompared]:
    """axpy, dot product, sum, product of elements and of matrices on each device: predicted, measured, and how many
    times as fast as the processor.

    Raises InputError for a device that is not here and operands that do not fit, MissingExtra without torch,
    UnknownName for a GPU that the catalog does not know.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.benchmarks.machine import busy_seconds, host_identity, import_torch, others_fraction, usable_cores
    from tonnage.benchmarks.vectors import check_room, devices_here
    from tonnage.reports.vector_bench import vector_bench_report
    from tonnage.side_by_side.vectors import VectorsCompared, compared

    options, settings, say = options or BenchVectorsOptions(), settings or current_settings(), say or (lambda _: None)
    _check(options)
    market = market_of(catalog, settings)
    torch = None if options.predict else import_torch()
    here = host_identity()
    threads = options.threads or usable_cores(here.physical_cores)
    if threads > here.logical_cores:
        raise InputError(f"--threads: found {threads}, this machine has {here.logical_cores}")
    kinds = _kinds(options, None if torch is None else devices_here(torch))
    lengths, sides = options.lengths or LENGTHS, options.sides or SIDES
    rows: list[VectorResult] = []
    origins: dict[str, tuple[Origin, str | None]] = {}
    began, busy = time.monotonic(), busy_seconds()
    for kind in kinds:
        roof, name = _roof_here(kind, torch, threads, options, market, settings)
        origins[name] = ("unknown", None) if roof is None else (roof.origin, roof.origin_name)
        if torch is not None:
            check_room(torch, kind, lengths, sides)
            say(f"{name}: predicted; measuring")
        rows += _device_rows(name, kind, roof, _works(kind, torch, roof, lengths, sides), torch, threads)
    if options.gpu is not None:
        roof = _card_roof(options.gpu, market)
        origins[roof.device] = (roof.origin, None)
        rows += _device_rows(roof.device, "catalog", roof, _works("catalog", None, roof, lengths, sides), None, threads)
    others = None
    if torch is not None:
        others = others_fraction(busy, busy_seconds(), time.monotonic() - began, here.logical_cores)
    found = VectorsCompared(
        rows=compared(rows, {name: times for name in origins if (times := _promised(name)) is not None}),
        origins=origins,
        threads=threads, measured_on=settings.today.isoformat(),
        torch_version=None if torch is None else str(torch.__version__), others_cpu_fraction=others,
    )  # fmt: skip
    answer = Answer(found, vector_bench_report)
    if options.rows is not None:
        from tonnage.files import save_for_user

        save_for_user(Path(options.rows), answer.to_csv())
    return answer


def _check(options: BenchVectorsOptions) -> None:
    for name in options.devices:
        if name not in DEVICES:
            raise InputError(f"--device: no kind of device is called '{name}'", hint=f"one of {', '.join(DEVICES)}")
    for flag, values in (("--length", options.lengths), ("--side", options.sides)):
        for value in values:
            if not 1 <= value <= MOST_SIZE:
                raise InputError(f"{flag}: found {value}, expected 1 to {MOST_SIZE:,}")


def _kinds(options: BenchVectorsOptions, here: Sequence[str] | None) -> tuple[DeviceKind, ...]:
    if here is None:
        return ("cpu",)
    for name in options.devices:
        if name not in here:
            raise InputError(
                f"torch sees no device of kind {name} here", hint=f"here: {', '.join(here)}; `tonnage doctor`"
            )
    return tuple(dict.fromkeys(options.devices or here))  # type: ignore[arg-type]


def _works(
    kind: str, torch: Any, roof: Roof | None, lengths: Sequence[int], sides: Sequence[int]
) -> tuple[VectorOperation, ...]:
    """The operations of a device: products in each precision that it multiplies by itself."""
    from tonnage.sizing.vector_work import listed_operations

    if kind == "catalog" or torch is None:
        known = GPU_PRECISIONS if roof is None else tuple(one for one in GPU_PRECISIONS if one in roof.flop_per_s)
        return listed_operations(lengths, sides, known)
    if kind == "mps":
        return listed_operations(lengths, sides, ("fp32",))
    from tonnage.benchmarks.local import precisions

    able = precisions(torch, kind)  # type: ignore[arg-type]
    tf32 = kind == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 8
    return listed_operations(lengths, sides, (*able, "tf32") if tf32 else able)


def _device_rows(
    name: str, kind: str, roof: Roof | None, works: Sequence[VectorOperation], torch: Any, threads: int
) -> list[VectorResult]:
    """Predicted first, then measured where torch is given."""
    from tonnage.benchmarks.vectors import time_operations
    from tonnage.side_by_side.vectors import VectorResult, measured_figure

    predicted = {work: None if roof is None else roof.seconds(work) for work in works}
    if torch is None or kind == "catalog":
        return [VectorResult(device=name, kind=kind, work=work, predicted_s=predicted[work]) for work in works]
    return [
        VectorResult(
            device=name, kind=kind, work=work, predicted_s=predicted[work], measured_s=measured_figure(timing),
            repeats=timing.repeats, disturbed=timing.disturbed,
        )
        for work, timing in time_operations(torch, kind, threads, works)  # type: ignore[arg-type]
    ]  # fmt: skip


def _roof_here(
    kind: DeviceKind, torch: Any, threads: int, options: BenchVectorsOptions, market: Catalog, settings: Settings
) -> tuple[Roof | None, str]:
    """What bounds a device of this machine, and its name; None where no figure is known."""
    from tonnage.benchmarks.machine import read_identity

    if kind == "cpu":
        return _processor_roof(threads, options, settings)
    if kind == "mps":
        return None, "Apple GPU"
    name = read_identity(torch, "cuda").device or str(torch.cuda.get_device_name(0))
    try:
        card = market.accelerator(name)
    except UnknownName:
        return None, name
    return _card_roof(card.name, market), card.name


def _processor_roof(threads: int, options: BenchVectorsOptions, settings: Settings) -> tuple[Roof, str]:
    """By the device profile where there is one, else by what the processor says of its units and its clock."""
    from tonnage.benchmarks.machine import CPUINFO, clock_hz, host_identity, processor_features
    from tonnage.calibration.local_file import find_profile
    from tonnage.side_by_side.vectors import roof_of_profile
    from tonnage.sizing.tabular import TabularAssumptions
    from tonnage.sizing.vector_work import flop_per_cycle, processor_roof

    here = host_identity()
    name = f"{here.processor}, {threads} thread{'s' if threads > 1 else ''}"
    if options.profile != "none":
        try:
            profile = find_profile(options.profile, settings.home, here, kind="cpu")
            return roof_of_profile(profile, threads, name), name
        except TonnageError:
            if options.profile != "local":
                raise
    text = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.is_file() else ""
    family = re.search(r"AMD.*\(family (\d+)", here.processor)
    per_cycle = flop_per_cycle(processor_features(text), None if family is None else int(family.group(1)))
    return processor_roof(name, threads, clock_hz(text), per_cycle, TabularAssumptions()), name


def _card_roof(name: str, market: Catalog) -> Roof:
    from tonnage.sizing.assumptions import Assumptions
    from tonnage.sizing.vector_work import gpu_roof
    from tonnage.units import GB, TERA

    card = market.accelerator(name)
    if card.memory_bandwidth_gb_per_s is None:
        raise InputError(f"{card.name}: no memory bandwidth is published, so nothing can be predicted")
    peaks: Mapping[str, float | None] = {one: card.dense_tflops(one) for one in GPU_PRECISIONS}
    known = {name: peak * TERA for name, peak in peaks.items() if peak is not None}
    return gpu_roof(card.name, card.memory_bandwidth_gb_per_s * GB, known, Assumptions())


def _promised(device: str) -> float | None:
    """How many times as fast as a processor documents promise a GPU of this name to be."""
    from tonnage.claimed_gains.gain import TARGETS

    stem = device.lower().partition("-")[0]
    return next((one.least for one in TARGETS if one.unit == "times" and one.subject == stem), None)
