"""Bytes of training that follow the batch: what is kept for backward, what one layer takes, logits and loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.kept_activations import (
    AdapterStoring,
    Kernels,
    LayerKept,
    Storing,
    convolutions_kept,
    embeddings_kept,
    layer_kept,
)
from tonnage.sizing.layouts import RECOMPUTES, Layouts
from tonnage.sizing.operators import Pass
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.stages import image_tokens
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_job import has_vocabulary_loss, longest_tokens, training_span
from tonnage.sizing.training_state import FP32_BYTES, HALF, base_bytes, mixed, quantised_head
from tonnage.values import dataclass
from tonnage.workload.jobs import TrainJob

PROMPTED = ("llama-adapter", "llama-adapter-v2")
SELECTIVE, FULL, PER_OP = (RECOMPUTES.index(name) for name in ("selective", "full", "per-op"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes per device, one row per layout: of each micro-batch in flight, and what the layer at work adds."""

    flying: Array
    entering: Array  # of each in flight too, on the first stage of a pipeline alone
    leaving: Array  # on all stages but the last
    once: Array
    again: Array  # of `once`, what recomputation makes: it is held at the end of backward too
    before: Array  # of the step before, until this one's loss is there


def kept_activations(job: TrainJob, layouts: Layouts, trainer: TrainerProfile) -> Kept:
    """Kept for backward by one pipeline stage.

    Full recomputation keeps each layer's input (on the host, where activations are offloaded) and one layer's own
    activations; selective makes the score matrices again; per-op all but attention and every second matrix product.
    """
    rows = len(layouts.nodes)
    span = stored_span(job, layouts, trainer)
    if job.model.architecture == "convolution":
        kept = convolutions_kept(job.model, span) * trainer.kept_factor
        none = np.zeros((5, rows))
        return Kept(
            flying=column(kept, rows), entering=none[0], leaving=none[1], once=none[2], again=none[3], before=none[4]
        )
    on_device = 0.0 if trainer.offloaded_activations else 1.0
    flying: Num = np.zeros(rows)
    once: Num = np.zeros(rows)
    repeated: Num = np.zeros(rows)
    before: Num = np.zeros(rows)
    usual = min(job.lengths.mean / job.lengths.maximum, 1.0)  # the step before was as long as most are
    how = _storing(job, span, trainer)
    for repeats, layer in _layers(job, span, how, trainer):
        here = np.ceil(repeats / layouts.pipeline_parallel)
        total = layer.total * trainer.kept_factor
        kinds = [layouts.recompute == kind for kind in (FULL, SELECTIVE, PER_OP)]
        kept = np.select(kinds, [layer.boundary * on_device, total - layer.scores, layer.per_op], total)
        flying = flying + here * kept
        again = np.select(kinds, [total, layer.scores, total - layer.per_op], 0.0)
        repeated = np.maximum(repeated, again)
        once = np.maximum(once, again + layer.working)
        before = before + here * layer.quantised_inputs * usual
    boundary = span.tokens * span.residual_bytes * job.model.hidden
    handed = boundary / layouts.tensor_parallel if trainer.keeps_outputs else 0.0
    return Kept(
        flying=column(flying, rows),
        entering=column(embeddings_kept(job.model, span, how), rows),
        leaving=column(handed, rows),
        once=column(once, rows),
        again=column(repeated, rows),
        before=column(before, rows),
    )


def _layers(job: TrainJob, span: Pass, how: Storing, trainer: TrainerProfile) -> Sequence[tuple[float, LayerKept]]:
    """How often each kind of layer occurs in the model, and what it keeps."""
    shape = job.model
    if shape.architecture == "encoder-decoder":
        target = trainer.target_tokens
        inner = replace(span, query=float(target), keys=float(target)) if target else span
        decoder = layer_kept(shape, inner, how, cross_keys=span.keys)
        return [(shape.encoder_layers, layer_kept(shape, span, how)), (shape.layers, decoder)]
    found = [(float(shape.layers - (shape.dense_layers if shape.experts else 0)), layer_kept(shape, span, how))]
    if shape.dense_layers and shape.experts:
        found.append((float(shape.dense_layers), layer_kept(shape, span, how, dense=True)))
    return found


