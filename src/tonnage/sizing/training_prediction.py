"""The prediction of a training step: one function for plans, `size` and `validate` alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Num
from tonnage.sizing.layouts import Layouts
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_memory import TrainingMemory, estimate_training_memory
from tonnage.sizing.training_time import TrainingStep, step_seconds
from tonnage.sizing.training_work import StepWork, added, step_work
from tonnage.values import dataclass
from tonnage.workload.jobs import TrainJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPrediction:
    """Seconds and bytes per device of one optimizer step, one row per layout."""

    step: TrainingStep
    memory: TrainingMemory


def predict_training(
    jobs: Sequence[TrainJob],
    layouts: Layouts,
    devices: Devices,
    assumed: Assumptions,
    trainer: TrainerProfile | None = None,
) -> TrainingPrediction:
    """What one step takes under each layout on its devices. Several jobs are models trained in one step, side by side
    (a generator and a discriminator). Without `trainer` each has the habits of its own program."""
    return TrainingPrediction(
        step=step_seconds(work_of(jobs, layouts, trainer), devices, assumed),
        memory=peak_memory(jobs, layouts, assumed, trainer, devices.channel_share, devices.generation),
    )


def work_of(jobs: Sequence[TrainJob], layouts: Layouts, trainer: TrainerProfile | None = None) -> StepWork:
    """The work of one step of all jobs."""
    return reduce(added, (step_work(job, layouts, trainer) for job in jobs))


def peak_memory(
    jobs: Sequence[TrainJob],
    layouts: Layouts,
    assumed: Assumptions,
    trainer: TrainerProfile | None = None,
    channels: Num | None = None,
    generation: Num | None = None,
) -> TrainingMemory:
    """The peak of one step of all jobs, part by part. `channels`, `generation`: as `estimate_training_memory` takes
    them."""
    parts = (estimate_training_memory(job, layouts, assumed, trainer, channels, generation) for job in jobs)
    return reduce(_summed, parts)


def _summed(first: TrainingMemory, second: TrainingMemory) -> TrainingMemory:
    """The parts of two models in one process, which has one runtime and one workspace."""
    once = ("workspace_bytes", "context_bytes")
    both = {name: (getattr(first, name), getattr(second, name)) for name in TrainingMemory.__dataclass_fields__}
    return TrainingMemory(
        **{name: np.maximum(*pair) if name in once else pair[0] + pair[1] for name, pair in both.items()}
    )
