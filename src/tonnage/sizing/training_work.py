"""What one training step does on each device before any rate is known: operators, bytes on the wire, state traffic.

Columns with one entry a candidate. `training_time` turns them into seconds; a calibration builds them once and turns
them into seconds many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.adapter_work import adapter_operator, norm_operators, scale_operator
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS, Layouts
from tonnage.sizing.operators import Operator, elementwise
from tonnage.sizing.precision import (
    NF4_BYTES_PER_PARAMETER,
    TRAINING,
    TrainingNumbers,
    optimizer_bytes_per_parameter,
)
from tonnage.sizing.program_profiles import trainer_of
from tonnage.sizing.stages import Stage
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_job import ParameterShare, has_vocabulary_loss, parameter_share, training_stages
from tonnage.sizing.training_state import FP32_BYTES, passing_bytes, trained_numbers
from tonnage.values import dataclass
from tonnage.workload.adapters import adapted_matrices
from tonnage.workload.jobs import TrainJob
from tonnage.workload.shapes import ModelShape

ZERO1, ZERO2, ZERO3 = (SHARDINGS.index(name) for name in ("zero1", "zero2", "zero3"))
SELECTIVE, FULL, PER_OP = (RECOMPUTES.index(name) for name in ("selective", "full", "per-op"))
COMPUTES = ("fp32", "tf32", "fp16", "bf16", "fp8")  # `StepWork.compute` holds the index
# Kernels that an eager framework launches beyond those that `operators` counts: casts of autocast for each matrix
# product (input, weight, bias; the weight's stands for all uses of a step), the parts of rotary positions and of an RMS
# norm (as `inference_pass` spells them).
AUTOCAST_CASTS = 1.5
ROTARY_KERNELS, RMS_KERNELS = 12.0, 8.0 / 3.0
# Kernels that a graph of primitives launches for an element-wise operation that an eager framework has as one: a layer
# norm of moments is nine, a dropout five, a GELU eight (TensorFlow 1, contrib.layers.layer_norm, nn.dropout).
# Judgement, 2.5 to 8; one where XLA merges clusters.
PRIMITIVE_KERNELS = 4.0
# Host time of a step's kernels where the executor of a graph launches them, over that of an eager framework: no kernel
# waits for Python, so that forward's cost what backward's do (`training_parts.BACKWARD_LAUNCH`): 3 x 0.25 over
# 1 + 2 x 0.25.
GRAPH_LAUNCH = 0.5
# Bytes that an 8-bit cast moves for a 16-bit element: read, written as it is and turned round, for the product of the
# weights' gradient (Transformer Engine, cast_transpose).
CAST_BYTES = 4.0
# GELU by its tanh formula in primitives (transformers, `NewGELUActivation`): cube, two scales, two sums, tanh,
# half of the input, product: 18 elements moved where one kernel moves 2; autocast computes the cube, and the rest, in
# 32 bit.
COMPOSITE_KERNELS, COMPOSITE_PASSES, COMPOSITE_BYTES = 8.0, 9.0, 4.0
ELEMENT_BYTES = np.array([4.0, 4.0, 2.0, 2.0, 2.0])  # of activations, for each of COMPUTES
# Who merges element-wise work into its neighbours. IMAGES: a library's kernels, between convolutions. APART: nothing
# does, and what is counted moves: tables larger than a cache, between a product and a scatter.
UNFUSED, COMPILED, HAND_FUSED, IMAGES, APART = 0.0, 1.0, 2.0, 3.0, 4.0
FLASH_BACKWARD = 2.5  # five products instead of two, the scores made again (Dao 2023, arXiv:2307.08691, section 3.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWork:
    """One operator of the step: how often a micro-batch does it forward, and what its backward costs in forwards.

    `owner`: the candidate each entry belongs to, where entries of several candidates are in one column.
    """

    operator: Operator
    times: Num
    backward: Num
    again: Num  # how often backward repeats the forward (recomputation)
    fused: Num  # UNFUSED, COMPILED, ...: who merges it into its neighbours
    owner: NDArray[np.intp] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Columns of one step. Bytes are per device and, where not said otherwise, per step."""

    works: tuple[OperatorWork, ...]
    compute: Array  # index into COMPUTES
    accumulation: Array
    bubble: Array  # micro-batches the pipeline idles
    nodes: Array
    trained_share: Array  # of the forward FLOP that backward costs: 2 full, 1 with a frozen base
    tensor_ranks: Array
    tensor_bytes: Array  # of one all-reduce
    tensor_calls: Array  # all-reduces a micro-batch
    tensor_overlap: Array  # 1: they run beside the products
    data_ranks: Array
    data_overlap: Array  # 1: messages are cut by layers and run beside the products
    gradient_bytes: Array
    scatters: Array  # backwards that reduce-scatter their gradients; 0: one all-reduce a step, beside the last backward
    updated_bytes: Array  # weights gathered after the optimizer's step, of a scattered gradient (ZeRO-2)
    gathered_bytes: Array  # weights gathered in a pass over them (ZeRO-3)
    gathering_passes: Array  # such passes a step: forward and backward of each micro-batch, or once in a pipeline
    gathers: Array  # calls that a pass takes
    hand_over_bytes: Array  # one micro-batch to the next pipeline stage, all tensor-parallel ranks together
    hand_over_crosses: Array  # devices one pipeline step spans
    dequantised_bytes: Array  # per micro-batch
    optimizer_bytes: Array
    accumulated_bytes: Array  # gradients added to the sum after each micro-batch but the first
    optimizer_tensors: Array
    optimizer_kernels: Array  # launched for tensors one by one
    model_flop: Array

    @property
    def rows(self) -> int:
        return len(self.compute)


