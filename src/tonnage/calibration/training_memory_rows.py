"""Memory rows beside their prediction: peaks in the reading a row names, «fits», and the longest sequence that fits."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from tonnage.calibration.mem_kinds import memory_reading
from tonnage.calibration.memo import MEMO, Same
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import TrainingRow, publication
from tonnage.calibration.search import Values
from tonnage.calibration.training_case import NoCase, TrainingCase, build_case
from tonnage.calibration.training_unstated import fitted_to_device
from tonnage.catalog.catalog import Catalog
from tonnage.errors import TonnageError
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, channel_share, generation_of, usable_bytes
from tonnage.sizing.estimates import Array, distinct
from tonnage.sizing.fitting import fits
from tonnage.sizing.program_profiles import memory_group
from tonnage.sizing.training_memory import MemoryLayout, TrainingMemory, lay_out_memory, memory_under
from tonnage.units import from_gib, to_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths
from tonnage.workload.programs import DOCUMENTED, Reading

MEMORY_METRICS = ("peak_mem_gib", "peak_mem_gb_unspecified", "fits", "max_seq_len")
LENGTH_GROUP = "training length"  # of a row that prints a length, not bytes
BUDGET = re.compile(r"VRAM-(\d+)GB")
PROGRAM_FACTS = (
    "program", "program_version", "kernels", "state", "loss", "checkpoint_kind", "sequence_parallel",
    "optimizer_fused", "optimizer_in_backward", "offload", "adapter_targets", "tables_apart",
)  # fmt: skip
STAND_IN = "A100-80GB-SXM"  # peak memory does not depend on the device; a row without one needs some name to be built
LENGTHS: list[float] = distinct(np.round(2.0 ** np.arange(6.0, 21.0, 0.05))).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The row's figure, which residuals speak for it, what is needed, and what the row says there is (None: as its
    device has)."""

    value: float
    group: str
    needed_gib: float | None = None
    capacity_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Bytes per device of all jobs of a case."""

    parts: tuple[TrainingMemory, ...]

    def bytes(self, reading: str) -> Array:
        """`allocated`, `reserved`, `device`, or what is `needed` for the run not to fail."""
        name = {
            "allocated": "allocated_bytes",
            "reserved": "reserved_bytes",
            "device": "total_bytes",
            "needed": "needed_bytes",
        }[reading]
        return reduce(np.add, (getattr(part, name) for part in self.parts))


def judge_memory_row(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> JudgedRow | SkippedRow:
    """One memory row beside its prediction."""
    judge = {"fits": _fits, "max_seq_len": _longest}.get(row.metric, _peak)
    try:
        found = judge(row, catalog, assumed)
    except NoCase as error:
        return SkippedRow(row_id=row.id, metric=row.metric, reason=str(error))
    except TonnageError as error:
        return SkippedRow(row_id=row.id, metric=row.metric, reason=error.message)
    return JudgedRow(
        row_id=row.id,
        metric=row.metric,
        family=row.family,
        gpu=row.gpu,
        measured=row.value,
        predicted=found.value,
        suspect=row.quality == "suspect",
        group=found.group,
        needed_gib=found.needed_gib,
        capacity_gib=found.capacity_gib,
        source=publication(row.source),
        bound=reads_cache(row),
    )


def reading_of(row: TrainingRow) -> Reading:
    """Which of the three figures the row's tool reports: as stated, else what its program's log calls the peak, else
    reserved, as most do."""
    documented = next((entry.reading for name, entry in DOCUMENTED.items() if name == row.program), None)
    return memory_reading(row.mem_kind, documented or "reserved")


def reads_cache(row: TrainingRow) -> bool:
    """Whether the row says that it read a device under a caching allocator, which keeps freed blocks as long as there
    is room (PyTorch, notes on CUDA semantics, memory management): a bound of what the run needs, from above."""
    return "caching allocator" in row.mem_kind.lower()


def memory_case(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> TrainingCase:
    """The case of a memory row. Peak memory does not depend on which device it is read on."""
    if row.gpu and not BUDGET.search(row.gpu):
        return build_case(row, catalog, assumed)
    return build_case(replace(row, gpu=STAND_IN), catalog, assumed)


def peak(case: TrainingCase, assumed: Assumptions) -> Peak:
    """Peak memory of a case."""
    return peak_under(lay_out_peak(case), assumed, case.machine)


def lay_out_peak(case: TrainingCase) -> tuple[MemoryLayout, ...]:
    """What is in memory for each job of a case, before any assumption is known."""
    trainer = case.trainer
    return tuple(lay_out_memory(job, case.layouts, trainer) for job in case.jobs)


def peak_under(laid: Sequence[MemoryLayout], assumed: Assumptions, machine: Machine) -> Peak:
    """Peak memory of a case that is laid out."""
    outside = channel_share(machine), generation_of(machine.accelerator)
    return Peak(parts=tuple(memory_under(one, assumed, *outside) for one in laid))


def _peak(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> Prediction:
    if row.micro_batch_per_gpu is None:
        raise NoCase("memory without the micro-batch")
    case = _measured_case(row, catalog, assumed)
    found = peak(case, assumed)
    needed_gib = to_gib(float(found.bytes("needed")[0]))
    return Prediction(value=_reported(case, found), group=memory_group(case.jobs[0]), needed_gib=needed_gib)


def _measured_case(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> TrainingCase:
    """The case of a row that prints a peak: it ran, so what it leaves open was such that it fitted."""
    case = memory_case(row, catalog, assumed)
    return case if BUDGET.search(row.gpu) or not row.gpu else fitted_to_device(case, assumed)


def _reported(case: TrainingCase, found: Peak) -> float:
    """The peak in the row's own reading and unit."""
    row = case.row
    size = float(found.bytes(reading_of(row))[0])
    if row.metric.endswith("unspecified") and reading_of(row) != "device":
        return size / 1e9  # GB read as 10⁹: what tools that divide bytes print
    return to_gib(size)  # `nvidia-smi` counts in MiB, so what is read there is GiB, whatever the unit is called