def stored_span(job: TrainJob, layouts: Layouts, trainer: TrainerProfile) -> Pass:
    """One micro-batch of the longest sequences, in the widths its tensors are held in. A frozen base sets the width of
    the residual stream: 16 bit beside 16-bit weights, whatever products run in. fp16 under autocast keeps norms and
    softmax in 32 bit like bf16 does, unless the program says that it casts the model (PyTorch, Automatic Mixed
    Precision package, operations that autocast to float32)."""
    if job.precision == "fp16" and job.program.half_residual is None and trainer.state == "autocast":
        trainer = replace(trainer, thin_residual=False)
    numbers = TRAINING[job.precision]
    if job.method != "full":
        wide = max(base_bytes(job, trainer), numbers.element_bytes)
        numbers = replace(numbers, residual_bytes=wide)
    span = training_span(job, layouts, length=float(job.lengths.maximum), numbers=numbers, trainer=trainer)
    if job.model.architecture == "vision-transformer":
        tokens = image_tokens(job.model)
        return replace(span, query=tokens, keys=tokens)
    return span


def _storing(job: TrainJob, span: Pass, trainer: TrainerProfile) -> Storing:
    kernels: Kernels = "fused" if trainer.fused else "compiled" if job.compile else "eager"
    wide = span.residual_bytes > span.element_bytes
    quantised = job.method == "qlora"
    adapters = None if job.method == "full" else _adapters(job, trainer)
    wide_outputs = span.residual_bytes if quantised and kernels == "eager" else 0.0
    return Storing(
        kernels=kernels,
        casts=mixed(job) and wide and trainer.state == "autocast",
        norm_copies=trainer.norm_copies,
        repeats_kv=trainer.repeats_kv,
        output_bytes=adapters.copy_bytes if adapters is not None and adapters.scaled else wide_outputs,
        adapters=adapters,
        input_copies=quantised and trainer.keeps_quantised_inputs,
    )


def _adapters(job: TrainJob, trainer: TrainerProfile) -> AdapterStoring:
    """Adapters as peft has them: 32 bit, so that each casts its input, under autocast back to 16 bit. Scales and
    offsets are as wide as the base they are in (litgpt converts the whole model), and so is what they give."""
    element = TRAINING[job.precision].element_bytes
    if job.lora.kind in PROMPTED:
        width = max(base_bytes(job, trainer) if mixed(job) else element, trainer.adapter_bytes, element)
        scaled = job.lora.kind == "llama-adapter-v2"
        return AdapterStoring(copy_bytes=width, every=False, copied=False, low_rank=False, prompted=True, scaled=scaled)
    held = max(trainer.adapter_bytes, element)
    copied = held > element and not trainer.fused
    return AdapterStoring(
        copy_bytes=element if mixed(job) or not copied else FP32_BYTES,
        every=job.lora.targets == "all-linear",
        copied=copied,
        outputs=job.lora.kind == "dora",
        low_rank=job.lora.kind in ("lora", "dora"),
        dropout=trainer.adapter_dropout,
    )


def logits_bytes(job: TrainJob, layouts: Layouts, assumed: Assumptions, trainer: TrainerProfile) -> Array:
    """Log-softmax, its gradient and that of the logits, at the start of backward; or the logits and a 4-bit head that
    is expanded for them, in the 16 bit of its scales and of the product, where that is more."""
    if not has_vocabulary_loss(job):
        return np.zeros(len(layouts.nodes))
    compiled = job.compile and not trainer.layers_compiled
    usual = assumed.compiled_loss_bytes_per_logit if compiled else assumed.loss_bytes_per_logit
    scaled = job.method != "full" and job.lora.kind == "llama-adapter-v2"  # the scale keeps what it multiplies
    per_logit = (trainer.loss_bytes or usual) + (_adapters(job, trainer).copy_bytes if scaled else 0.0)
    target = trainer.target_tokens or longest_tokens(job) / layouts.context_parallel
    tokens = layouts.micro_batch * target * trainer.logit_share
    logits = tokens * job.model.vocab / layouts.tensor_parallel
    expanded = quantised_head(job, layouts, trainer) * 2.0 * HALF
    made: Array = np.where(expanded > 0, logits * TRAINING[job.precision].element_bytes + expanded, 0.0)
    return np.maximum(logits * per_logit, made)