def step_work(job: TrainJob, layouts: Layouts, trainer: TrainerProfile | None = None) -> StepWork:
    """The work of one step of `job` under each layout, at the mean computed length."""
    trainer = trainer_of(job) if trainer is None else trainer
    numbers = TRAINING[job.precision]
    share = parameter_share(job, layouts)
    stages = training_stages(job, layouts, length=job.lengths.mean, numbers=numbers, trainer=trainer)
    works = (*_works(job, stages, layouts, numbers, trainer), *_table_gradients(job, layouts, trainer))
    rows, full = len(layouts.nodes), job.method == "full"
    modelled = [work for work in works if np.any(work.backward)]  # the norms of DoRA do not belong to the model
    flop: Num = sum((w.times * w.operator.count * w.operator.flop for w in modelled), start=np.float64(0.0))
    columns = {
        "compute": COMPUTES.index(numbers.compute),
        "accumulation": layouts.accumulation,
        "bubble": (layouts.pipeline_parallel - 1) / trainer.interleave,
        "nodes": layouts.nodes,
        "trained_share": 2.0 if full else 1.0,
        "model_flop": flop * (3.0 if full else 2.0) * layouts.accumulation,
        **_tensor_columns(job, layouts, numbers, trainer),
        **_data_columns(job, layouts, share, numbers, trainer),
    }
    return StepWork(works=works, **{name: column(value, rows) for name, value in columns.items()})


def _works(
    job: TrainJob, stages: Sequence[Stage], layouts: Layouts, numbers: TrainingNumbers, trainer: TrainerProfile
) -> tuple[OperatorWork, ...]:
    """Operators with what one pipeline stage repeats: its share of the layers, and (worst case) the head."""
    found = []
    selective, full, per_op = (layouts.recompute == kind for kind in (SELECTIVE, FULL, PER_OP))
    for stage in stages:
        repeats = np.ceil(stage.repeats / layouts.pipeline_parallel) if stage.layered else stage.repeats
        for op in stage.operators:
            repeated = np.where(full | (selective & op.scores), 1.0, np.where(per_op, _again_per_op(op), 0.0))
            again = repeated if stage.layered else 0.0
            fused = _fusion(job, trainer) if op.kind in ("elementwise", "attention") else UNFUSED
            spelt = _launched(op, job, numbers, trainer)
            found.append(
                OperatorWork(operator=spelt, times=repeats, backward=_backward(job, op), again=again, fused=fused)
            )
            if numbers.compute == "fp8" and op.kind == "gemm" and stage.layered:
                found.append(_casts(op, times=repeats, again=again, fused=_fusion(job, trainer)))
    if job.method != "full" and job.lora.kind == "llama-adapter-v2":
        repeats = np.ceil(job.model.layers / layouts.pipeline_parallel)
        scales = scale_operator(job, layouts, numbers, trainer)
        again = np.where(full, 1.0, 0.0)
        found.append(
            OperatorWork(operator=scales, times=repeats, backward=2.0, again=again, fused=_fusion(job, trainer))
        )
    if job.method != "full" and job.lora.kind in ("lora", "dora"):
        repeats = np.ceil(job.model.layers / layouts.pipeline_parallel)
        again, fused = np.where(full, 1.0, 0.0), _fusion(job, trainer)
        fused = IMAGES if fused == UNFUSED else fused
        beside = adapter_operator(job, layouts, numbers, trainer)
        found.append(OperatorWork(operator=beside, times=repeats, backward=1.0, again=again, fused=fused))
        for op in norm_operators(job, layouts, numbers, trainer):
            found.append(OperatorWork(operator=op, times=repeats, backward=0.0, again=again, fused=fused))
    return tuple(found)


