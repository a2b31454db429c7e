"""Operators: FLOP and kept bytes against published formulas."""

from dataclasses import replace

import numpy as np
import pytest

from tonnage.sizing.convolution_operators import convolution_operators
from tonnage.sizing.layer_operators import layer_operators
from tonnage.sizing.operators import Pass
from tonnage.sizing.rates import total_flop
from tonnage.sizing.stages import forward_stages
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape


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


@pytest.mark.parametrize(("depth", "kernels"), [(18, 20 + 17 + 8), (34, 36 + 33 + 16), (50, 53 + 49 + 16)])
def test_residual_networks_launch_a_kernel_for_each_norm_rectifier_and_sum(depth: int, kernels: int) -> None:
    """He et al. 2015, table 1: a norm for each convolution, no rectifier behind the shortcuts that project (3 of 18 and
    34 layers, 4 of 50), a sum for each block."""
    shape = find_model(f"resnet-{depth}")
    operators = convolution_operators(shape, Pass(batch=1.0, query=1.0, keys=1.0))
    behind = [op for op in operators if op.name == "norm and activation"]
    assert sum(float(op.count * op.kernels) for op in behind) == kernels


def test_a_column_of_layouts_equals_its_rows() -> None:
    """Formulas over columns give what they give one by one."""
    shape = find_model("gpt2")
    batches = np.array([1.0, 8.0, 64.0])
    together = total_flop(layer_operators(shape, Pass(batch=batches, query=128.0, keys=128.0), causal=True))
    apart = [
        float(total_flop(layer_operators(shape, Pass(batch=b, query=128.0, keys=128.0), causal=True))) for b in batches
    ]
    assert np.asarray(together).tolist() == apart


def decode_bytes_and_flop(name: str, keys: float, tensor_parallel: float = 1.0) -> tuple[float, float]:
    """What attention of the mean layer moves and multiplies in one decode step of one request."""
    shape = find_model(name)
    span = Pass(batch=1.0, query=1.0, keys=keys, tensor_parallel=tensor_parallel, training=False)
    operators = [op for op in layer_operators(shape, span, causal=True) if op.kind == "attention"]
    return sum(float(op.count * op.moved_bytes) for op in operators), sum(float(op.count * op.flop) for op in operators)


def test_latent_attention_reads_the_compressed_cache() -> None:
    """DeepSeek-V3: a cached token is 512 + 64 elements a layer, whatever the ranks; 128 heads meet each of them."""
    moved = [decode_bytes_and_flop("deepseek-v3", keys)[0] for keys in (1000.0, 2000.0)]
    assert moved[1] - moved[0] == pytest.approx(1000 * 576 * 2)
    shared = [decode_bytes_and_flop("deepseek-v3", keys, 8.0)[0] for keys in (1000.0, 2000.0)]
    assert shared[1] - shared[0] == pytest.approx(1000 * 576 * 2)
    assert decode_bytes_and_flop("deepseek-v3", 1000.0)[1] == pytest.approx(2 * 1000 * 128 * (2 * 512 + 64))


def test_latent_projections_multiply_every_weight_once_a_token() -> None:
    """The matrix products of a layer with latent attention cost 2 FLOP for each of its weights that a token meets."""
    shape = find_model("deepseek-v2-lite")
    span = Pass(batch=1.0, query=64.0, keys=64.0, training=False)
    products = [op for op in layer_operators(shape, span, causal=True) if op.kind == "gemm"]
    attention = [op for op in products if not op.name.startswith(("mlp", "router"))]
    assert sum(float(op.flop) for op in attention) == pytest.approx(
        2 * 64 * count_parameters(shape).attention / shape.layers
    )


def test_a_window_bounds_what_some_layers_read() -> None:
    """gpt-oss at 100,000 tokens: half of the layers read 128 keys, so the mean layer reads half of a full one."""
    shape = find_model("gpt-oss-20b")
    full = replace(shape, sliding_window=0, full_layers=0)
    span = Pass(batch=1.0, query=1.0, keys=100_000.0, training=False)

    def read(one: ModelShape) -> float:
        return sum(
            float(op.count * op.moved_bytes) for op in layer_operators(one, span, causal=True) if op.kind == "attention"
        )

    assert read(shape) / read(full) == pytest.approx(0.5 * (1 + 128 / 100_000), rel=0.01)


@pytest.mark.parametrize(("length", "expected"), [(100.0, 50.0), (1000.0, 500.0), (4000.0, 1000 - 1000**2 / 8000)])
def test_the_mean_query_behind_a_window_sees_what_the_window_lets_it(length: float, expected: float) -> None:
    """Causal attention over s tokens behind a window of w: s/2 keys a query below w, else w - w²/2s."""
    shape = replace(find_model("llama-2-7b"), sliding_window=1000)
    span = Pass(batch=1.0, query=length, keys=length, training=False)
    (attention,) = [op for op in layer_operators(shape, span, causal=True) if op.kind == "attention"]
    assert float(attention.flop) / (4 * length * shape.heads * shape.head_dim) == pytest.approx(expected)
