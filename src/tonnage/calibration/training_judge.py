"""Training rows beside their prediction, each in the convention the row itself uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import TrainingRow, publication
from tonnage.calibration.training_case import NoCase, TrainingCase, build_case
from tonnage.calibration.training_memory_rows import MEMORY_METRICS, judge_memory_row
from tonnage.calibration.training_unstated import fitted_to_device
from tonnage.calibration.unseen import UnseenFactors
from tonnage.catalog.catalog import Catalog
from tonnage.errors import TonnageError
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices, peak_tflops, stack
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.training_prediction import predict_training
from tonnage.sizing.training_time import TrainingStep
from tonnage.sizing.training_work import FULL, counted_flop_per_token

if TYPE_CHECKING:
    from tonnage.calibration.training_fitted import TrainingFit

TIME_GROUP = "training time"
IMAGES = ("convolution", "vision-transformer")


def judge_training(
    rows: Sequence[TrainingRow], catalog: Catalog, fitted: TrainingFit | None = None
) -> list[JudgedRow | SkippedRow]:
    """Each row predicted in its own convention, or skipped with the reason; in the order of `rows`.

    Without `fitted` the assumptions the library ships with are used.
    """
    assumed = fitted.assumptions() if fitted else Assumptions()
    results: dict[int, JudgedRow | SkippedRow] = {}
    timed: list[tuple[int, TrainingCase]] = []
    for index, row in enumerate(rows):
        if row.metric in MEMORY_METRICS:
            results[index] = judge_memory_row(row, catalog, assumed)
            continue
        found = time_case(row, catalog, assumed)
        if isinstance(found, SkippedRow):
            results[index] = found
        else:
            timed.append((index, found))
    if timed:
        for index, case in timed:
            step = predicted_step(case, assumed)
            results[index] = _judged(case, step, fitted)
    return [results[index] for index in range(len(rows))]


def time_case(row: TrainingRow, catalog: Catalog, assumed: Assumptions) -> TrainingCase | SkippedRow:
    """The case of a row with a rate or a time, or why it has none; `assumed` settles what it leaves open."""
    if row.metric not in (*RATES, *TIMES):
        return _skipped(row, f"metric '{row.metric}' is none of training time or memory")
    try:
        case = fitted_to_device(build_case(row, catalog, assumed), assumed)
        peak_tflops(case.machine.accelerator, TRAINING[case.jobs[0].precision].compute)
    except NoCase as error:
        return _skipped(row, str(error))
    except TonnageError as error:
        return _skipped(row, error.message)
    if case.trainer.offloaded_state:
        return _skipped(row, "optimizer on the CPU: its rate is the host's, which the row does not state")
    if row.metric == "gpu_hours" and row.train_tokens is None:
        return _skipped(row, "GPU hours without the number of tokens")
    return case


def predicted_step(case: TrainingCase, assumed: Assumptions) -> TrainingStep:
    """One step of a case, part by part."""
    return predict_training(case.jobs, case.layouts, case_devices(case, assumed), assumed, case.trainer).step


def case_devices(case: TrainingCase, assumed: Assumptions) -> Devices:
    """The machine of a case at the precision it computes in."""
    return stack([case.machine], TRAINING[case.jobs[0].precision].compute, assumed)


def in_convention(case: TrainingCase, seconds: float) -> float:
    """A step of `seconds` as the metric of the case's row."""
    tokens_per_gpu = case.tokens / seconds / case.gpus
    match case.row.metric:
        case "tokens_per_s_per_gpu":
            return tokens_per_gpu
        case "sequences_per_s" | "images_per_s":
            return case.samples / seconds
        case "iteration_time_s":
            return seconds
        case "gpu_hours":
            assert case.row.train_tokens is not None
            return case.row.train_tokens / tokens_per_gpu / 3600.0
        case _:
            return _whole_flop(case) * _counted(case) / seconds / case.gpus / 1e12


def _counted(case: TrainingCase) -> float:
    """Passes counted over forward and backward: a hardware rate counts the second forward too."""
    repeated = int(case.layouts.recompute[0]) == FULL
    return 4.0 / 3.0 if repeated and case.row.flop_counted == "hardware" else 1.0


def _whole_flop(case: TrainingCase) -> float:
    """As papers count them: three passes over every token of the step."""
    return 3.0 * case.tokens * counted_flop_per_token(case.jobs[0])


RATES = ("tokens_per_s_per_gpu", "sequences_per_s", "images_per_s", "achieved_tflops_per_gpu")
TIMES = ("iteration_time_s", "gpu_hours")  # metrics that grow with time


def case_ratio(case: TrainingCase, seconds: float) -> float:
    """Predicted over measured, turned so that above 1 always means: predicted too fast."""
    value = in_convention(case, seconds) / case.row.value
    return 1.0 / value if case.row.metric in TIMES else value


def _judged(case: TrainingCase, step: TrainingStep, fitted: TrainingFit | None) -> JudgedRow | SkippedRow:
    row, value = case.row, in_convention(case, float(step.total_s[0]))
    if not np.isfinite(value) or value <= 0:
        return _skipped(row, "a link between its devices has no published bandwidth")
    image, unseen_factors = case.jobs[0].model.architecture in IMAGES, UnseenFactors()
    if fitted is not None:
        job = case.jobs[0]
        unseen_factors = fitted.unseen_factors(
            case.machine.accelerator, job.precision, case.program_class, shape=job.model
        )
    return JudgedRow(
        row_id=row.id,
        metric=row.metric,
        family=row.family,
        gpu=row.gpu,
        measured=row.value,
        predicted=value,
        suspect=row.quality == "suspect",
        group="image " + TIME_GROUP if image else TIME_GROUP,
        unseen_factors=len(unseen_factors.names),
        foreign=len(unseen_factors.foreign),
        source=publication(row.source),
        host_share=float(step.host_share[0]),
    )


def _skipped(row: TrainingRow, reason: str) -> SkippedRow:
    return SkippedRow(row_id=row.id, metric=row.metric, reason=reason)