def _table_gradients(job: TrainJob, layouts: Layouts, trainer: TrainerProfile) -> tuple[OperatorWork, ...]:
    """What autograd moves to make the gradient of the table that embeds words, a third of it counted as forward.

    It is a whole table of zeros with a few rows written (1 pass). Where the table also weighs the logits, the head's
    gradient is one more, added to it (3). Both are of the width that trained weights' gradients have. A compiler merges
    neither: one is written by a product, the other scattered to.
    Each cluster of an adaptive softmax slices the table: its gradient is a whole table of zeros with the slice copied
    in (1 each, 2 in all), and all are added one by one (3 each). Source: PyTorch, `slice_backward`,
    `embedding_dense_backward`. Hand-written kernels add a head's gradient to the table's as they make it.
    """
    shape = job.model
    if trainer.fused or job.method != "full" or not shape.vocab:
        return ()
    shared = shape.tied_embeddings and has_vocabulary_loss(job)
    slices = 1 + len(trainer.rare_words) if trainer.rare_words else 0
    passes = 1 + shared * (3 * max(slices, 1) + (slices + 2 if slices else 0))
    words = shape.vocab + sum(words for _, words in trainer.rare_words)
    width = trained_numbers(job, trainer).gradient_bytes
    moved = passes * words * shape.embedding_width * width / layouts.tensor_parallel
    gradients = elementwise("table gradients", moved_bytes=moved / 3.0, kernels=0.0)
    return (OperatorWork(operator=gradients, times=1.0, backward=2.0, again=0.0, fused=APART),)


def _casts(op: Operator, *, times: Num, again: Num, fused: float) -> OperatorWork:
    """What brings a product's input, and the gradient of its output, to 8 bit."""
    inner = op.weight_elements / op.columns
    cast = Operator(
        name=op.name + " casts", kind="elementwise", count=op.count, moved_bytes=CAST_BYTES * op.rows * inner
    )
    return OperatorWork(operator=cast, times=times, backward=op.columns / inner, again=again, fused=fused)


def _again_per_op(op: Operator) -> float:
    """Forwards that backward repeats where attention and every second matrix product are kept."""
    if op.kind == "attention" or (op.kind == "gemm" and op.scores):
        return 0.0
    return 0.5 if op.kind == "gemm" else 1.0


def _launched(op: Operator, job: TrainJob, numbers: TrainingNumbers, trainer: TrainerProfile) -> Operator:
    """The operator with the kernels that its framework launches for it, each as one of an eager framework."""
    spelt = _spelt(op, job, numbers, trainer)
    if not trainer.primitives:
        return spelt
    merged = trainer.clustered or op.kind != "elementwise"
    return replace(spelt, kernels=spelt.kernels * GRAPH_LAUNCH * (1.0 if merged else PRIMITIVE_KERNELS))


def _spelt(op: Operator, job: TrainJob, numbers: TrainingNumbers, trainer: TrainerProfile) -> Operator:
    """The operator with the kernels that an eager framework launches for it.

    An RMS norm and rotary positions are spelt out (`inference_pass`), and a composite GELU (which a graph of primitives
    counts by itself); autocast casts input and weight of each product.
    """
    if op.name == "rotary":
        return replace(op, kernels=ROTARY_KERNELS)
    if op.name == "norms and residuals" and job.model.norm == "rms":
        return replace(op, kernels=op.kernels * RMS_KERNELS)
    composite = job.model.composite_gelu and not trainer.primitives
    if op.name == "mlp activation" and composite and _fusion(job, trainer) == UNFUSED:
        wide = COMPOSITE_BYTES / numbers.element_bytes if numbers.weight_copy_bytes else 1.0
        return replace(op, kernels=COMPOSITE_KERNELS, moved_bytes=op.moved_bytes * COMPOSITE_PASSES * wide)
    if op.name == "qkv":
        op = replace(op, kernels=3.0)
    if op.kind == "gemm" and numbers.weight_copy_bytes and trainer.state == "autocast":
        return replace(op, kernels=op.kernels * (1.0 + AUTOCAST_CASTS))
    return op


def _fusion(job: TrainJob, trainer: TrainerProfile) -> float:
    if trainer.fused or job.compile:
        return HAND_FUSED if trainer.fused else COMPILED
    return IMAGES if job.model.architecture == "convolution" else UNFUSED


