"""Attention with shifted positions, served: XLNet's three score matrices and what programs move to join them.

A query meets the keys, the positions of twice the length (each row is shifted by its query's place, half of it is
left) and the two embeddings of segments (Yang et al. 2019, arXiv:1906.08237; Dai et al. 2019, arXiv:1901.02860).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import Operator, Pass, gemm
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

SINGLE_ELEMENT_BYTES: Final = 4.0  # that kernels of one element a thread move it at, if it is narrower
# Passes over queries that have three biases of their own and over keys of twice the length: two further queries and
# those keys written, and read by the products.
OPERAND_PASSES: Final = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedScores:
    """How one program joins the scores: `passes` over a matrix of query x key x head, of which `single` are by kernels
    that take an element a thread; `kernels` of a layer beside the product of queries and keys and that with the values.
    """

    passes: float
    single: float
    kernels: float
    tiled: bool  # positions are repeated for each sequence of the batch before they are projected


# FasterTransformer's kernels: products write 1 + 2 + 1, segments are turned over the heads (2, an element a thread),
# the shift reads two and writes one (an element a thread), sum and softmax read three and write one, values read one
# (NVIDIA/FasterTransformer, layers/xlnet_attention_layers/XlnetAttentionLayer.cc, kernels/xlnet_attention_kernels.cu).
KERNELS: Final = ShiftedScores(passes=14.0, single=3.0, kernels=9.0, tiled=False)
# transformers (modeling_xlnet.py, `rel_attn_core`): products write 1 + 2 + 1, the slice is copied (4), half of it is
# selected (2), two sums (3 + 3), scale, mask and softmax (2 each), values read one. Slice, selection and the segments'
# part of the sum go by an element a thread.
PRIMITIVES: Final = ShiftedScores(passes=23.0, single=7.0, kernels=20.0, tiled=True)
# TensorFlow by the authors' graph (zihangdai/xlnet, modeling.py, `rel_attn_core`): scores lie query x key x batch x
# head, so that each product is turned (1 + 2, 2 + 4, 1 + 2), slices (4 + 2), sums (3 + 3), scale and mask (2 + 2), a
# softmax over keys turns them and back (6), values turn them again and read (3).
GRAPH: Final = ShiftedScores(passes=37.0, single=14.0, kernels=26.0, tiled=True)
# The same under XLA: slices, sums, scale and mask are one kernel (three reads, a write), a softmax over keys is a
# maximum, a sum and a quotient (4); what turns a matrix stays, since a library multiplies.
COMPILED: Final = ShiftedScores(passes=23.0, single=10.0, kernels=17.0, tiled=True)
_PROGRAMS: Final = MappingProxyType({
    "eager": PRIMITIVES, "captured": PRIMITIVES, "traced": PRIMITIVES, "optimised": PRIMITIVES, "graph": GRAPH,
    "compiled": COMPILED,
})  # fmt: skip


def shifted_scores(engine: str) -> ShiftedScores:
    """What programs of this engine class do; those whose source is not read are taken as kernels of their own."""
    return _PROGRAMS.get(engine, KERNELS)


def shifted_operators(
    shape: ModelShape, span: Pass, program: ShiftedScores, *, name: str, scores: Num, dispatch_share: float
) -> tuple[Operator, Operator]:
    """The projection of positions, and all traffic of scores and their operands. `scores`: elements of one matrix.

    It is what the program's source moves: no share of it is left to fusion.
    """
    element = max(span.element_bytes, 2.0)
    width = shape.heads * shape.head_dim / span.tensor_parallel
    moved = (program.passes - program.single) * element + program.single * max(element, SINGLE_ELEMENT_BYTES)
    rows = 2.0 * span.keys * (span.batch if program.tiled else 1.0)
    return (
        gemm("position projection", span, rows=rows, inner=shape.hidden, columns=width),
        Operator(
            name=name,
            kind="gemm",
            moved_bytes=scores * moved + OPERAND_PASSES * span.tokens * width * element,
            kernels=program.kernels,
            dispatch_share=dispatch_share,
            scores=True,
        ),
    )
