"""Rows measured on a local device: what work a row is of, the prediction beside it, and rows as CSV and back."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields, replace
from math import ceil, isfinite, sqrt
from pathlib import Path
from typing import Final, Literal

from tonnage.calibration.columns import TRAINING_COLUMNS
from tonnage.calibration.local_profile import DeviceProfile, combined_log_sd
from tonnage.calibration.local_update import LEAST_NOISE, LocalObservation, observed, repeat_log_sd
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.reading import read_training_rows
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_shapes import NoShape, row_shape
from tonnage.errors import InputError
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.local_memory import checkpoint_copy_bytes, device_memory_parts, host_memory_parts
from tonnage.sizing.local_work import PRECISIONS, LocalOperation, step_operations
from tonnage.sizing.rates import smooth_max
from tonnage.sizing.training_job import has_vocabulary_loss, parameter_share
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths, Lora, TrainJob

Metric = Literal["time", "memory"]
TIME_METRICS: Final = ("iteration_time_s", "sequences_per_s", "tokens_per_s_per_gpu")
MEMORY_METRICS: Final = ("peak_mem_gib",)
BUCKET_BYTES: Final = 25 * 2**20  # DDP sums gradients in buckets of this size by default
# How far the same work differs from run to run, in logarithms, before repeats on the device tell. Time: one work
# measured minutes apart differed by up to 5 % (docs/calibrate-local.md); judgement, range 0.01 to 0.06. Memory is asked
# for by the same program in the same order: judgement, range 0.002 to 0.03.
REPEATS: Final[dict[Metric, float]] = {"time": 0.03, "memory": 0.01}
_NOTE: Final = re.compile(r"\b(threads|log_sd|steps|objective|saves)=([\w.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWork:
    """One training set-up on a local device; `job.precision` is fp32 or bf16."""

    job: TrainJob
    micro_batch: int
    accumulation: int
    threads: int  # of each process
    processes: int = 1
    saves_beside: bool = False  # a copy of its state is written while training goes on

    @property
    def configuration(self) -> str:
        """What two runs have alike whose steps take the same time: lengths count by their mean."""
        return self._alike(self.job.lengths.mean)

    @property
    def memory_configuration(self) -> str:
        """What two runs have alike that need the same memory: the longest sequence counts."""
        return self._alike(self.job.lengths.maximum) + (" saves beside" if self.saves_beside else "")

    def _alike(self, length: float) -> str:
        shape, job = self.job.model, self.job
        dims = f"{shape.architecture}/{shape.layers}x{shape.hidden}x{shape.heads}x{shape.ffn}x{shape.vocab}"
        aim = "lm" if has_vocabulary_loss(job) else "classes"
        batch = f"{self.processes}x{self.micro_batch}x{self.accumulation}x{round(length)}"
        rank = f"-r{job.lora.rank}" if job.method == "lora" else ""
        return f"{dims} {aim} {job.method}{rank} {job.precision} {job.optimizer} {batch} t{self.threads}"

    @property
    def samples_per_step(self) -> int:
        return self.micro_batch * self.accumulation * self.processes

    def operations(self) -> tuple[LocalOperation, ...]:
        return step_operations(self.job, micro_batch=self.micro_batch, accumulation=self.accumulation)


HOST_SHARPNESS: Final = 4.0  # as `sizing.training_time` rounds where host and device meet


def time_parts(work: LocalWork, profile: DeviceProfile) -> dict[str, float]:
    """Seconds of one step by group, from the profile's measurements alone.

    With several processes their gradients are summed once a step, in buckets: n·alpha + bytes/beta.
    """
    return _seconds_by(work, profile, lambda one: one.group)


def named_time_parts(work: LocalWork, profile: DeviceProfile) -> dict[str, float]:
    """The same by operation, for a reader."""
    return _seconds_by(work, profile, lambda one: one.name)


def _seconds_by(work: LocalWork, profile: DeviceProfile, key: Callable[[LocalOperation], str]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for one in work.operations():
        parts[key(one)] = parts.get(key(one), 0.0) + profile.seconds(one, work.threads)
    if profile.kind == "cuda":
        _overlap_host(parts, work, profile)
    if work.processes > 1:
        parts["all-reduce"] = _summing_s(work, profile)
    return parts


def _overlap_host(parts: dict[str, float], work: LocalWork, profile: DeviceProfile) -> None:
    """On a GPU the host launches ahead of the device, so that the slower of the two sets the pace: «dispatch» becomes
    what all launches take beyond the device's own time."""
    calls = [one for one in work.operations() if one.group == "dispatch"]
    if not calls:
        return
    device = sum(seconds for name, seconds in parts.items() if name != "dispatch")
    each = profile.seconds(calls[0], work.threads) / calls[0].calls
    host = each * sum(one.calls for one in work.operations())
    parts["dispatch"] = float(smooth_max(host, device, HOST_SHARPNESS)) - device


