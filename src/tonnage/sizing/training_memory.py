"""Peak memory of a training step per device, component by component, over columns of layouts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS, Layouts
from tonnage.sizing.precision import (
    NF4_BYTES_PER_PARAMETER,
    TRAINING,
    TrainingNumbers,
    optimizer_bytes_per_parameter,
)
from tonnage.sizing.program_practice import practice_of
from tonnage.sizing.rates import total_kept_bytes
from tonnage.sizing.stages import Stage
from tonnage.sizing.training_job import (
    ParameterShare,
    has_vocabulary_loss,
    longest_tokens,
    parameter_share,
    training_stages,
)
from tonnage.sizing.training_practice import Practice
from tonnage.units import from_gib
from tonnage.workload.jobs import TrainJob

ZERO1, ZERO2, ZERO3 = (SHARDINGS.index(name) for name in ("zero1", "zero2", "zero3"))
MASTER_BYTES = 4.0  # fp32 master weights beside 16-bit ones
SELECTIVE, FULL = RECOMPUTES.index("selective"), RECOMPUTES.index("full")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Bytes per device at the peak of a step, one row per layout. The total is what the device shows (`nvidia-smi`);
    `allocated_bytes` what the framework's allocator counts, `reserved_bytes` what it holds."""

    weights_bytes: Array
    gradients_bytes: Array  # those that stand beside the activations at the peak
    optimizer_bytes: Array
    adapters_bytes: Array
    working_weights_bytes: Array  # low-precision copies (autocast), or whole layers while ZeRO-3 uses them
    activations_bytes: Array
    logits_bytes: Array
    buckets_bytes: Array  # DDP's copy of the gradients
    workspace_bytes: Array
    fragmentation_bytes: Array
    context_bytes: Array  # runtime and collective buffers, outside the allocator

    @property
    def allocated_bytes(self) -> Array:
        return self.total_bytes - self.fragmentation_bytes - self.context_bytes

    @property
    def reserved_bytes(self) -> Array:
        return self.total_bytes - self.context_bytes

    @property
    def needed_bytes(self) -> Array:
        """What must fit: under pressure the allocator hands its cached blocks back before it fails, so fragmentation
        shows on the device but does not decide."""
        return self.total_bytes - self.fragmentation_bytes

    @property
    def total_bytes(self) -> Array:
        return reduce(np.add, (getattr(self, field.name) for field in fields(self)))

    def components(self, index: int) -> dict[str, float]:
        """Component -> bytes of one row, without the `_bytes` suffix, zeros left out."""
        named = {field.name.removesuffix("_bytes"): float(getattr(self, field.name)[index]) for field in fields(self)}
        return {name: size for name, size in named.items() if size > 0}


def estimate_training_memory(
    job: TrainJob, layouts: Layouts, assumed: Assumptions | None = None, practice: Practice | None = None
) -> TrainingMemory:
    """Memory of `job` under each layout, bytes per device, longest sequence.

    State follows ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, figure 1): optimizer, then gradients, then weights
    divide by the data-parallel degree. Activations follow Korthikanti et al. 2022 (arXiv:2205.05198). Leaves out
    what an interleaved schedule adds (its first stage holds up to 1 + (p-1)/(p·v) times the activations).
    """
    assumed = assumed or Assumptions()
    practice = practice_of(job) if practice is None else practice
    numbers = TRAINING[job.precision]
    share = parameter_share(job, layouts)
    stages = training_stages(job, layouts, length=float(job.lengths.maximum), numbers=numbers, practice=practice)
    rows = len(layouts.nodes)
    state = _state(job, layouts, share, numbers, practice)
    several = np.minimum(layouts.pipeline_parallel, layouts.accumulation)
    per_flight, once = _activations(stages, layouts, numbers, job, practice, assumed)
    first, last = per_flight * several + once, per_flight + once
    logits = _logits(job, layouts, assumed, practice)
    # With a pipeline the first stage holds the most micro-batches, the last one the logits: the fuller of the two.
    staged = layouts.pipeline_parallel > 1
    crowded = staged & (first >= last + logits)
    activations, logits = np.where(crowded, first, last), np.where(crowded, 0.0, logits)
    workspace = column(from_gib(assumed.library_workspace_gib), rows)
    freed = activations + logits
    state["gradients_bytes"] = _gradients_at_peak(state["gradients_bytes"], freed, layouts, practice)
    ranks = assumed.training_communicator_gib * _communicators(layouts)
    return TrainingMemory(
        **state,
        activations_bytes=activations,
        logits_bytes=logits,
        workspace_bytes=workspace,
        fragmentation_bytes=freed * (0.0 if practice.planned_memory else assumed.fragmentation_fraction),
        context_bytes=column(from_gib(1.0) * (assumed.runtime_context_gib + ranks), rows),
    )


