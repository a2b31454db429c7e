"""What time and memory of training both read off a job: parameter shares per device, and the forward stages."""

from __future__ import annotations

from typing import Final

import numpy as np

from tonnage.sizing.estimates import Array
from tonnage.sizing.layouts import Layouts
from tonnage.sizing.operators import Pass
from tonnage.sizing.precision import TrainingNumbers
from tonnage.sizing.stages import Stage, forward_stages, image_tokens
from tonnage.sizing.trainer_profile import PLAIN, TrainerProfile
from tonnage.values import dataclass
from tonnage.workload.adapters import adapter_parameters
from tonnage.workload.jobs import TrainJob
from tonnage.workload.parameters import count_parameters

# Bytes that a plain cross entropy moves for a logit, a third of forward and backward, by the bytes of an activation:
# the block softmax reads its row three times and writes it (PyTorch, SoftMax.cu), the loss fills a gradient of zeros,
# its backward reads three times and writes, in 32 bit: 36; casts there and back beside 16-bit logits: 12 more.
PLAIN_LOSS_MOVED: Final = {2.0: 16.0, 4.0: 12.0}


def has_vocabulary_loss(job: TrainJob) -> bool:
    """Whether logits over the vocabulary are computed for every token: language modelling, not classification."""
    if job.model.architecture in ("vision-transformer", "convolution"):
        return False
    objective = job.objective or ("classification" if job.model.architecture == "encoder" else "language-model")
    return objective == "language-model"


def longest_tokens(job: TrainJob) -> float:
    """Tokens of the longest sequence (an image's patches)."""
    if job.model.architecture == "vision-transformer":
        return image_tokens(job.model)
    return float(job.lengths.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterShare:
    """Parameters on the fullest device before sharding: those trained, those frozen, one layer's, and the rest."""

    trained: Array
    frozen: Array
    per_layer: Array
    outer: Array  # embeddings and heads


def parameter_share(job: TrainJob, layouts: Layouts) -> ParameterShare:
    """Tensor parallelism divides every matrix; the pipeline divides layers, and its first stage holds the embedding."""
    count = count_parameters(job.model)
    layers = max(job.model.layers + job.model.encoder_layers, 1)
    per_layer = np.asarray(count.per_layer / layouts.tensor_parallel)
    outer_total = count.total - count.per_layer * (1 if job.model.shared_layers else layers)
    here = np.ceil(layers / layouts.pipeline_parallel)
    if job.model.shared_layers:
        here = np.ones_like(here)
    outer = outer_total / layouts.tensor_parallel * np.ones_like(here)
    base = per_layer * here + outer
    if job.method == "full":
        return ParameterShare(trained=base, frozen=np.zeros_like(base), per_layer=per_layer, outer=outer)
    adapters = adapter_parameters(job.model, job.lora)
    adapters_here = adapters / layouts.tensor_parallel * here / layers
    return ParameterShare(trained=adapters_here, frozen=base, per_layer=per_layer, outer=outer)


def training_span(
    job: TrainJob, layouts: Layouts, *, length: float, numbers: TrainingNumbers, trainer: TrainerProfile = PLAIN
) -> Pass:
    """What one micro-batch covers at one sequence length (tokens), and how wide its elements are."""
    return Pass(
        batch=layouts.micro_batch,
        query=length / layouts.context_parallel,
        keys=min(length, trainer.document_tokens or length) + trainer.cached_tokens,
        element_bytes=numbers.element_bytes,
        residual_bytes=numbers.element_bytes if trainer.thin_residual else numbers.residual_bytes,
        weight_bytes=numbers.element_bytes,
        tensor_parallel=layouts.tensor_parallel,
        attention=job.attention,
        cached_keys=float(trainer.cached_tokens),
        sequence_parallel=trainer.sequence_parallel,
        transposed=not trainer.channels_last and numbers.element_bytes < 4.0,
        loss_bytes=trainer.loss_moved_bytes or PLAIN_LOSS_MOVED[numbers.element_bytes],
        rare_words=trainer.rare_words,
        odd_rows=not trainer.fused,
        primitives=trainer.primitives and not trainer.clustered,
        winograd=numbers.compute == "fp32",
        tensor_cores=numbers.compute != "fp32",
        half_rate=0.5 if numbers.compute == "fp8" else 1.0,
    )


def training_stages(
    job: TrainJob, layouts: Layouts, *, length: float, numbers: TrainingNumbers, trainer: TrainerProfile = PLAIN
) -> list[Stage]:
    """Forward stages of one micro-batch at one sequence length (tokens; ignored for images)."""
    span = training_span(job, layouts, length=length, numbers=numbers, trainer=trainer)
    target = trainer.target_tokens or span.query
    logit_tokens = layouts.micro_batch * target * trainer.logit_share if has_vocabulary_loss(job) else 0.0
    return forward_stages(job.model, span, logit_tokens=logit_tokens, target_tokens=trainer.target_tokens)
