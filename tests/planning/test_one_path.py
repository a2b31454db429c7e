"""What `validate` judges is what plans say: a plan whose layout is forced to a row's gives the row's figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.calibration.kinds import kind_named
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.training_case import TrainingCase
from tonnage.calibration.training_judge import predicted_step, time_case
from tonnage.calibration.training_memory_rows import peak
from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.train_sizing import size_training
from tonnage.sizing.assumptions import Assumptions
from tonnage.units import to_gib
from tonnage.workload.jobs import Constraints, TrainJob

SAMPLE = Path(__file__).parent.parent / "data" / "training_throughput.csv"
FACTS = Path(os.environ.get("TONNAGE_FACTS", "")) / "training_calibration.csv"
ROOMY = replace(Assumptions(), memory_margin_fraction=-1e6)  # rows ran: whether they fit is not asked here


def judged_cases(path: Path, catalog: Catalog) -> Iterator[TrainingCase]:
    for row in kind_named("training").read(path, catalog):
        case = row if isinstance(row, SkippedRow) else time_case(row, catalog, ROOMY)
        if not isinstance(case, SkippedRow):
            yield case


def forced(case: TrainingCase) -> TrainJob:
    """The job of a case as a workload with `layout:` says it."""
    layout = case.layouts.row(0)
    micro = float(case.layouts.micro_batch[0])  # a batch in tokens is no whole number of sentences
    return replace(
        case.jobs[0], nodes=layout.nodes, gpus=layout.gpus, data_parallel=layout.data_parallel,
        tensor_parallel=layout.tensor_parallel, pipeline_parallel=layout.pipeline_parallel,
        context_parallel=layout.context_parallel, sharding=layout.sharding, recompute=layout.recompute,
        micro_batch=micro, accumulation=layout.accumulation,
        global_batch=layout.data_parallel * micro * layout.accumulation,
    )  # type: ignore[arg-type]  # fmt: skip


def planned(case: TrainingCase) -> tuple[float, float] | None:
    """Step time, s, and memory needed, GiB, of the plan; None where the row has no layout of full machines."""
    job = forced(case)
    calibrated = CalibratedModel(assumed=ROOMY, engines={}, intervals=CalibratedModel.of(None).intervals)
    sized = size_training(
        job, [case.machine], Constraints(max_nodes=10**6, accept_risk=("memory",)), calibrated, case.trainer
    )
    if not len(sized.machine):
        return None
    run = sized.detail(0)
    assert run.time_s is not None
    assert run.memory_gib is not None
    return dict(run.rates)["samples_per_s"].value, run.memory_gib.value


def same_by_both(path: Path, catalog: Catalog) -> tuple[int, int]:
    """How many rows came out the same, and how many no workload can say (two models in one step, half-full nodes)."""
    same, unsaid = 0, 0
    for case in judged_cases(path, catalog):
        found = None if len(case.jobs) > 1 or case.gpus % case.machine.count else planned(case)
        if found is None:
            unsaid += 1
            continue
        samples_per_s, memory_gib = found
        step_s = float(predicted_step(case, ROOMY).total_s[0])
        assert samples_per_s == pytest.approx(case.samples / step_s, rel=1e-9), case.row.id
        assert memory_gib == pytest.approx(to_gib(float(peak(case, ROOMY).bytes("needed")[0])), rel=1e-9), case.row.id
        same += 1
    return same, unsaid


def test_a_sample_of_rows_is_predicted_alike_by_plan_and_validate(catalog: Catalog) -> None:
    """Time and memory of every sample row are the same by `validate` and by a plan with the row's layout forced."""
    same, unsaid = same_by_both(SAMPLE, catalog)
    assert same >= 20
    assert unsaid <= 2


@pytest.mark.facts
@pytest.mark.skipif(not FACTS.is_file(), reason="TONNAGE_FACTS names no folder with training_calibration.csv")
def test_every_row_is_predicted_alike_by_plan_and_validate(catalog: Catalog) -> None:
    """The same of every judged row of the facts but those that no workload can say."""
    same, unsaid = same_by_both(FACTS, catalog)
    assert same > 900
    assert unsaid < 60
