"""What one training step asks of a single device, operation by operation, as an eager framework runs it.

Each operation names a curve of a device profile (`calibration.local_profile`): so many calls of some size. A curve of
`train` work holds forward and backward together. Group: what the error of a prediction is shared by.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final, Literal

from tonnage.errors import InputError
from tonnage.sizing.training_job import has_vocabulary_loss
from tonnage.values import dataclass
from tonnage.workload.adapters import adapted_matrices, lora_parameters
from tonnage.workload.jobs import TrainJob
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

Group = Literal["products", "attention", "elementwise", "optimizer", "dispatch", "all-reduce"]
PRECISIONS: Final = ("fp32", "bf16")
# A block up to this comes from memory the process already has; a larger one is mapped again each time, page by page.
# Source: mallopt(3), M_MMAP_THRESHOLD: glibc raises it as blocks are freed, to 32 MiB at most on 64-bit systems.
REUSED_BYTES: Final = 32.0 * 2**20
HEAD_WIDTHS: Final = (32, 128)  # attention is measured at these; its cost a score is a straight line in the width
ADAMW_BYTES: Final = 28.0  # fp32 weight, gradient and two moments read, all but the gradient written
FP32, BF16 = 4.0, 2.0
# Calls of views, module plumbing and reshapes in a layer that no measured operation holds: transpose and view of q, k,
# v and the output, forward and backward (the operator list of a BERT layer in PyTorch 2's own profiler).
PLUMBING_CALLS: Final = 16.0
# Of one adapter: its modules and their autograd nodes, in calls of `dispatch` (judgement, range 5 to 15).
ADAPTER_CALLS: Final = 8.0
HEAD_CALLS: Final = 60.0  # the model's ends: masks, pooler, classifier, loss, and the loop itself


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOperation:
    """`calls` times the operation, each of `amount` units in a call of `size` (both as the curve counts them)."""

    name: str
    group: Group
    operation: str
    precision: str
    size: float
    amount: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Micro:
    """One micro-batch, with what its numbers weigh."""

    job: TrainJob
    samples: float
    length: float

    @property
    def shape(self) -> ModelShape:
        return self.job.model

    @property
    def tokens(self) -> float:
        return self.samples * self.length

    @property
    def mixed(self) -> bool:
        return self.job.precision == "bf16"

    @property
    def element(self) -> float:
        return BF16 if self.mixed else FP32

    @property
    def precision(self) -> str:
        return "bf16" if self.mixed else "fp32"

    @property
    def dropout(self) -> bool:
        """Plain transformers train with dropout; today's gated ones without."""
        return not self.shape.gated_mlp


def check_sized(job: TrainJob) -> None:
    """InputError where a job is of a kind that the curves of a local profile do not hold."""
    shape = job.model
    if shape.architecture not in ("encoder", "decoder") or shape.experts or shape.relative_projections:
        raise InputError(f"{shape.name}: a local profile holds plain encoders and decoders only")
    if job.precision not in (*PRECISIONS, "auto"):
        raise InputError(f"precision {job.precision} is not measured by a local profile: fp32 or bf16")
    if job.method == "qlora" or job.optimizer not in ("adamw", "sgd") or job.compile:
        what = "4-bit weights" if job.method == "qlora" else "torch.compile" if job.compile else job.optimizer
        raise InputError(f"{what} is not measured by a local profile")
    if job.method == "lora" and job.lora.kind != "lora":
        raise InputError(f"{job.lora.kind} adapters are not measured by a local profile")


def step_operations(job: TrainJob, *, micro_batch: int, accumulation: int) -> tuple[LocalOperation, ...]:
    """All operations of one optimizer step (`precision` fp32 or bf16), at the mean length.

    Sources: the modules of a BERT or Llama layer in Hugging Face transformers, and PyTorch's eager autograd: three
    products for each trained weight (two against a frozen one), attention by `scaled_dot_product_attention`, casts of
    inputs and weights under autocast, AdamW tensor by tensor. Leaves out data loading and the tokenizer.
    """
    check_sized(job)
    micro = _Micro(job=job, samples=float(micro_batch), length=job.lengths.mean)
    parts = [*_ends(micro)]
    for one in _layer(micro):
        parts.append(_times(one, float(micro.shape.layers)))
    parts.extend(_adapters(micro))
    parts.extend(_weight_casts(micro))
    passes = [_times(one, float(accumulation)) for one in parts if one.calls > 0]
    return (*passes, *_accumulated(job, accumulation), *_optimizer(job))


