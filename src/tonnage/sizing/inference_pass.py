"""One inference pass of many candidates: the work, laid out once; its seconds under any engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from tonnage.sizing.devices import GENERATIONS, Devices
from tonnage.sizing.engine_rates import engine_pass_s
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.expert_dealing import Dealt, deal, dealing_s, one_shot, shared_switches
from tonnage.sizing.inference_attention import (
    CACHE_KERNELS,
    CHAINED_SHARE,
    ROTARY_KERNELS,
    attention_operator,
    cache_traffic,
    repeated_heads,
    stores_scores,
)
from tonnage.sizing.operators import Operator, Pass
from tonnage.sizing.served_convolutions import Convolving, turns_layout
from tonnage.sizing.served_formats import ServedFormat
from tonnage.sizing.stages import Stage, forward_stages
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

EXCHANGE_RANKS = 4.0  # that an engine's `exchange_us` is of
# Of a 32-bit sum that is written by a product and read by the kernel behind it, over 8-bit values (FasterTransformer,
# `int8_mode` 1). 384 tokens of BERT-base, 32 at once: 14.97 ms in that mode and 10.39 in 8-bit values on an A100, 88.7
# and 59.0 on a T4; all sums of the network at these bytes take 4.4 and 24.
SUM_BYTES = 6.0
WIDE_OUTPUT_BYTES = 2.0  # of a 32-bit sum over the 16 bit that is counted already
QUANTISED_BYTES = 3.0  # of a value read in 16 bits and written in 8
WIDE_PRODUCTS = ("vocabulary", "router")  # engines keep them at 16 bits
LOW_BIT_RAMP = 2.0  # see `_ramped`
CAST_BYTES = 6.0  # of a weight read in 32 bit and written in 16
# Of the 16-bit rate where weights are expanded inside the product. Those kernels feed the tensor cores from registers
# by `mma`, which reaches 0.63 of the peak on Hopper: only `wgmma`, which takes its operands from shared memory, reaches
# all of it (arXiv:2402.13499, tables of mma and wgmma).
WEIGHT_ONLY_SHARE, WEIGHT_ONLY_HOPPER = 0.85, 0.63
# Kernels of a program as its authors wrote it (transformers), one by one: see `_spelt`.
NORM_KERNELS = {"layer": 1.0, "rms": 8.0}
LISTED_NORM_KERNELS = 3.0  # what the operators count for one norm with its residual sum


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """The work of one pass, one row per candidate; independent of an engine's figures."""

    stages: tuple[Stage, ...]
    devices: Devices
    served: ServedFormat
    batch: Num
    tensor_parallel: Num
    exchanged_bytes: Num  # of one all-reduce
    exchanges: Num
    host_factor: Num = 1.0
    dealt: Dealt | None = None  # experts of ranks that attend to requests of their own

    @property
    def rows(self) -> int:
        return len(self.devices.peak_flop_per_s)


