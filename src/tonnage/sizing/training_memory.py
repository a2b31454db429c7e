"""Peak memory of a training step per device, component by component, over columns of layouts."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
from tonnage.sizing.rates import total_kept_bytes
from tonnage.sizing.stages import Stage
from tonnage.sizing.training_job import (
    ParameterShare,
    has_vocabulary_loss,
    longest_tokens,
    parameter_share,
    training_stages,
)
from tonnage.units import from_gib
from tonnage.workload.jobs import TrainJob

ZERO1, ZERO2, ZERO3 = (SHARDINGS.index(name) for name in ("zero1", "zero2", "zero3"))
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
    def total_bytes(self) -> Array:
        total: Array = np.sum([getattr(self, field.name) for field in fields(self)], axis=0, dtype=np.float64)
        return total

    def components(self, index: int) -> dict[str, float]:
        """Component -> bytes of one row, without the `_bytes` suffix, zeros left out."""
        named = {field.name.removesuffix("_bytes"): float(getattr(self, field.name)[index]) for field in fields(self)}
        return {name: size for name, size in named.items() if size > 0}


def estimate_training_memory(job: TrainJob, layouts: Layouts, assumed: Assumptions | None = None) -> TrainingMemory:
    """Memory of `job` under each layout, bytes per device, longest sequence.

    State follows ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, figure 1): optimizer, then gradients, then weights
    divide by the data-parallel degree. Activations follow Korthikanti et al. 2022 (arXiv:2205.05198). Leaves out
    CPU offload, context parallelism and interleaved schedules.
    """
    assumed = assumed or Assumptions()
    numbers = TRAINING[job.precision]
    share = parameter_share(job, layouts)
    stages = training_stages(job, layouts, length=float(job.lengths.maximum), numbers=numbers)
    rows = len(layouts.nodes)
    state = _state(job, layouts, share, numbers)
    activations = _activations(stages, layouts, numbers, job)
    logits = _logits(job, layouts, assumed)
    workspace = column(from_gib(assumed.library_workspace_gib), rows)
    state["gradients_bytes"] = _gradients_at_peak(state["gradients_bytes"], activations + logits, layouts)
    allocated = sum(state.values(), start=np.zeros(rows)) + activations + logits + workspace
    several = np.where(layouts.gpus > 1, assumed.collective_buffers_gib, 0.0)
    return TrainingMemory(
        **state,
        activations_bytes=activations,
        logits_bytes=logits,
        workspace_bytes=workspace,
        fragmentation_bytes=allocated * assumed.fragmentation_fraction,
        context_bytes=column(from_gib(1.0) * (assumed.runtime_context_gib + several), rows),
    )


def _state(job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers) -> dict[str, Array]:
    """Weights, gradients, optimizer state, adapters, gathered layers and DDP buckets."""
    rows, dp = len(layouts.nodes), layouts.data_parallel
    optimizer_cut = np.where(layouts.sharding >= ZERO1, dp, 1.0)
    gradient_cut = np.where(layouts.sharding >= ZERO2, dp, 1.0)
    weight_cut = np.where(layouts.sharding >= ZERO3, dp, 1.0)
    trained = share.trained
    full = job.method == "full"
    weights = trained * numbers.weight_bytes if full else share.frozen * _frozen_weight_bytes(job)
    copies = trained * numbers.weight_copy_bytes if full else 0.0
    optimizer = optimizer_bytes_per_parameter(job.optimizer, numbers.optimizer_element_bytes, job.model.hidden)
    gradients = trained * numbers.gradient_bytes / gradient_cut
    buckets = np.where((layouts.sharding < ZERO2) & (dp > 1), trained * numbers.gradient_bytes, 0.0)
    gathered = np.where(
        layouts.sharding >= ZERO3,
        2.0 * share.per_layer * numbers.element_bytes + share.outer * numbers.element_bytes,
        copies,
    )
    return {
        "weights_bytes": column(weights / weight_cut, rows),
        "gradients_bytes": column(gradients, rows),
        "optimizer_bytes": column(trained * optimizer / optimizer_cut, rows),
        "adapters_bytes": column(0.0 if full else trained * numbers.weight_bytes / weight_cut, rows),
        "working_weights_bytes": column(gathered, rows),
        "buckets_bytes": column(buckets, rows),
    }


def _gradients_at_peak(gradients: Array, freed: Array, layouts: Layouts) -> Array:
    """Gradients that add to the peak. Backward frees activations (and logits) while it makes gradients, so with one
    micro-batch a step the larger of the two counts; with accumulation the sums stand from the second one on."""
    return np.where(layouts.accumulation > 1, gradients, np.maximum(gradients - freed, 0.0))


def _frozen_weight_bytes(job: TrainJob) -> float:
    """Bytes per weight of a frozen base: 4-bit for QLoRA, else 16 bit (32 in full precision)."""
    if job.method == "qlora":
        return NF4_BYTES_PER_PARAMETER
    return 4.0 if job.precision in ("fp32", "tf32") else 2.0


def _activations(stages: list[Stage], layouts: Layouts, numbers: TrainingNumbers, job: TrainJob) -> Array:
    """Kept for backward by the layers of the first pipeline stage, whose micro-batches in flight are the most.

    Full recomputation keeps each layer's input and one layer's own activations; selective drops the score matrices.
    """
    rows = len(layouts.nodes)
    in_flight = np.minimum(layouts.pipeline_parallel, layouts.accumulation)
    total: Num = np.zeros(rows)
    for stage in stages:
        kept = total_kept_bytes(stage.operators)
        if not stage.layered:
            total = total + kept * stage.repeats * in_flight
            continue
        scores = total_kept_bytes(op for op in stage.operators if op.name.endswith("softmax"))
        tokens = layouts.micro_batch * longest_tokens(job)
        boundary = numbers.residual_bytes * tokens * job.model.hidden / layouts.tensor_parallel
        here = np.ceil(stage.repeats / layouts.pipeline_parallel)
        none = kept * here * in_flight
        selective = (kept - scores) * here * in_flight + scores
        full = boundary * here * in_flight + kept
        total = total + np.select(
            [layouts.recompute == FULL, layouts.recompute == SELECTIVE], [full, selective], default=none
        )
    return column(total, rows)


def _logits(job: TrainJob, layouts: Layouts, assumed: Assumptions) -> Array:
    """Logits, their fp32 copy, log-softmax and gradient at the start of backward."""
    if not has_vocabulary_loss(job):
        return np.zeros(len(layouts.nodes))
    tokens = layouts.micro_batch * longest_tokens(job)
    return tokens * job.model.vocab / layouts.tensor_parallel * assumed.loss_bytes_per_logit