def trained_tensors(job: TrainJob) -> tuple[tuple[float, float], ...]:
    """(elements, how many) of the tensors the optimizer steps: the table, the matrices of a layer, small vectors."""
    shape = job.model
    layers = 1.0 if shape.shared_layers else float(shape.layers)
    if job.method == "lora":
        each = lora_parameters(shape, rank=job.lora.rank, targets=job.lora.targets)
        count = 2.0 * sum(many for _, _, many in adapted_matrices(shape, job.lora.targets))
        return ((each / count, count),)
    table = float(shape.vocab * shape.embedding_width)
    found = [(table, 1.0 if shape.tied_embeddings or not has_vocabulary_loss(job) else 2.0)]
    found += [(float(columns * rows), layers) for rows, columns in _linears(shape)]
    total = float(count_parameters(shape).total)
    rest = max(total - sum(size * count for size, count in found), 0.0)
    small = layers * (len(_linears(shape)) + 2.0 * shape.norms_per_layer) + 4.0
    return (*found, (rest / small, small)) if rest else tuple(found)


def largest_tensor(job: TrainJob) -> float:
    """Elements of the largest tensor the optimizer steps."""
    return max(size for size, _ in trained_tensors(job))


def _linears(shape: ModelShape) -> list[tuple[int, int]]:
    """(inner, columns) of each product of a layer."""
    width, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    ups = 2 if shape.gated_mlp else 1
    return [
        (shape.hidden, width), (shape.hidden, kv), (shape.hidden, kv), (width, shape.hidden),
        *[(shape.hidden, shape.ffn)] * ups, (shape.ffn, shape.hidden),
    ]  # fmt: skip


def _times(one: LocalOperation, factor: float) -> LocalOperation:
    return LocalOperation(
        name=one.name, group=one.group, operation=one.operation, precision=one.precision, size=one.size,
        amount=one.amount, calls=one.calls * factor,
    )  # fmt: skip


def _product(name: str, rows: float, inner: float, columns: float, precision: str, calls: float) -> LocalOperation:
    flop = 2.0 * rows * inner * columns
    return LocalOperation(
        name=name, group="products", operation="product", precision=precision, size=flop, amount=flop, calls=calls
    )


def _stream(name: str, moved_bytes: float, calls: float = 1.0) -> LocalOperation:
    return LocalOperation(
        name=name, group="elementwise", operation="stream", precision="fp32", size=moved_bytes, amount=moved_bytes,
        calls=calls,
    )  # fmt: skip


def _pointwise(name: str, operation: str, elements: float, precision: str, calls: float) -> LocalOperation:
    return LocalOperation(
        name=name, group="elementwise", operation=operation, precision=precision, size=elements, amount=elements,
        calls=calls,
    )  # fmt: skip


def _plumbing(calls: float) -> LocalOperation:
    return LocalOperation(
        name="dispatch", group="dispatch", operation="dispatch", precision="fp32", size=1.0, amount=1.0, calls=calls
    )


def _layer(micro: _Micro) -> Iterator[LocalOperation]:
    shape, tokens, precision = micro.shape, micro.tokens, micro.precision
    trained = 3.0 if micro.job.method == "full" else 2.0
    for inner, columns in _linears(shape):
        yield _product("products", tokens, inner, columns, precision, trained)
        if shape.mlp_bias and micro.job.method == "full":
            yield _stream("bias gradients", tokens * columns * micro.element)
    yield from _attention(micro)
    yield from _around(micro)
    yield _plumbing(PLUMBING_CALLS)


def _adapters(micro: _Micro) -> Iterator[LocalOperation]:
    """LoRA beside each adapted matrix: y = Wx + B(A(dropout(x)))·scale, op by op.

    Source: `peft.tuners.lora.layer.Linear.forward`. Adapters compute in the step's precision: recipes switch off peft's
    widening of their input. Backward: dropout and scale again, and the gradient of x summed with that of Wx. Leaves out
    the adapter of a pooler, which sees one token a sample.
    """
    if micro.job.method != "lora":
        return
    tokens, element, rank = micro.tokens, micro.element, micro.job.lora.rank
    shape, targets = micro.shape, micro.job.lora.targets
    layered = [(inner, columns, shape.layers) for inner, columns in _linears(shape)]
    for inner, columns, count in layered if targets == "all-linear" else adapted_matrices(shape, targets):
        each = float(count)
        yield _pointwise("adapters: dropout", "dropout", tokens * inner, micro.precision, each)
        yield _product("adapters", tokens, inner, rank, micro.precision, 3.0 * each)
        yield _product("adapters", tokens, rank, columns, micro.precision, 3.0 * each)
        yield _stream("adapters: scale", tokens * columns * element * 2.0, 2.0 * each)
        yield _stream("adapters: sums", tokens * columns * element * 3.0, each)
        yield _stream("adapters: sums", tokens * inner * element * 3.0, each)
        yield _plumbing(ADAPTER_CALLS * each)


def _attention(micro: _Micro) -> Iterator[LocalOperation]:
    """Between the two measured head widths the cost of a score is a straight line in the width: the products of
    scores and values grow with it, softmax and dropout do not."""
    shape = micro.shape
    scores = micro.samples * shape.heads * micro.length * micro.length
    low, high = HEAD_WIDTHS
    share = min(max((shape.head_dim - low) / (high - low), 0.0), 2.0)
    kept = "dropout" if micro.dropout else "plain"
    for width, weight in ((low, 1.0 - share), (high, share)):
        if weight:
            yield LocalOperation(
                name="attention", group="attention", operation=f"attention {kept} {width}", precision=micro.precision,
                size=micro.length, amount=scores, calls=weight,
            )  # fmt: skip


