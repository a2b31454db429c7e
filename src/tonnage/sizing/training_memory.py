"""Peak memory of a training step per device, component by component, over columns of layouts."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import GENERATIONS
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.layouts import Layouts
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.program_profiles import trainer_of
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_activations import Kept, kept_activations, logits_bytes
from tonnage.sizing.training_job import ParameterShare, longest_tokens, parameter_share
from tonnage.sizing.training_state import FULL, HALF, MASTER_BYTES, ZERO3, TrainingState, training_state
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import TrainJob

# Of activations that come back in the same sizes every step, lost to the rounding of blocks: reserved over allocated
# of BERT-large and ViT under transformers on an H100 (benchmarks/results, five rows: 0.022 to 0.028).
BLOCK_SHARE = 0.025
# CUDA context and every kernel of its libraries, which runtimes before lazy loading keep on the device, in the code of
# its generation: 1,343 and 1,271 MiB on a V100 (huggingface/transformers@7d5e65f, docs/source/en/
# model_memory_anatomy.md, before a model is made; bigscience-workshop/bigscience, train/tr11-176B-ml/
# chronicles-prequel.md), 1,573 MiB on an A100 (the latter). No source has others: by judgement Turing, whose libraries
# are of the same years, is taken as Volta, and all else (newer ones, Pascal, AMD) as Ampere.
VOLTA_CONTEXT_GIB, EARLY_CONTEXT_GIB = 1.28, 1.54


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Bytes per device at the peak of a step, one row per layout. The total is what the device shows (`nvidia-smi`);
    `allocated_bytes` what the framework's allocator counts, `reserved_bytes` what it holds."""

    weights_bytes: Array
    gradients_bytes: Array  # those that are beside the activations at the peak
    stepping_bytes: Array  # what the optimizer makes while it steps, where that is the peak
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """Bytes that come and go within a step: kept and logits at the end of forward, what is there at its end."""

    kept: Array
    logits: Array
    ending: Array  # gradients, and the larger of what the optimizer makes and of the last layer made again

    @property
    def highest(self) -> Array:
        return np.maximum(self.kept + self.logits, self.ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLayout:
    """What is in memory under each layout before any assumption is known: a fit lays it out once."""

    job: TrainJob
    layouts: Layouts
    trainer: TrainerProfile
    share: ParameterShare
    state: TrainingState
    kept: Kept


def lay_out_memory(job: TrainJob, layouts: Layouts, trainer: TrainerProfile | None = None) -> MemoryLayout:
    """State and kept activations of `job` under each layout, for the longest sequence."""
    trainer = trainer_of(job) if trainer is None else trainer
    share = parameter_share(job, layouts)
    state = training_state(job, layouts, share, trainer)
    kept = kept_activations(job, layouts, trainer)
    kept = replace(kept, once=kept.once + state.reducing)
    return MemoryLayout(job=job, layouts=layouts, trainer=trainer, share=share, state=state, kept=kept)


def estimate_training_memory(
    job: TrainJob,
    layouts: Layouts,
    assumed: Assumptions | None = None,
    trainer: TrainerProfile | None = None,
    channels: Num | None = None,
    generation: Num | None = None,
) -> TrainingMemory:
    """Memory of `job` under each layout, bytes per device, longest sequence. `channels`: the
    channels of its device's collectives over those of NVLink 3 (`devices.channel_share`); None: 1. `generation`: of its
    device (`devices.GENERATIONS`); None: Ampere or newer.

    A step has three peaks, and the highest counts: the loss (all that is kept, and the logits), the first layers of
    backward (all that is kept, and the layer at work), and the end (all gradients, and what the optimizer makes while
    it steps), by which time activations and logits are gone. The first stage of an interleaved schedule holds
    1 + (p-1)/(p·v) times the activations (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
    """
    return memory_under(lay_out_memory(job, layouts, trainer), assumed or Assumptions(), channels, generation)


def state_bytes(job: TrainJob, layouts: Layouts, trainer: TrainerProfile | None = None) -> Array:
    """Weights, gradients, optimizer and adapters of `job`, bytes per device: all of it is there at the end of backward,
    so that no step peaks below it."""
    trainer = trainer_of(job) if trainer is None else trainer
    state = training_state(job, layouts, parameter_share(job, layouts), trainer)
    return state.weights + state.gradients + state.optimizer + state.adapters


def memory_under(
    laid: MemoryLayout, assumed: Assumptions, channels: Num | None = None, generation: Num | None = None
) -> TrainingMemory:
    """`estimate_training_memory` of what is laid out."""
    job, layouts, trainer, share, state, kept = (
        laid.job, laid.layouts, laid.trainer, laid.share, laid.state, laid.kept,
    )  # fmt: skip
    rows = len(layouts.nodes)
    every = logits_bytes(job, layouts, assumed, trainer)
    activations, logits = _at_the_fullest_stage(kept, every, layouts, trainer)
    working = state.working_weights + _at_the_loss(state.casting, kept, every)
    activations = activations + _at_the_loss(kept.before, kept, every)
    first = np.minimum((share.per_layer + share.outer) / np.maximum(share.trained, 1.0), 1.0)
    beside = np.maximum(kept.again - first * state.gradients, state.reducing_last)
    ending = state.gradients + np.maximum(state.stepping, beside)
    moments = _Moments(kept=activations + working, logits=logits, ending=ending)
    gradients, stepping = _ending_at_peak(job, state, moments, layouts, trainer)
    again = np.where(layouts.recompute == FULL, activations, kept.again)
    ranks = assumed.training_communicator_gib * _communicators(job, layouts) * (1.0 if channels is None else channels)
    return TrainingMemory(
        weights_bytes=state.weights,
        gradients_bytes=gradients,
        stepping_bytes=stepping,
        optimizer_bytes=state.optimizer,
        adapters_bytes=state.adapters,
        working_weights_bytes=working,
        activations_bytes=activations,
        logits_bytes=logits,
        buckets_bytes=state.buckets,
        workspace_bytes=column(from_gib(assumed.library_workspace_gib), rows),
        fragmentation_bytes=_slack(job, state, moments, again, layouts, trainer, assumed),
        context_bytes=column(from_gib(1.0) * (_runtime_gib(trainer, assumed, generation) + ranks), rows),
    )


def _runtime_gib(trainer: TrainerProfile, assumed: Assumptions, generation: Num | None) -> Num:
    if not trainer.early_modules:
        return assumed.runtime_context_gib
    older = generation is not None and np.isin(generation, (GENERATIONS.index("Volta"), GENERATIONS.index("Turing")))
    return np.maximum(np.where(older, VOLTA_CONTEXT_GIB, EARLY_CONTEXT_GIB), assumed.runtime_context_gib)


# Slots that a compiler which plans memory gives what backward reads of forward, for each stage of a pipeline (OneFlow,
# oneflow/core/job_rewriter/pipeline_buffer_pass.cpp: `buffer_size = total_stage_num * 2`, on all stages but the last).
PLANNED_SLOTS = 2.0


def _at_the_fullest_stage(kept: Kept, logits: Array, layouts: Layouts, trainer: TrainerProfile) -> tuple[Array, Array]:
    """Activations and logits where they are most. With a pipeline the first stage holds the most micro-batches, the
    last one the logits."""
    stages = layouts.pipeline_parallel
    beyond = (stages - 1.0) / trainer.interleave if trainer.interleave > 1 else 0.0
    running = np.minimum(stages + beyond, layouts.accumulation)
    if trainer.planned_memory:
        running = np.where(stages > 1, PLANNED_SLOTS * stages, running)
    handing = np.where(stages > 1, kept.leaving, 0.0)
    flying = (kept.flying + kept.entering + handing) * running
    ends = kept.flying + np.where(stages > 1, 0.0, kept.entering)
    first, last = flying + kept.once, ends + np.maximum(kept.once, logits)
    crowded = (layouts.pipeline_parallel > 1) & (first >= last)
    at_loss = ~crowded & (logits > kept.once)
    activations = np.where(crowded, first, ends + np.where(at_loss, 0.0, kept.once))
    return activations, np.where(at_loss, logits, 0.0)


# Of what a plain loss takes at the start of backward, what is there at the end of forward: 16-bit logits, their 32-bit
# copy and its log-softmax, 10 bytes of 12.
FORWARD_LOSS = 10.0 / 12.0


def _at_the_loss(held: Array, kept: Kept, logits: Array) -> Array:
    """What is `held` to the end of forward alone adds to the peak: 16-bit copies of recomputed layers, which autocast
    keeps until it is left although no layer reads them in backward (PyTorch, aten/src/ATen/autocast_mode.cpp:
    `cached_cast`), and what the graph of the step before keeps until its loss is replaced."""
    added: Array = np.maximum(held + FORWARD_LOSS * logits - np.maximum(kept.once, logits), 0.0)
    return np.where(held > 0, np.minimum(added, held), 0.0)


def _ending_at_peak(
    job: TrainJob, state: TrainingState, moments: _Moments, layouts: Layouts, trainer: TrainerProfile
) -> tuple[Array, Array]:
    """Gradients, and what the optimizer makes beside them at the end of a step, as far as they add to the peak.
    Backward frees activations, logits and copies of weights while it makes gradients, so with one micro-batch a step
    the larger of the two counts; with accumulation the sums are held from the second one on, and a program with
    gradient buffers of its own, or one that sets them to zero, keeps them always. One that steps in backward has
    those of the head beside the gradients of the logits that are left."""
    freed = moments.kept + moments.logits
    if trainer.gradients_in_backward:
        left = (longest_tokens(job) * layouts.micro_batch) * (job.model.vocab / layouts.tensor_parallel)
        left = left * TRAINING[job.precision].element_bytes * (1.0 - (trainer.loss_parts > 1) / trainer.loss_parts)
        at_head = np.where(state.head > 0, np.minimum(left, moments.logits) + state.head - moments.logits, 0.0)
        return np.maximum(at_head, 0.0), np.zeros_like(freed)
    beside = np.maximum(moments.ending - freed, 0.0)
    gradients = np.where(_stand(layouts, trainer), state.gradients, np.minimum(beside, state.gradients))
    return gradients, np.maximum(beside - gradients, 0.0)


def _stand(layouts: Layouts, trainer: TrainerProfile) -> Array:
    return np.asarray((layouts.accumulation > 1) | (trainer.state == "megatron") | trainer.standing_gradients)


def _slack(
    job: TrainJob,
    state: TrainingState,
    moments: _Moments,
    again: Array,
    layouts: Layouts,
    trainer: TrainerProfile,
    assumed: Assumptions,
) -> Array:
    """What PyTorch's caching allocator holds beyond what is in use at the peak.

    It keeps blocks of the sizes that were asked for (PyTorch, notes on CUDA semantics, memory management). Those of
    many gradients serve as many activations, but not the few large tensors of the loss, which find room beside them;
    those of another stream serve nobody else: FSDP reduces gradients on its own, and keeps the buffer it sent most in.
    The block of 16-bit logits is too small for what the loss makes of them in 32 bit; only state that a first step
    makes fills it. Tensors of the loss, and those made `again` in backward among what it frees, lose a share to each
    other.
    """
    if trainer.planned_memory:
        return np.zeros_like(moments.kept)
    ending = np.where(trainer.gradients_in_backward, 0.0, moments.ending)
    apart = (layouts.sharding >= ZERO3) & (trainer.state == "autocast") & (layouts.data_ranks > 1)
    many = np.maximum(moments.kept + np.where(apart, state.gradients, 0.0), ending)
    standing = np.where(_stand(layouts, trainer), state.gradients, 0.0)
    beside = np.maximum(many + moments.logits - np.maximum(moments.kept + moments.logits, ending), 0.0)
    lost = (moments.logits + again) * assumed.fragmentation_fraction + moments.kept * BLOCK_SHARE
    narrow = np.maximum(moments.logits * _narrow_share(job, trainer, assumed) - state.optimizer, 0.0)
    sent = state.sending - np.where(moments.logits > 0, 0.0, state.sending_layer)
    slack: Array = np.maximum(beside - standing, 0.0) + lost + narrow + sent
    return slack


def _narrow_share(job: TrainJob, trainer: TrainerProfile, assumed: Assumptions) -> float:
    """16-bit logits over all that a plain loss makes of them; 0 where it takes them as they are."""
    compiled = job.compile and not trainer.layers_compiled
    widened = TRAINING[job.precision].element_bytes < MASTER_BYTES and not trainer.loss_bytes and not compiled
    return HALF / assumed.loss_bytes_per_logit if widened else 0.0


def _communicators(job: TrainJob, layouts: Layouts) -> Array:
    """Groups of ranks that a device talks in; each has channels and buffers of its own. A stage of a pipeline talks to
    the one before, the one behind and, where tables are tied, the other end of the pipeline, each in a group of its own
    (PyTorch, ProcessGroupNCCL.cpp: a communicator for each pair; Megatron-LM, mpu/initialize.py: embedding group)."""
    stages = 3.0 if job.model.tied_embeddings else 2.0
    counted = ((layouts.data_ranks, 1.0), (layouts.tensor_parallel, 1.0), (layouts.pipeline_parallel, stages))
    groups: Array = np.sum([np.where(degree > 1, groups, 0.0) for degree, groups in counted], axis=0)
    return groups