def _fits(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> Prediction:
    """1 where what is needed stays within the device with the margin free, else 0."""
    case = memory_case(row, catalog, assumed)
    needs, has = float(peak(case, assumed).bytes("needed")[0]), _capacity(row, case)
    said = float(fits(needs, has, assumed.memory_margin_fraction))
    group = memory_group(case.jobs[0])
    return Prediction(value=said, group=group, needed_gib=to_gib(needs), capacity_gib=to_gib(has))


def _capacity(row: TrainingRow, case: TrainingCase) -> float:
    budget = BUDGET.search(row.gpu)
    return from_gib(float(budget[1])) if budget else usable_bytes(case.machine.accelerator)


def _longest(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> Prediction:
    """The longest sequence whose peak stays within the device, no margin (the source tried until it failed)."""
    case = memory_case(replace(row, seq_len=1024), catalog, assumed)
    capacity = _capacity(row, case)

    def too_long(length: float) -> bool:
        lengths = Lengths(mean=length, maximum=int(length))
        grown = replace(case, jobs=tuple(replace(job, lengths=lengths) for job in case.jobs))
        return not fits(float(peak(grown, assumed).bytes("needed")[0]), capacity, 0.0)

    fitting = bisect_left(LENGTHS, True, key=too_long)  # memory grows with length
    return Prediction(value=float(LENGTHS[fitting - 1]) if fitting else 0.0, group=LENGTH_GROUP)


def prints_peak(row: TrainingRow) -> bool:
    """Whether a row prints a peak, in bytes."""
    return row.metric.startswith("peak_mem")


def with_program_unstated(row: TrainingRow) -> TrainingRow:
    """The row with nothing said of its program: what a user leaves out who does not name one."""
    blank: dict[str, Any] = dict.fromkeys(PROGRAM_FACTS, "")
    return replace(row, **blank)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBatch:
    """Peak-memory rows with what of them does not change in a fit: the cases, and what is in memory."""

    cases: tuple[TrainingCase, ...]
    laid: tuple[tuple[MemoryLayout, ...], ...]

    def log_errors(self, values: Values) -> Array:
        """`log_ratios`, where a reading that holds cached blocks counts only if it is less than predicted: what runs is
        at most that."""
        errors = self.log_ratios(values)
        cached = np.array([reads_cache(case.row) for case in self.cases], dtype=bool)
        return np.where(cached, np.maximum(errors, 0.0), errors)

    def log_ratios(self, values: Values) -> Array:
        """log(predicted / measured) of each case under these parameters."""
        assumed = replace(Assumptions(), **values)
        pairs = zip(self.cases, self.laid, strict=True)
        peaks = (peak_under(laid, assumed, case.machine) for case, laid in pairs)
        return np.array(
            [np.log(_reported(case, one) / case.row.value) for case, one in zip(self.cases, peaks, strict=True)]
        )


def memory_batch(rows: Sequence[TrainingRow], catalog: Catalog, assumed: Assumptions) -> MemoryBatch:
    """Rows of good quality that print a peak and say enough to be sized; `assumed` settles what they leave open."""
    wanted = [
        row for row in rows if prints_peak(row) and row.quality != "suspect" and row.micro_batch_per_gpu is not None
    ]
    found = [
        MEMO.recall(("memory case", Same(catalog), row, assumed), partial(_laid_out, row, catalog, assumed))
        for row in wanted
    ]
    known = [one for one in found if one is not None]
    return MemoryBatch(cases=tuple(case for case, _ in known), laid=tuple(laid for _, laid in known))


def _laid_out(
    row: TrainingRow, catalog: Catalog, assumed: Assumptions
) -> tuple[TrainingCase, tuple[MemoryLayout, ...]] | None:
    """The case of a row that prints a peak, and what is in memory; None where it says too little."""
    try:
        case = _measured_case(row, catalog, assumed)
    except (NoCase, TonnageError):
        return None
    return case, lay_out_peak(case)