def _backward(job: TrainJob, op: Operator) -> float:
    """Forwards that an operator's backward costs. Products against a frozen base have one gradient, not two."""
    if op.kind == "attention" and job.attention != "eager":
        return FLASH_BACKWARD
    frozen = job.method != "full" and op.kind in ("gemm", "convolution") and not op.scores
    return 1.0 if frozen else 2.0


def _tensor_columns(
    job: TrainJob, layouts: Layouts, numbers: TrainingNumbers, trainer: TrainerProfile
) -> dict[str, Num | Array]:
    """Four all-reduces of activations a layer and micro-batch, six where forward is done again (Shoeybi et al. 2019,
    arXiv:1909.08053, section 3; with sequence parallelism the volume is the same), and the pipeline's hand-over."""
    length = job.lengths.mean / layouts.context_parallel
    size = layouts.micro_batch * length * job.model.hidden * numbers.element_bytes
    t, p = layouts.tensor_parallel, layouts.pipeline_parallel
    layers = np.ceil((job.model.layers + job.model.encoder_layers) / p)
    calls = layers * (4.0 + 2.0 * (layouts.recompute == FULL))
    return {
        "tensor_ranks": t,
        "tensor_bytes": size,
        "tensor_calls": np.where(t > 1, calls, 0.0),
        "tensor_overlap": 1.0 if trainer.tensor_overlap else 0.0,
        "hand_over_bytes": np.where(p > 1, size * trainer.interleave, 0.0),
        "hand_over_crosses": t * p * layouts.context_parallel,
    }


def _data_columns(
    job: TrainJob, layouts: Layouts, share: ParameterShare, numbers: TrainingNumbers, trainer: TrainerProfile
) -> dict[str, Num | Array]:
    """Gradients and weights on the wire, 4-bit expansion, and the optimizer's own traffic.

    Where gradients are shared out they are reduce-scattered, half an all-reduce, in every backward, and each rank adds
    up its share; with `no_sync`, and between the stages of a pipeline, whole ones are added up and scattered once
    (FSDP: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward`; ZeRO: arXiv:1910.02054, section
    7).
    """
    shards, scattered = layouts.sharding >= ZERO3, (layouts.sharding >= ZERO2) & (layouts.data_ranks > 1)
    piped = layouts.pipeline_parallel > 1
    state = optimizer_bytes_per_parameter(job.optimizer, numbers.optimizer_element_bytes, job.model.hidden)
    moved = share.trained * (2 * numbers.weight_bytes + numbers.gradient_bytes + 2 * state) * trainer.optimizer_passes
    cut = np.where(layouts.sharding >= ZERO1, layouts.data_ranks, 1.0)
    layers = np.ceil((job.model.layers + job.model.encoder_layers) / layouts.pipeline_parallel)
    reduced = trainer.reduce_bytes or numbers.gradient_bytes
    passing = passing_bytes(job, numbers, trainer)
    gathered = share.trained * passing + share.frozen * (trainer.four_bit_bytes if job.method == "qlora" else passing)
    sent = max(passing, FP32_BYTES) if trainer.wide_reduction else passing
    every = scattered & ~piped & (not trainer.no_sync)  # each micro-batch's gradients are scattered as they come
    scatters = np.where(scattered, np.where(every, layouts.accumulation, 1.0), 0.0)
    summed = share.trained * _summing_bytes(job, trainer)
    expanded = share.frozen * (NF4_BYTES_PER_PARAMETER + 2.0) * 2 if job.method == "qlora" else 0.0
    return {
        "data_ranks": layouts.data_ranks,
        "data_overlap": 1.0 if trainer.data_overlap else 0.0,
        "gradient_bytes": float(trainer.exchanges) * share.trained * np.where(shards, sent, reduced),
        "scatters": scatters,
        "updated_bytes": np.where(scattered & ~shards, share.trained * numbers.element_bytes, 0.0),
        "gathered_bytes": np.where(shards, gathered, 0.0),
        "gathering_passes": np.where(piped & (trainer.state == "autocast"), 1.0, 2.0 * layouts.accumulation),
        "gathers": np.where(shards, layers * (layer_tensors(job.model) if trainer.separate_gathers else 1.0), 0.0),
        "dequantised_bytes": expanded,
        "optimizer_bytes": moved / cut,
        "accumulated_bytes": summed / np.where(every, layouts.data_ranks, 1.0),
        "optimizer_tensors": _optimizer_tensors(job, trainer) * layers,
        "optimizer_kernels": _optimizer_tensors(job, trainer) * layers * trainer.optimizer_kernels,
    }


