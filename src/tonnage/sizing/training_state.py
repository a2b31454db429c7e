"""Bytes of training that do not depend on the batch: weights, gradients, optimizer state, copies, gathered layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS, Layouts
from tonnage.sizing.precision import (
    TRAINING,
    TrainingNumbers,
    optimizer_bytes_per_parameter,
)
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_job import ParameterShare, has_vocabulary_loss
from tonnage.values import dataclass
from tonnage.workload.jobs import TrainJob

ZERO1, ZERO2, ZERO3 = (SHARDINGS.index(name) for name in ("zero1", "zero2", "zero3"))
FULL, PER_OP = RECOMPUTES.index("full"), RECOMPUTES.index("per-op")
MASTER_BYTES = 4.0  # fp32 master weights beside 16-bit ones
HALF = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Bytes per device, one row per layout."""

    weights: Array
    gradients: Array
    optimizer: Array
    adapters: Array
    working_weights: Array  # low-precision copies (autocast), or weights that are gathered while they are used
    casting: (
        Array  # 16-bit copies of recomputed layers that forward leaves in a cache, beyond those of `working_weights`
    )
    buckets: Array  # DDP's copy of the gradients
    reducing: Array  # whole gradients that FSDP holds while a layer runs backward
    reducing_last: Array  # the same at the end, of the tables
    sending: Array  # the largest buffer that FSDP sends gradients in, on a stream of its own
    sending_layer: Array  # the one of a layer, which `reducing` holds
    stepping: Array  # what the optimizer makes while it steps
    head: Array  # gradients of the vocabulary projection while they are made, where none is kept to the end


def training_state(job: TrainJob, layouts: Layouts, share: ParameterShare, trainer: TrainerProfile) -> TrainingState:
    """State of `job` under each layout.

    Sharding follows ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, figure 1): optimizer, then gradients, then weights
    divide by the data-parallel degree, with what their frameworks add (`_gradients`, `_gathered`).
    """
    numbers = trained_numbers(job, trainer)
    rows, dp = len(layouts.nodes), layouts.data_ranks
    weight_cut = np.where(layouts.sharding >= ZERO3, dp, 1.0)
    optimizer_cut = np.where(layouts.sharding >= ZERO1, dp, 1.0)
    full, trained = job.method == "full", share.trained
    weights = trained * numbers.weight_bytes if full else frozen_bytes(job, layouts, share, trainer)
    optimizer = optimizer_bytes_per_parameter(job.optimizer, numbers.optimizer_element_bytes, job.model.hidden)
    kept = trained * (optimizer + _master_bytes(numbers, trainer)) / optimizer_cut
    bucketed = (layouts.sharding < ZERO2) & (dp > 1) & (trainer.state == "autocast")
    on_device = 0.0 if trainer.offloaded_state else 1.0
    optimizer_here = 0.0 if trainer.offloaded_optimizer else on_device
    layer, last, sending, of_layer = _reducing(job, layouts, share, numbers, trainer)
    return TrainingState(
        weights=column(weights / weight_cut, rows) * on_device,
        gradients=column(_gradients(layouts, trained, numbers, trainer), rows) * on_device,
        optimizer=column(kept, rows) * optimizer_here,
        adapters=column(0.0 if full else trained * numbers.weight_bytes / weight_cut, rows),
        working_weights=column(_working(job, layouts, share, numbers, trainer), rows),
        casting=column(_casting(job, layouts, share, numbers, trainer), rows),
        buckets=column(np.where(bucketed, trained * numbers.gradient_bytes, 0.0), rows),
        reducing=column(layer, rows),
        reducing_last=column(last, rows),
        sending=column(sending, rows),
        sending_layer=column(of_layer, rows),
        stepping=column(_stepping(job, layouts, trained / optimizer_cut, numbers, trainer), rows) * optimizer_here,
        head=column(_head_gradients(job, layouts, share, numbers, trainer), rows) * on_device,
    )


def trained_numbers(job: TrainJob, trainer: TrainerProfile) -> TrainingNumbers:
    """Bytes of what is trained. Adapters are held as their library does (peft: 32 bit, whatever the base). A cast model
    stores 16-bit weights and gradients."""
    numbers = TRAINING[job.precision]
    if job.method != "full":
        width = max(trainer.adapter_bytes, numbers.element_bytes)
        return replace(numbers, weight_bytes=width, gradient_bytes=width, optimizer_element_bytes=width)
    if trainer.state != "autocast" and numbers.weight_copy_bytes:
        return replace(numbers, weight_bytes=HALF, weight_copy_bytes=0.0, gradient_bytes=HALF)
    return numbers