def _around(micro: _Micro) -> Iterator[LocalOperation]:
    """Norms, activations, dropout, residual adds, casts: what is between the products of a layer."""
    shape, tokens, precision, element = micro.shape, micro.tokens, micro.precision, micro.element
    wide, inner = tokens * shape.hidden, tokens * shape.ffn
    yield _pointwise("norms", "norm", wide, "fp32", float(shape.norms_per_layer))
    if shape.gated_mlp:
        yield _pointwise("activation", "silu", inner, precision, 1.0)
        yield _stream("gate", inner * element * 3.0, 3.0)
    else:
        yield _pointwise("activation", "gelu", inner, precision, 1.0)
    if micro.dropout:
        yield _pointwise("dropout", "dropout", wide, precision, 2.0)
    # two residual adds forward; backward, gradients of a shared input are summed: q, k, v and the residual, then the
    # MLP's (one more where gated) and the residual
    yield _stream("residuals", wide * FP32 * 3.0, 2.0 + 4.0 + (1.0 if shape.gated_mlp else 0.0))
    yield _stream("heads joined", wide * element * 2.0, 2.0)
    if shape.positions == "rotary":
        turned = tokens * (shape.heads + shape.kv_heads) * shape.head_dim
        yield _stream("rotary", turned * element * 3.0, 10.0)
    if micro.mixed:  # inputs of q, k, v and of the MLP, forward; their gradients, backward
        ups = 2.0 if shape.gated_mlp else 1.0
        yield _stream("casts", wide * (FP32 + BF16), 2.0 * (3.0 + ups))


def _weight_casts(micro: _Micro) -> Iterator[LocalOperation]:
    """Autocast turns each weight into 16 bit once a forward, and its gradient back; a frozen base is 16-bit already."""
    if not micro.mixed or micro.job.method == "lora":
        return
    for inner, columns in _linears(micro.shape):
        yield _stream("weight casts", inner * columns * (FP32 + BF16), 2.0 * micro.shape.layers)


def _ends(micro: _Micro) -> Iterator[LocalOperation]:
    """Tables at one end, head and loss at the other."""
    shape, tokens, precision = micro.shape, micro.tokens, micro.precision
    wide = tokens * shape.hidden
    tables = 1.0 + (shape.positions == "learned") + (shape.token_types > 0)
    yield _stream("embedding", wide * FP32 * 3.0, 3.0 * tables)
    if shape.embedding_norm:
        yield _pointwise("norms", "norm", wide, "fp32", 1.0)
    if micro.dropout:
        yield _pointwise("dropout", "dropout", wide, "fp32", 1.0)
    if micro.job.method == "full":  # a dense gradient of the table: a new block, filled with zeros
        table = float(shape.vocab * shape.embedding_width) * FP32
        if table <= REUSED_BYTES:
            yield _stream("embedding gradient", table, 1.0)
        else:
            yield LocalOperation(
                name="embedding gradient", group="elementwise", operation="first touch", precision="fp32", size=table,
                amount=table, calls=1.0,
            )  # fmt: skip
    if has_vocabulary_loss(micro.job):
        logits = tokens * shape.vocab
        yield _product("vocabulary", tokens, shape.embedding_width, shape.vocab, precision, 3.0)
        yield _pointwise("loss", "loss", logits, "fp32", 1.0)
        if micro.mixed:
            yield _stream("casts", logits * (FP32 + BF16), 2.0)
    yield _plumbing(HEAD_CALLS)


def _accumulated(job: TrainJob, accumulation: int) -> Iterator[LocalOperation]:
    """Gradients added to the sum after each micro-batch but the first."""
    if accumulation > 1:
        for size, count in trained_tensors(job):
            yield _stream("gradient sums", size * FP32 * 3.0, count * (accumulation - 1))


def _optimizer(job: TrainJob) -> Iterator[LocalOperation]:
    """AdamW tensor by tensor as measured; SGD by the bytes it moves (weight, gradient, momentum in; two out)."""
    share = 1.0 if job.optimizer == "adamw" else 20.0 / ADAMW_BYTES
    for size, count in trained_tensors(job):
        yield LocalOperation(
            name="optimizer", group="optimizer", operation="adamw", precision="fp32", size=size, amount=size * share,
            calls=count,
        )  # fmt: skip


def step_flop(job: TrainJob, micro_batch: int, accumulation: int) -> float:
    """FLOP of the products of a step, for a rate beside the peak of the product curve."""
    operations = step_operations(job, micro_batch=micro_batch, accumulation=accumulation)
    return sum(prod((one.amount, one.calls)) for one in operations if one.operation == "product")