def _summing_s(work: LocalWork, profile: DeviceProfile) -> float:
    line = profile.all_reduce
    if line is None or line.processes != work.processes:
        measured = "none" if line is None else f"{line.processes}"
        raise InputError(
            f"{profile.name}: sums over {work.processes} processes were not measured ({measured} were)",
            hint=profile.no_all_reduce or "one process, or as many as the profile measured",
        )
    share = parameter_share(work.job, one_layout(micro_batch=1))
    size = float(share.trained[0]) * 4.0
    return ceil(size / BUCKET_BYTES) * line.alpha_s + size / line.bytes_per_s


def memory_parts(work: LocalWork, profile: DeviceProfile) -> dict[str, float]:
    """Bytes at the peak of a step in one process, by part."""
    if profile.kind == "cuda":
        return device_memory_parts(work.job, micro_batch=work.micro_batch, accumulation=work.accumulation)
    loaded = profile.framework_bytes + (profile.adapter_library_bytes if work.job.method != "full" else 0.0)
    parts = host_memory_parts(
        work.job, micro_batch=work.micro_batch, accumulation=work.accumulation, framework_bytes=loaded
    )
    return parts | {"checkpoint_copy": checkpoint_copy_bytes(work.job)} if work.saves_beside else parts


def row_work(row: TrainingRow, profile: DeviceProfile) -> LocalWork:
    """The work a row was measured on. Raises InputError naming the row where it does not say enough.

    `threads=N` in the note: threads of each process (all physical cores where it is not there). `saves=beside`: a copy
    of the state was written while training went on.
    """
    _check(row, profile)
    try:
        shape = row_shape(row)
    except NoShape as error:
        raise InputError(f"row {row.id}: {error}") from error
    if row.seq_len is None or row.micro_batch_per_gpu is None:
        raise InputError(f"row {row.id}: seq_len and micro_batch_per_gpu say what was run; one is blank")
    if row.precision not in PRECISIONS:
        raise InputError(f"row {row.id}: precision '{row.precision}' is not measured by a local profile: fp32 or bf16")
    noted = dict(_NOTE.findall(row.note))
    processes = row.n_gpus or 1
    accumulation = row.grad_accum or 1
    rank = re.search(r"r=(\d+)", row.method)
    job = TrainJob(
        model=shape, samples=1, epochs=1, lengths=Lengths(mean=float(row.seq_len), maximum=row.seq_len),
        global_batch=row.micro_batch_per_gpu * accumulation * processes, precision=row.precision,  # type: ignore[arg-type]
        method="lora" if row.method.startswith("lora") else "full",
        optimizer="sgd" if row.optimizer.lower().startswith("sgd") else "adamw",
        objective="language-model" if noted.get("objective") == "language-model" else
        "classification" if noted.get("objective") == "classification" else None,
        lora=Lora(rank=int(rank[1])) if rank else Lora(),
    )  # fmt: skip
    return LocalWork(
        job=job, micro_batch=row.micro_batch_per_gpu, accumulation=accumulation, processes=processes,
        threads=int(noted["threads"]) if "threads" in noted else max(profile.threads) // processes,
        saves_beside=noted.get("saves") == "beside",
    )  # fmt: skip


def device_names(profile: DeviceProfile) -> tuple[str, ...]:
    """What a row measured on the profile's device may call it: the profile's name, or the device's own."""
    machine = profile.identity
    own = machine.device if profile.kind == "cuda" else machine.processor
    plain = () if own is None else (own, own.split(" (family ")[0])
    return (profile.name, *plain)


def _check(row: TrainingRow, profile: DeviceProfile) -> None:
    if row.gpu not in device_names(profile):
        raise InputError(
            f"row {row.id} was measured on '{row.gpu}', this profile is of '{profile.name}'",
            hint="`gpu` of a local row is the name of its device profile, or of the processor or GPU",
        )
    if not isfinite(row.value) or row.value <= 0:
        raise InputError(f"row {row.id}: {row.metric} is {row.value}, expected a number above zero")