FP32_BYTES = 4.0


def mixed(job: TrainJob) -> bool:
    """Whether products run in fewer bits than weights are held in (autocast)."""
    return TRAINING[job.precision].weight_copy_bytes > 0


def base_bytes(job: TrainJob, trainer: TrainerProfile) -> float:
    """Bytes of a frozen weight that is not quantised: as stated; else 32 bit in full precision, 16 bit otherwise.
    The tables of a 4-bit base: as its library leaves them (peft's `prepare_model_for_kbit_training`: 32 bit)."""
    if job.method == "qlora":
        return trainer.table_bytes
    return trainer.frozen_bytes or (FP32_BYTES if job.precision in ("fp32", "tf32") else HALF)


def frozen_bytes(job: TrainJob, layouts: Layouts, share: ParameterShare, trainer: TrainerProfile) -> Array:
    """Bytes of a frozen base before sharding; QLoRA has 4-bit layers."""
    if job.method == "qlora":
        tables = share.outer - quantised_head(job, layouts, trainer)
        return (share.frozen - tables) * trainer.four_bit_bytes + tables * trainer.table_bytes
    return share.frozen * base_bytes(job, trainer)


def _master_bytes(numbers: TrainingNumbers, trainer: TrainerProfile) -> float:
    """32-bit weights beside 16-bit ones, and the 32-bit gradients the optimizer steps with (a program that plans its
    memory ahead gives these the room of dead activations), with the flat copy that some are made from."""
    if trainer.state == "autocast" or numbers.weight_bytes >= MASTER_BYTES:
        return 0.0
    flat = numbers.gradient_bytes if trainer.flat_gradients else 0.0
    return MASTER_BYTES if trainer.planned_memory else 2.0 * MASTER_BYTES + flat


def _gradients(layouts: Layouts, trained: Array, numbers: TrainingNumbers, trainer: TrainerProfile) -> Num:
    """Gradients that are held at the end of backward. FSDP keeps them whole between the stages of a pipeline (they are
    reduced once a step), and where accumulation skips the reduction (`no_sync`, as the Trainer of transformers does:
    trainer.py, `training_step` under `accelerator.no_sync`) adds 16-bit ones of all weights."""
    shares = layouts.sharding >= ZERO2
    kept = trained * numbers.gradient_bytes / np.where(shares, layouts.data_ranks, 1.0)
    if trainer.state != "autocast":
        return kept
    whole = shares & (layouts.accumulation > 1) & (layouts.pipeline_parallel == 1) & trainer.no_sync
    kept = kept + np.where(whole, trained * min(numbers.element_bytes, numbers.gradient_bytes), 0.0)
    piped = (layouts.sharding >= ZERO3) & (layouts.pipeline_parallel > 1)
    return np.where(piped, trained * numbers.gradient_bytes, kept)


