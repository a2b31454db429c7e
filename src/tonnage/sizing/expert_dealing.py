"""Tokens handed to the ranks that hold their experts, and back, where ranks attend to requests of their own."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import Pass
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

ONE_SHOT_BYTES = float(2**18)  # engines' own all-reduce kernels hand over to NCCL near here
ONE_SHOT_SHARE = 0.25
# What NCCL counts for a card alone on PCIe 3 and 4 (links.csv) is 0.76 of the line rate; faster links are measured with
# all of their cards. Rings of cards that share switches and sockets reach 0.556 of the line rate with four of them and
# 0.444 with eight (NVIDIA/nccl#1639: 35 and 28 GB/s over PCIe 5); two are taken to be as four.
ALONE_BYTES_PER_S = 25e9
SHARING_RANKS, SHARING = (4.0, 8.0), (0.76 / 0.556, 0.76 / 0.444)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """What each rank sends in one mixture layer: `out_bytes` to the experts, `back_bytes` of their results.

    `ranks` share the experts; 1: attention is spread over the same ranks, which sum the results as elsewhere.
    """

    layers: float
    ranks: Num
    out_bytes: Num
    back_bytes: Num


def deal(shape: ModelShape, span: Pass, *, low_bit: bool) -> Dealt | None:
    """The exchange of a pass; None where every rank attends to the same requests (results are summed as elsewhere).

    Ranks that hold whole experts get the tokens routed to them (all-to-all: DeepEP, in vLLM, SGLang and TensorRT-LLM):
    a token goes once to each rank that holds one of its k experts, (n - 1)·(1 - (1 - 1/n)^k) others where routing is
    even. Ranks that cut every expert need all tokens (all-gather, then reduce-scatter): n - 1 others. Tokens go out in
    8 bits where products are in 8 bits, results come back in 16 (DeepSeek-V3, arXiv:2412.19437, section 3.2).
    """
    data = np.asarray(span.data_ranks, dtype=np.float64)
    if not shape.experts or not np.any(data > 1):
        return None
    ranks = data * span.tensor_parallel
    whole = np.asarray(span.expert_parallel) >= ranks
    to_all = ranks - 1.0
    to_some = to_all * (1.0 - (1.0 - 1.0 / ranks) ** shape.experts_per_token)
    own = span.tokens / span.tensor_parallel
    copies = np.where(data > 1, own * np.where(whole, to_some, to_all), 0.0) * shape.hidden
    return Dealt(
        layers=float(shape.layers - shape.dense_layers), ranks=np.where(data > 1, ranks, 1.0),
        out_bytes=copies * (1.0 if low_bit else 2.0), back_bytes=copies * 2.0,
    )  # fmt: skip


def dealing_s(dealt: Dealt, devices: Devices, engine: Engine) -> Num:
    """Seconds of all layers: two collectives each, what a rank sends over its link."""
    ranks = np.asarray(dealt.ranks, dtype=np.float64)
    shared = shared_switches(devices, ranks)
    each: Num = np.float64(0.0)
    for size in (dealt.out_bytes, dealt.back_bytes):
        each = each + shared * size / devices.intra_bytes_per_s + one_shot(engine, size)
    return np.where(ranks > 1, dealt.layers * each, 0.0)


def one_shot(engine: Engine, size: Num) -> Num:
    """Seconds before a collective of `size` bytes moves: small ones go in one shot, at a quarter of a ring's latency;
    not where each kernel is launched by a framework, which calls the ring for any size."""
    least = 1.0 if engine.host_us_per_kernel else ONE_SHOT_SHARE
    return engine.exchange_us * 1e-6 * (least + (1.0 - least) * size / (size + ONE_SHOT_BYTES))


def shared_switches(devices: Devices, ranks: Num) -> Num:
    """How much longer than one alone cards on PCIe take because they share switches and sockets."""
    sharing = np.interp(np.asarray(ranks, dtype=np.float64), SHARING_RANKS, SHARING)
    return np.where(devices.intra_bytes_per_s < ALONE_BYTES_PER_S, sharing, 1.0)
