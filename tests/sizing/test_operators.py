"""Operators: FLOP and kept bytes against published formulas."""

import numpy as np
import pytest

from tonnage.sizing.operators import Pass, convolution_operators, layer_operators
from tonnage.sizing.rates import total_flop
from tonnage.sizing.stages import forward_stages
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters


@pytest.mark.parametrize("model", ["gpt2", "llama-2-7b", "llama-3.1-70b", "bert-base-uncased", "mistral-7b-v0.1"])
def test_forward_flop_is_two_per_weight_and_token_plus_attention(model: str) -> None:
    """Forward FLOP = 2·(matrix weights)·tokens + attention scores, the usual accounting, to 1 %."""
    shape = find_model(model)
    s = 512.0
    span = Pass(batch=2.0, query=s, keys=s, attention="eager")
    flop = sum(st.repeats * float(total_flop(st.operators)) for st in forward_stages(shape, span, logit_tokens=2 * s))
    count = count_parameters(shape)
    matrices = count.attention + count.mlp + shape.vocab * shape.hidden
    attention = 4.0 * 2 * s * s * shape.heads * shape.head_dim * shape.layers
    assert flop == pytest.approx(2 * matrices * 2 * s + attention, rel=0.01)


def test_routed_experts_cost_only_what_a_token_uses() -> None:
    """Mixtral's forward FLOP follow its active parameters, not its total (within 2 %, attention apart)."""
    shape = find_model("mixtral-8x7b-v0.1")
    span = Pass(batch=1.0, query=4096.0, keys=1.0)
    flop = sum(st.repeats * float(total_flop(st.operators)) for st in forward_stages(shape, span, logit_tokens=4096.0))
    active = count_parameters(shape).active - shape.vocab * shape.hidden  # the embedding look-up is no product
    assert flop == pytest.approx(2 * active * 4096, rel=0.02)


def test_resnet50_forward_flop_match_published() -> None:
    """ResNet-50 at 224 pixels: 4.09 G multiply-adds an image (torchvision), so 8.18 GFLOP, to 1 %."""
    shape = find_model("resnet-50")
    flop = float(total_flop(convolution_operators(shape, Pass(batch=1.0, query=1.0, keys=1.0))))
    assert flop == pytest.approx(8.18e9, rel=0.01)


def test_a_column_of_layouts_equals_its_rows() -> None:
    """Formulas over columns give what they give one by one."""
    shape = find_model("gpt2")
    batches = np.array([1.0, 8.0, 64.0])
    together = total_flop(layer_operators(shape, Pass(batch=batches, query=128.0, keys=128.0), causal=True))
    apart = [
        float(total_flop(layer_operators(shape, Pass(batch=b, query=128.0, keys=128.0), causal=True))) for b in batches
    ]
    assert np.asarray(together).tolist() == apart