def _working(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> Num:
    casts = _casts(job, layouts, share, numbers, trainer)
    gathered = _gathered(job, layouts, share, numbers, trainer)
    return np.where(layouts.sharding >= ZERO3, gathered + (casts if trainer.wide_gathers else 0.0), casts)


def passing_bytes(job: TrainJob, numbers: TrainingNumbers, trainer: TrainerProfile) -> float:
    """Of a weight that FSDP gathers: as products take it, or as it is held where nothing narrows it on the way."""
    if not trainer.wide_gathers:
        return numbers.element_bytes
    return numbers.weight_bytes if job.method == "full" else base_bytes(job, trainer)


def _gathered(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> Num:
    """FSDP holds the layer in use and the next one whole, and the tables throughout unless they are units of their own;
    all of them between the stages of a pipeline (torchtitan: `reshard_after_forward` False with pipeline parallel),
    and, in its first version, all frozen weights once used (no gradient, so nothing frees them in backward)."""
    element = passing_bytes(job, numbers, trainer)
    layer = trainer.four_bit_bytes if job.method == "qlora" else element
    tables = 0.0 if trainer.tables_apart else share.outer
    passing = 2.0 * share.per_layer * layer + tables * element
    if trainer.tables_apart:  # the head, while the first layers of backward are fetched
        passing = np.maximum(passing, share.per_layer * layer + _head(job, layouts) * element)
    every = share.trained * element + (frozen_bytes(job, layouts, share, trainer) if job.method != "full" else 0.0)
    stays = (layouts.pipeline_parallel > 1) & (trainer.state == "autocast")
    if job.method != "full" and trainer.keeps_gathered:
        stays = np.ones_like(stays)
    return np.where(stays, np.maximum(every, passing), passing)


def _reducing(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> tuple[Num, Num, Num, Num]:
    """Gradients that FSDP holds whole: those of the layer at work and what it sends of them, in a buffer of its own, as
    wide as they are summed (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_reduce`:
    `reduce_scatter_input`), beside those of the head, whose unit is the last to finish; at the end those of embedding
    and head with their buffer and weights. And the largest of those buffers, and a layer's."""
    shards = (layouts.sharding >= ZERO3) & (layouts.data_ranks > 1) & (layouts.pipeline_parallel == 1)
    if job.method != "full" or trainer.state != "autocast":
        return 0.0, 0.0, 0.0, 0.0
    element, head = passing_bytes(job, numbers, trainer), _head(job, layouts)
    sent = max(element, FP32_BYTES) if trainer.wide_reduction else element
    waiting = 0.0 if trainer.tables_apart else np.minimum(head, share.outer)
    last = np.minimum(head, share.outer) if trainer.tables_apart else share.outer
    layer = (element + sent) * share.per_layer + element * waiting
    ending, largest = (2.0 * element + sent) * last, sent * np.maximum(share.per_layer, last)
    found = (np.where(shards, one, 0.0) for one in (layer, ending, largest, sent * share.per_layer))
    return next(found), next(found), next(found), next(found)


def _head(job: TrainJob, layouts: Layouts) -> Num:
    """Parameters of the vocabulary projection on a device."""
    if not has_vocabulary_loss(job):
        return 0.0
    return job.model.vocab * job.model.embedding_width / layouts.tensor_parallel


def _head_gradients(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> Num:
    """Of an optimizer that steps in backward: the head's gradient, and where logits are made in parts the newest part's
    beside the sum of those before (torch/csrc/autograd/input_buffer.cpp)."""
    if job.method != "full" or not trainer.gradients_in_backward:
        return 0.0
    copies = 2.0 if trainer.loss_parts > 1 else 1.0
    return np.minimum(_head(job, layouts), share.outer) * numbers.gradient_bytes * copies


def quantised_head(job: TrainJob, layouts: Layouts, trainer: TrainerProfile) -> Num:
    """Parameters of a head that is a 4-bit layer of its own."""
    if job.method != "qlora" or not trainer.quantised_head or job.model.tied_embeddings:
        return 0.0
    return _head(job, layouts)


def _casts(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> Num:
    """16-bit copies of 32-bit matrices, kept from forward to backward (autocast); where layers are recomputed only
    those of one layer and of the head are there. Tables that are looked up have none."""
    copy = numbers.weight_copy_bytes
    if job.method == "qlora" or not copy or (job.method != "full" and base_bytes(job, trainer) < FP32_BYTES):
        return 0.0
    layered = (share.trained if job.method == "full" else share.frozen) - share.outer
    again = (layouts.recompute == FULL) | (layouts.recompute == PER_OP)
    return copy * (np.where(again, share.per_layer, layered) + np.minimum(_head(job, layouts), share.outer))


def _casting(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> Num:
    if job.method != "full" or trainer.state != "autocast" or not numbers.weight_copy_bytes:
        return 0.0  # autocast keeps no copy of a weight that asks for no gradient
    again = ((layouts.recompute == FULL) | (layouts.recompute == PER_OP)) & (layouts.pipeline_parallel == 1)
    layered = np.maximum(share.trained - share.outer - share.per_layer, 0.0)
    return np.where(again & (layouts.sharding < ZERO3), numbers.weight_copy_bytes * layered, 0.0)


def _stepping(
    job: TrainJob, layouts: Layouts, updated: Array, numbers: TrainingNumbers, trainer: TrainerProfile
) -> Num:
    """AdamW over lists of tensors (`foreach`, PyTorch's default on a GPU) makes the root of the second moment for all
    weights at once (torch.optim.AdamW: «uses ~ sizeof(params) more peak memory»); a fused one does not, nor one that
    steps tensor by tensor."""
    if job.optimizer != "adamw" or trainer.state != "autocast" or trainer.gradients_in_backward:
        return 0.0
    if trainer.optimizer_by_tensor:
        return 0.0
    shared_out = (layouts.sharding >= ZERO2) & (layouts.data_ranks > 1) & trainer.lists_when_sharded
    return np.where(shared_out | (not trainer.optimizer_fused), updated * numbers.optimizer_element_bytes, 0.0)