def _state(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, practice: Practice
) -> dict[str, Array]:
    """Weights, gradients, optimizer state, adapters, gathered layers and DDP buckets."""
    if practice.state != "autocast" and numbers.weight_copy_bytes:
        numbers = _cast_numbers(numbers)
    rows, dp = len(layouts.nodes), layouts.data_ranks
    optimizer_cut = np.where(layouts.sharding >= ZERO1, dp, 1.0)
    gradient_cut = np.where(layouts.sharding >= ZERO2, dp, 1.0)
    weight_cut = np.where(layouts.sharding >= ZERO3, dp, 1.0)
    trained = share.trained
    full = job.method == "full"
    weights = trained * numbers.weight_bytes if full else _frozen_bytes(job, share)
    copies = trained * numbers.weight_copy_bytes if full else 0.0
    optimizer = optimizer_bytes_per_parameter(job.optimizer, numbers.optimizer_element_bytes, job.model.hidden)
    masters = _master_bytes(numbers, practice)
    gradients = trained * numbers.gradient_bytes / gradient_cut
    bucketed = (layouts.sharding < ZERO2) & (dp > 1) & (practice.state == "autocast")
    buckets = np.where(bucketed, trained * numbers.gradient_bytes, 0.0)
    gathered = np.where(
        layouts.sharding >= ZERO3,
        2.0 * share.per_layer * numbers.element_bytes + share.outer * numbers.element_bytes,
        copies,
    )
    on_device = 0.0 if practice.offloaded_state else 1.0
    kept_state = 0.0 if practice.offloaded_optimizer else on_device
    return {
        "weights_bytes": column(weights / weight_cut, rows) * on_device,
        "gradients_bytes": column(gradients, rows) * on_device,
        "optimizer_bytes": column(trained * (optimizer + masters) / optimizer_cut, rows) * kept_state,
        "adapters_bytes": column(0.0 if full else trained * numbers.weight_bytes / weight_cut, rows),
        "working_weights_bytes": column(gathered, rows),
        "buckets_bytes": column(buckets, rows),
    }


def _communicators(layouts: Layouts) -> Array:
    """Groups of ranks that a device talks in; each has channels and buffers of its own."""
    degrees = (layouts.data_ranks, layouts.tensor_parallel, layouts.pipeline_parallel)
    groups: Array = np.sum([np.where(degree > 1, 1.0, 0.0) for degree in degrees], axis=0)
    return groups


def _cast_numbers(numbers: TrainingNumbers) -> TrainingNumbers:
    """A cast model stores 16-bit weights and gradients."""
    return replace(numbers, weight_bytes=2.0, weight_copy_bytes=0.0, gradient_bytes=2.0)


def _master_bytes(numbers: TrainingNumbers, practice: Practice) -> float:
    """32-bit weights beside 16-bit ones, and the 32-bit gradients the optimizer steps with (a program that plans its
    memory ahead gives these the room of dead activations)."""
    if practice.state == "autocast" or numbers.weight_bytes >= MASTER_BYTES:
        return 0.0
    return MASTER_BYTES if practice.planned_memory else 2.0 * MASTER_BYTES