def _summing_bytes(job: TrainJob, trainer: TrainerProfile) -> float:
    """Bytes that adding a gradient to the sum of earlier micro-batches moves: the gradient is read, the sum read and
    written as wide (autograd), or in 32 bit where Megatron trains in bf16 or fp8 (arguments.py:
    `accumulate_allreduce_grads_in_fp32`, forced for bf16 alone). None where the product that makes the gradient adds it
    up itself: its reads and writes run beside 2 FLOP a token for each element."""
    if trainer.fused_accumulation:
        return 0.0
    width = trained_numbers(job, trainer).gradient_bytes
    wide = trainer.state == "megatron" and job.precision in ("bf16", "fp8")
    return width + 2.0 * (FP32_BYTES if wide else width)


def _optimizer_tensors(job: TrainJob, trainer: TrainerProfile) -> float:
    """Trained tensors of a layer that the optimizer launches kernels for: all of its own, or two for each adapter; none
    where one kernel takes them all."""
    if trainer.optimizer_fused:
        return 0.0
    if job.method != "full":
        return (
            2.0 * sum(count for *_, count in adapted_matrices(job.model, job.lora.targets)) / max(job.model.layers, 1)
        )
    return layer_tensors(job.model)


def layer_tensors(shape: ModelShape) -> float:
    """Tensors of a layer: its matrices, biases, and scales and shifts of its norms; of encoder and decoder layers, or
    of residual blocks, the mean. A matrix that all experts of a mixture have is one (they are stacked).

    >>> from tonnage.workload.known import find_model
    >>> [layer_tensors(find_model(name)) for name in ("llama-2-7b", "bert-base-uncased", "gpt2")]
    [9.0, 16.0, 12.0]
    """
    if shape.convolutions:
        return 3.0 * sum(conv.count for conv in shape.convolutions) / shape.layers
    attention, norm = _attention_tensors(shape), 2 if shape.norm == "layer" and shape.norm_bias else 1
    layer = attention + shape.norms_per_layer * norm + (3 if shape.gated_mlp else 2) * (1 + shape.mlp_bias)
    if shape.experts:
        layer += 1 + shape.router_bias + (3 if shape.shared_expert_ffn else 0) + shape.shared_expert_gate
    if shape.architecture != "encoder-decoder":
        return float(layer)
    return layer + (attention + norm) * shape.layers / (shape.layers + shape.encoder_layers)  # a decoder's crosses over


def _attention_tensors(shape: ModelShape) -> int:
    """Matrices and biases of one attention, with those of relative positions (one matrix in Transformer-XL, two and a
    bias in DeBERTa) and of its norms."""
    if shape.kv_latent:
        return 5 + 2 * (shape.query_latent > 0)  # queries have two matrices and a norm where they are compressed
    first = 1 if shape.fused_qkv else 3
    biases = (first if shape.key_bias or shape.fused_qkv else 2) if shape.qkv_bias else 0
    relative = (1 if shape.causal else 3) if shape.relative_projections else 0
    beside = 2 * shape.qk_norm + shape.attention_sinks
    return first + biases + 1 + shape.output_bias + relative + beside


def counted_flop_per_token(job: TrainJob) -> float:
    """FLOP of one forward pass a token as papers count them: 2 x matrix weights and 4·s·h of attention a layer, whole
    scores, vocabulary included (Korthikanti et al. 2022, arXiv:2205.05198, appendix A)."""
    shape, length = job.model, job.lengths.mean
    ups = 3 if shape.gated_mlp else 2
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 2.0 * shape.hidden * (2 * width + 2 * kv_width + ups * shape.ffn) + 4.0 * length * width
    return shape.layers * layer + 2.0 * shape.hidden * shape.vocab


def added(first: StepWork, second: StepWork) -> StepWork:
    """Two models trained in one step on the same devices and layout (a generator and a discriminator)."""
    summed = ("gradient_bytes", "updated_bytes", "gathered_bytes", "gathers", "optimizer_bytes",
              "accumulated_bytes", "model_flop", "tensor_calls")  # fmt: skip
    columns = {name: getattr(first, name) for name in column_names()}
    columns.update({name: getattr(first, name) + getattr(second, name) for name in summed})
    return StepWork(works=(*first.works, *second.works), **columns)


def column_names() -> tuple[str, ...]:
    """Every field of `StepWork` but `works`."""
    return tuple(field.name for field in fields(StepWork) if field.name != "works")