def pass_work(
    shape: ModelShape,
    devices: Devices,
    served: ServedFormat,
    engine: Engine,
    *,
    batch: Num,
    query: Num,
    keys: Num,
    tensor_parallel: Num = 1.0,
    logit_tokens: Num = 0.0,
    host_factor: Num | None = None,
    data_ranks: Num = 1.0,
    expert_parallel: Num = 1.0,
    group_tokens: Num = 0.0,
    autocast: bool | None = None,
    channels_last: bool | None = None,
    quantised_residual: bool | None = None,
    padded: Num = 0.0,
    norms_apart: bool = False,
) -> PassWork:
    """Lay out one pass of `batch` sequences of `query` new tokens over `keys` tokens.

    `data_ranks`, `expert_parallel`, `group_tokens` as in `Pass`: `batch` is that of one data rank, `tensor_parallel`
    the ranks in it.

    Of the engine only its structure counts: whether scores are written to memory, what the residual stream takes. Two
    all-reduces a layer under tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053). `host_factor` None: that of
    the devices. `autocast`: 16-bit products over weights held in 32 bit (None: as the engine's class does).
    `channels_last`: how images are laid out (None: as the engine's class does). `quantised_residual`: 8-bit products
    give 8-bit values, and the residual stream is held so; False: they give 32-bit sums (None: as the engine's class
    does). `padded`: tokens that sequences are padded to around attention, where `query` is what is left of them
    elsewhere (0: nothing is taken away).
    `norms_apart`: norms, rectifiers and sums behind convolutions stay kernels of their own under an engine that fuses
    them with one another.
    """
    if host_factor is None:
        host_factor = 1.0 if devices.host_factor is None else devices.host_factor
    casting = served.element_bytes == 2.0 and (engine.mixed_residual if autocast is None else autocast)
    span = Pass(
        batch=batch, query=query, keys=keys, element_bytes=served.element_bytes,
        residual_bytes=4.0 if casting else max(served.element_bytes, 1.0 if quantised_residual else 2.0),
        weight_bytes=served.read_bytes(served.weight_bytes, engine),
        expert_weight_bytes=served.read_bytes(served.expert_bytes, engine),
        tensor_parallel=tensor_parallel, attention="sdpa", training=False, grouped_experts=not engine.spelt_out,
        data_ranks=data_ranks, expert_parallel=expert_parallel, group_tokens=group_tokens,
        tensor_cores=served.compute != "fp32",
    )  # fmt: skip
    length = np.maximum(query, padded)
    stored = stores_scores(shape, served, engine, length, devices)
    padding = np.where(stored > 0, length / np.asarray(query, dtype=np.float64), 1.0)
    convolving = Convolving(
        compute=served.compute, element_bytes=served.element_bytes, norms_apart=norms_apart,
        turned=turns_layout(served.compute, served.element_bytes, engine, channels_last),
        weights_turned=engine.scheduled_nodes,
    )  # fmt: skip
    kv = cache_traffic(shape, served, engine)
    stages = tuple(
        replace(
            stage,
            operators=[
                new
                for op in convolving.operators(
                    _with_casts(
                        (_ramped(_expanded(op, served, devices), served) for op in stage.operators),
                        shape,
                        served,
                        engine,
                        casting=casting,
                        quantised=quantised_residual,
                    ),
                    devices,
                )
                for new in attention_operator(_spelt(op, shape, span, engine), shape, span, kv, stored, engine, padding)
            ],
        )
        for stage in forward_stages(shape, span, logit_tokens=logit_tokens)
    )
    return PassWork(
        stages=stages, devices=devices, served=served, batch=batch, tensor_parallel=tensor_parallel,
        exchanged_bytes=span.tokens * shape.hidden * max(served.element_bytes, 2.0),
        exchanges=2.0 * (shape.layers + shape.encoder_layers),
        host_factor=host_factor, dealt=deal(shape, span, low_bit=served.low_bit),
    )  # fmt: skip


def _expanded(op: Operator, served: ServedFormat, devices: Devices) -> Operator:
    """A product whose weights are expanded inside it, with as much more work as it runs below the 16-bit rate."""
    if op.kind != "gemm" or op.name in WIDE_PRODUCTS:
        return op
    held = served.expert_bytes if np.max(op.groups) > 1.0 else served.weight_bytes
    if not served.expanded(held):
        return op
    hopper = False if devices.generation is None else devices.generation == GENERATIONS.index("Hopper")
    return replace(op, flop=op.flop / np.where(hopper, WEIGHT_ONLY_HOPPER, WEIGHT_ONLY_SHARE))


def _ramped(op: Operator, served: ServedFormat) -> Operator:
    """A product that gives 8-bit values: twice the work in the cycles of its ramp.

    Values are narrowed from complete sums, so that the inner length is not split among multiprocessors; products that
    give 16 bits (fp8 of engines for language models) split it where tiles are few.
    """
    ramps = served.element_bytes == 1.0 and op.kind in ("gemm", "convolution") and op.name not in WIDE_PRODUCTS
    return replace(op, ramp=LOW_BIT_RAMP) if ramps else op