def _gradients_at_peak(gradients: Array, freed: Array, layouts: Layouts, practice: Practice) -> Array:
    """Gradients that add to the peak. Backward frees activations (and logits) while it makes gradients, so with one
    micro-batch a step the larger of the two counts; with accumulation the sums stand from the second one on, and a
    program with gradient buffers of its own keeps them always."""
    if practice.gradients_in_backward:
        return np.zeros_like(gradients)
    standing = (layouts.accumulation > 1) | (practice.state == "megatron")
    return np.where(standing, gradients, np.maximum(gradients - freed, 0.0))


def _frozen_bytes(job: TrainJob, share: ParameterShare) -> Array:
    """Bytes of a frozen base: 16 bit (32 in full precision); QLoRA has 4-bit layers and leaves the tables at 16 bit."""
    if job.method == "qlora":
        return (share.frozen - share.outer) * NF4_BYTES_PER_PARAMETER + share.outer * 2.0
    return share.frozen * (4.0 if job.precision in ("fp32", "tf32") else 2.0)


def _activations(
    stages: list[Stage],
    layouts: Layouts,
    numbers: TrainingNumbers,
    job: TrainJob,
    practice: Practice,
    assumed: Assumptions,
) -> tuple[Array, Array]:
    """Kept for backward by one pipeline stage: for each micro-batch in flight, and once.

    Full recomputation keeps each layer's input (on the host, where activations are offloaded) and one layer's own
    activations; selective drops the score matrices. A compiler makes cheap point-wise results again instead of keeping
    them.
    """
    rows = len(layouts.nodes)
    residual = numbers.element_bytes if practice.thin_residual else numbers.residual_bytes
    cut = layouts.tensor_parallel if practice.sequence_parallel else 1.0
    tokens = layouts.micro_batch * longest_tokens(job) / layouts.context_parallel
    offloaded = 0.0 if practice.offloaded_activations else 1.0
    boundary = residual * tokens * job.model.hidden / cut * offloaded
    full, selective = layouts.recompute == FULL, layouts.recompute == SELECTIVE
    flying: Num = np.zeros(rows)
    once: Num = np.zeros(rows)
    for stage in stages:
        kept = _kept_bytes(stage, job, assumed, practice)
        if not stage.layered:
            flying = flying + kept * stage.repeats
            continue
        scores = total_kept_bytes(op for op in stage.operators if op.scores and op.kind == "elementwise")
        here = np.ceil(stage.repeats / layouts.pipeline_parallel)
        again = np.where(selective, scores, 0.0)
        flying = flying + here * np.where(full, boundary, kept - again)
        once = once + np.where(full, kept, again)
    return column(flying, rows), column(once, rows)


def _kept_bytes(stage: Stage, job: TrainJob, assumed: Assumptions, practice: Practice) -> Num:
    kept = total_kept_bytes(stage.operators) * practice.kept_factor
    if not job.compile:
        return kept
    pointwise = total_kept_bytes(op for op in stage.operators if op.kind == "elementwise" and not op.scores)
    return kept - pointwise * (1.0 - assumed.compiled_kept_fraction)


def _logits(job: TrainJob, layouts: Layouts, assumed: Assumptions, practice: Practice) -> Array:
    """Logits, their fp32 copy, log-softmax and gradient at the start of backward."""
    if not has_vocabulary_loss(job):
        return np.zeros(len(layouts.nodes))
    compiled = assumed.compiled_loss_bytes_per_logit if job.compile else assumed.loss_bytes_per_logit
    per_logit = practice.loss_bytes or compiled
    target = practice.target_tokens or longest_tokens(job) / layouts.context_parallel
    tokens = layouts.micro_batch * target * practice.logit_share
    return tokens * job.model.vocab / layouts.tensor_parallel * per_logit
