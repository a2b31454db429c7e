"""Steps that only tests ask for by themselves: a prefill, a step of one prompt, a training step from a job."""

from __future__ import annotations

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_time import forward_s
from tonnage.sizing.layouts import Layouts
from tonnage.sizing.step_times import DecoderTimes
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_time import TrainingStep, step_seconds
from tonnage.sizing.training_work import step_work
from tonnage.workload.jobs import TrainJob
from tonnage.workload.shapes import ModelShape


def prefill_s(
    shape: ModelShape,
    devices: Devices,
    *,
    batch: Num,
    input_tokens: Num,
    weights: str,
    engine: Engine,
    tensor_parallel: Num = 1.0,
) -> Array:
    """Seconds to read `batch` prompts and produce their first token (without queueing)."""
    return forward_s(
        shape,
        devices,
        batch=batch,
        query=input_tokens,
        keys=input_tokens,
        weights=weights,
        tensor_parallel=tensor_parallel,
        logit_tokens=batch,
        engine=engine,
    )


def prefill_step_s(times: DecoderTimes, tokens: int) -> float:
    """Seconds of a step that reads one whole prompt and nothing else."""
    return times.decode_s[0][0] + times.linear_s[tokens] + times.chunk_attention_s(tokens, tokens)


def estimate_training_step(
    job: TrainJob,
    layouts: Layouts,
    devices: Devices,
    assumed: Assumptions | None = None,
    trainer: TrainerProfile | None = None,
) -> TrainingStep:
    """Time of one step of `job` under each layout, seconds."""
    return step_seconds(step_work(job, layouts, trainer), devices, assumed or Assumptions())