def _with_casts(
    operators: Iterable[Operator],
    shape: ModelShape,
    served: ServedFormat,
    engine: Engine,
    *,
    casting: bool,
    quantised: bool | None,
) -> Iterator[Operator]:
    """The operators with what changes widths around products.

    Under autocast each product behind the cast of its weights: 4 bytes read and 2 written, a kernel.

    No fusion spares them: products are calls of a library, which reads 16-bit weights from memory. Casts are kept from
    one product to the next of a pass only (PyTorch, Automatic Mixed Precision: the cache of casts is cleared where the
    context is left; TensorFlow, auto_mixed_precision: cast nodes of the graph, which wait for nothing, so that its
    executor calls them on other threads while the rest runs). A library that calls 8-bit products
    (cublasLt) quantises their input into the layout they want and widens what they give, 32-bit sums, each in
    a kernel; the rest of their traffic is that of bias and activation (NVIDIA/FasterTransformer, docs/bert_guide.md,
    INT8 inference, figure of `int8_mode` 1). Sums that are written whole are read so by the kernel behind
    (`SUM_BYTES`); products of `int8_mode` 2 (`quantised`) give 8-bit values; of others it is not known. Engines that
    scale by the values of each step read a layer's inputs at 16 bits and write them at 8, in a kernel before it
    (vLLM, docs: «FP8 W8A8», dynamic scales; SGLang's `per_token_group_quant_fp8`); what goes to experts before it is
    dealt out. Head and router stay at 16 bits.
    """
    apart, dynamic = (served.low_bit and flag for flag in (engine.quantises_apart, engine.quantises_inputs))
    for operator in operators:
        if dynamic and operator.kind == "gemm" and operator.name not in WIDE_PRODUCTS:
            copies = shape.experts_per_token if np.max(operator.groups) > 1.0 and operator.name == "mlp up" else 1.0
            inputs = operator.rows * operator.weight_elements / (operator.columns * copies)
            yield Operator(name="quantising", kind="gemm", count=operator.count, moved_bytes=QUANTISED_BYTES * inputs)
        if apart and operator.kind == "gemm":
            wide = WIDE_OUTPUT_BYTES if quantised is None else 0.0 if quantised else SUM_BYTES
            moved = wide * operator.rows * operator.columns
            yield Operator(name="quantising", kind="gemm", count=operator.count, moved_bytes=moved, kernels=2.0)
        if casting and np.any(np.asarray(operator.weight_elements) > 0):
            moved = CAST_BYTES * operator.weight_elements
            yield Operator(
                name="weight casts", kind="gemm", count=operator.count, moved_bytes=moved,
                dispatch_share=0.0 if engine.scheduled_nodes else 1.0,
            )  # fmt: skip
        yield operator


def _dispatched(kernels: float) -> float:
    """Mean share of a module's host time of so many kernels, the first of which is called as one."""
    return (1.0 + CHAINED_SHARE * (kernels - 1.0)) / kernels


def _spelt(op: Operator, shape: ModelShape, span: Pass, engine: Engine) -> Operator:
    """The operator with the kernels it takes where nothing is fused, as the authors of a model write it.

    Queries, keys and values are three products, of an image one (timm, vision_transformer.py, `self.qkv`; torchvision,
    `MultiheadAttention`). A layer norm is one kernel, an RMS norm is cast, square, mean, add,
    root, two products and a cast, each with a residual sum behind it; rotary positions take two gathers and, for
    queries and keys each, two products, a negation, a concatenation and a sum. A decode step puts keys and values into
    the cache and, where heads share them, writes them out for each head.
    """
    if engine.fused_blocks:
        return _fused_blocks(op)
    if not engine.spelt_out:
        return op
    if op.name == "qkv":
        return op if shape.architecture == "vision-transformer" else replace(op, kernels=3.0)
    if op.name == "rotary":
        return replace(op, kernels=ROTARY_KERNELS, dispatch_share=CHAINED_SHARE)
    if op.name == "norms and residuals":
        each = NORM_KERNELS.get(shape.norm, 1.0) + 1.0
        kernels = op.kernels / LISTED_NORM_KERNELS * each
        return replace(op, kernels=kernels, dispatch_share=_dispatched(each))
    if op.name == "mlp activation":
        return replace(op, dispatch_share=_dispatched(float(np.max(op.kernels))))
    if op.kind == "attention":
        written = CACHE_KERNELS * (2.0 if repeated_heads(shape, engine) else 1.0) if shape.causal else 0.0
        kernels = op.kernels + np.where(np.asarray(span.query) > 1, 0.0, written)
        return replace(op, kernels=kernels, dispatch_share=CHAINED_SHARE)
    return op