def observation(row: TrainingRow, profile: DeviceProfile) -> tuple[Metric, LocalObservation]:
    """A row beside its prediction. The noise of a rate is that of a mean over the run's steps: `log_sd=` in the note
    over the root of `steps=`, 0 where it is not stated. What differs from run to run comes on top in `observations`."""
    work = row_work(row, profile)
    method = work.job.method
    if row.metric in MEMORY_METRICS:
        each = row.value / (work.processes if "sum over" in row.mem_kind else 1)
        parts = memory_parts(work, profile)
        return "memory", observed(work.memory_configuration, parts, from_gib(each), 0.0, method)
    noise = _noise_of_mean(row)
    return "time", observed(work.configuration, time_parts(work, profile), _step_s(row, work), noise, method)


def _noise_of_mean(row: TrainingRow) -> float:
    noted = dict(_NOTE.findall(row.note))
    try:
        spread, steps = float(noted.get("log_sd", 0.0)), float(noted.get("steps", 1.0))
    except ValueError as error:
        raise InputError(f"row {row.id}: log_sd or steps in the note is not a number: {row.note}") from error
    if not (isfinite(spread) and spread >= 0 and isfinite(steps) and steps >= 1):
        raise InputError(f"row {row.id}: log_sd={spread} in the note, expected a number of at least zero (steps: one)")
    return spread / sqrt(steps)


def _step_s(row: TrainingRow, work: LocalWork) -> float:
    """The row's figure as seconds of a step."""
    if row.metric == "iteration_time_s":
        return row.value
    if row.metric == "sequences_per_s":
        return work.samples_per_step / row.value
    return work.micro_batch * work.accumulation * work.job.lengths.mean / row.value


def is_read(row: TrainingRow) -> bool:
    """Whether a local fit reads the row's metric, and the row is not marked suspect. What the framework's allocator
    counts or holds is not what must fit: of memory, readings of the host or of the whole device are read."""
    by_allocator = row.mem_kind.startswith(("allocated", "reserved"))
    known = row.metric in TIME_METRICS or (row.metric in MEMORY_METRICS and not by_allocator)
    return known and row.quality != "suspect"


def update(profile: DeviceProfile, rows: Iterable[TrainingRow]) -> DeviceProfile:
    """The profile with these rows among its own: the same whatever their order, and whether they come at once or not.

    A row it has already changes nothing. Rows of metrics that a local fit does not read, and suspect ones, are left
    out. Raises InputError on a row of another device, on a value that is not above zero, and on two rows of one id.
    """
    known = {row.id: row for row in profile.rows}
    for row in rows:
        if not is_read(row):
            continue
        observation(row, profile)  # what cannot be used is an error now
        if known.setdefault(row.id, row) != row:
            raise InputError(f"two different rows have the id '{row.id}'", hint="an id is given once")
    return replace(profile, rows=tuple(known[name] for name in sorted(known)))


def observations(profile: DeviceProfile, metric: Metric) -> list[LocalObservation]:
    """All of the profile's rows of one kind, beside their predictions; the noise of each holds what runs differ by."""
    found = [one for kind, one in (observation(row, profile) for row in profile.rows) if kind == metric]
    repeat = repeat_log_sd(found, REPEATS[metric])
    return [replace(one, noise_log_sd=max(combined_log_sd(one.noise_log_sd, repeat), LEAST_NOISE)) for one in found]


def run_to_run_log_sd(profile: DeviceProfile, metric: Metric) -> float:
    """How far one run more of the same work may differ from those before."""
    found = [one for kind, one in (observation(row, profile) for row in profile.rows) if kind == metric]
    return repeat_log_sd(found, REPEATS[metric])


def read_rows(path: Path) -> list[TrainingRow]:
    """Rows of a CSV in the facts' columns. Raises InputError on the first that cannot be used."""
    rows = []
    for item in read_training_rows(path):
        if isinstance(item, SkippedRow):
            raise InputError(f"{path}: row {item.row_id} cannot be used: {item.reason}", hint="correct or remove it")
        rows.append(item)
    if not rows:
        raise InputError(f"{path} has a header and no rows")
    return rows


def rows_csv(rows: Sequence[TrainingRow]) -> str:
    """Rows as CSV in the facts' columns, sorted by id; numbers in full, so that reading them gives them back."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(TRAINING_COLUMNS)
    for row in sorted(rows, key=lambda one: one.id):
        cells = dict(zip([field.name for field in fields(row)], astuple(row), strict=True))
        writer.writerow([_cell(cells.get(name)) for name in TRAINING_COLUMNS])
    return stream.getvalue()


def _cell(value: object) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
