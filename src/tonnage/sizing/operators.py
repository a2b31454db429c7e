"""Operators: what one piece of a forward pass does (FLOP) and moves (bytes). `layer_operators` lists a layer's.

A column in (micro-batch, tensor parallel degree...) gives columns out. FLOP counts a multiply-add as two.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from tonnage.sizing.estimates import Num
from tonnage.values import dataclass

ALIGNED_BYTES = 16  # where rows start that tensor cores read at once
TILE: Final = 128.0  # outputs of a product that one multiprocessor makes together, in each direction

Kind = Literal["gemm", "attention", "elementwise", "convolution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One kind of work in a forward pass, done `count` times.

    `flop` and `moved_bytes` are for one time. `rows` x `columns` is the output of a matrix product (what tiles cover);
    `weight_elements` are read once per time. `kernels` counts the launches of one time in an unfused framework.
    """

    name: str
    kind: Kind
    count: Num = 1.0
    flop: Num = 0.0
    moved_bytes: Num = 0.0
    rows: Num = 1.0
    columns: Num = 1.0
    weight_elements: Num = 0.0
    kernels: Num = 1.0
    dispatch_share: Num = 1.0  # of what a framework's host takes for a module, for each of those kernels
    ramp: Num = 1.0  # output tiles at which it reaches half its rate, over those of a 16-bit product
    groups: Num = 1.0  # matrix products one kernel does side by side, each of rows x columns (experts)
    query_length: Num = 1.0
    blocks: Num = 0.0  # thread blocks of an attention kernel that does not divide heads; 0: it divides them
    peak_share: Num = 1.0  # of the peak rate: work that stays at 16 bit beside 8-bit products, tiles part empty
    strided_elements: Num = 0.0  # of those moved, the ones that kernels take one by one, out of order
    scores: bool = False  # keeps the score matrix; selective recomputation does it again
    row_alignment: Num = 16.0  # bytes that rows of its output start at multiples of, at most ALIGNED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one forward pass covers: `batch` sequences of `query` new tokens looking at `keys` tokens.

    `element_bytes` / `residual_bytes` as in `precision.TrainingNumbers`; `weight_bytes` per weight as read by kernels.
    """

    batch: Num
    query: Num
    keys: Num
    element_bytes: float = 2.0
    residual_bytes: float = 2.0
    weight_bytes: float = 2.0
    expert_weight_bytes: float = 0.0  # of routed experts; 0: as the rest
    tensor_parallel: Num = 1.0
    attention: str = "sdpa"
    training: bool = True
    cached_keys: Num = 0.0  # of `keys`, tokens of an earlier segment whose keys and values are computed again
    sequence_parallel: bool = True  # tensor-parallel ranks share norms, dropout and residual adds
    transposed: bool = False  # 16-bit convolutions of a program that keeps channels first
    loss_bytes: float = 16.0  # that the loss moves for a logit forward; backward twice that
    rare_words: tuple[tuple[float, float], ...] = ()  # clusters of an adaptive softmax: share of the tokens, words
    odd_rows: bool = True  # a vocabulary is taken as it is, not padded to what tensor cores read
    primitives: bool = False  # a graph keeps and launches every primitive by itself (TensorFlow)
    winograd: bool = False  # 3 x 3 convolutions save products (32-bit arithmetic without tensor cores)
    tensor_cores: bool = True  # multiply convolutions; without them 32-bit arithmetic
    half_rate: float = 1.0  # rate of 16-bit work as a share of the peak (0.5 where the peak is the 8-bit one)
    grouped_experts: bool = False  # one kernel multiplies the rows of all experts (serving engines), or one each
    data_ranks: Num = 1.0  # groups of ranks that attend to requests of their own and share the experts
    expert_parallel: Num = 1.0  # ranks that experts are dealt to whole; what is left of the ranks cuts each of them
    group_tokens: Num = 0.0  # tokens that the experts see; 0: those of this rank, on each of the data ranks

    @property
    def tokens(self) -> Num:
        return self.batch * self.query

    @property
    def routed_tokens(self) -> Num:
        """Tokens of all ranks that share the experts."""
        return np.where(np.asarray(self.group_tokens) > 0, self.group_tokens, self.tokens * self.data_ranks)


def gemm(name: str, span: Pass, *, rows: Num, inner: Num, columns: Num, count: Num = 1.0) -> Operator:
    """rows x inner times inner x columns: 2·m·k·n FLOP; input, weights and output each move once."""
    element, weight = span.element_bytes, span.weight_bytes
    return Operator(
        name=name,
        kind="gemm",
        count=count,
        flop=2.0 * rows * inner * columns,
        moved_bytes=element * (rows * inner + rows * columns) + weight * inner * columns,
        rows=rows,
        columns=columns,
        weight_elements=inner * columns,
    )


def elementwise(
    name: str,
    *,
    moved_bytes: Num,
    kernels: Num = 1.0,
    count: Num = 1.0,
    scores: bool = False,
    strided_elements: Num = 0.0,
) -> Operator:
    """Work bound by memory: norms, activations, residual adds, dropout, look-ups."""
    return Operator(
        name=name,
        kind="elementwise",
        count=count,
        moved_bytes=moved_bytes,
        kernels=kernels,
        scores=scores,
        strided_elements=strided_elements,
    )