def _fused_blocks(op: Operator) -> Operator:
    """The operator with the kernels that it has in a network written for transformers.

    A norm is one kernel with the residual sum before it, an activation is in the product that it follows
    (NVIDIA/TensorRT, demo/BERT, builder.py: `CustomSkipLayerNormPluginDynamic`; AITemplate, `gemm_rcr_bias_gelu`), and
    the three tables are looked up in one kernel.
    """
    if op.name == "norms and residuals":
        return replace(op, kernels=op.kernels / LISTED_NORM_KERNELS)
    if op.name == "mlp activation":
        return replace(op, kernels=0.0)
    return replace(op, kernels=1.0) if op.name == "embedding" else op


def pass_s(work: PassWork, engine: Engine) -> Array:
    """Seconds of the pass under `engine`: kernels (or the host), what a call and a sequence cost, all-reduces."""
    devices = work.devices
    if work.served.low_bit:
        devices = replace(devices, peak_flop_per_s=devices.peak_flop_per_s * engine.low_bit_fraction)
    seconds = engine_pass_s(work.stages, devices, engine, work.host_factor)
    seconds = seconds + (engine.call_us * work.host_factor + engine.sequence_us * work.batch) * 1e-6
    seconds = seconds + exchange_s(work, engine)
    if work.dealt is not None:
        seconds = seconds + dealing_s(work.dealt, devices, engine)
    return column(seconds, work.rows)


def exchange_s(work: PassWork, engine: Engine) -> Num:
    """All-reduces of the pass: a latency of the engine's, then 2(n-1)/n · bytes over the link's bus bandwidth.

    Small messages go in one shot, at a quarter of the latency of the ring that large ones need; not where each kernel
    is launched by a framework, which calls the ring for any size. The latency is that of four ranks, and in proportion
    to them: a ring takes 2(n - 1) steps (NVIDIA/nccl, src/graph/tuning.cc), and all wait for the slowest; not where a
    framework launches each call, whose host takes longer than that.
    Cards on PCIe share switches and sockets: their bus bandwidth falls like (2/n)^0.5 with the cards that take part.
    """
    ranks = np.asarray(work.tensor_parallel, dtype=np.float64)
    if not np.any(ranks > 1):
        return 0.0
    devices = work.devices
    size = work.exchanged_bytes
    start_s = one_shot(engine, size) * (1.0 if engine.host_us_per_kernel else ranks / EXCHANGE_RANKS)
    shared = shared_switches(devices, ranks)
    inside = shared * 2.0 * (ranks - 1) / ranks * size / devices.intra_bytes_per_s + start_s
    nodes = np.ceil(ranks / devices.per_node)
    between = 2.0 * (nodes - 1) / nodes * work.exchanged_bytes / devices.inter_bytes_per_s + devices.inter_latency_s
    return np.where(ranks > 1, work.exchanges * (inside + np.where(nodes > 1, between, 0.0)), 0.0)


def decoder_only(shape: ModelShape) -> ModelShape:
    """A decode step of an encoder-decoder runs its decoder; the encoder ran in prefill."""
    if shape.architecture != "encoder-decoder":
        return shape
    return replace(shape, architecture="decoder", encoder_layers=0, norms_per_layer=shape.norms_per_layer + 1)
