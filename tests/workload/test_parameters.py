"""Parameter counts computed from shapes equal the published ones, part by part where parts are published."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workload.macs import convolution_macs

from tonnage.errors import WorkloadError
from tonnage.workload.adapters import Targets, lora_parameters
from tonnage.workload.known import find_model, known_models, published_parameters
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import Convolution, ModelShape


@pytest.mark.parametrize("name", list(known_models()))
def test_count_is_within_half_a_percent_of_the_published(name: str) -> None:
    """Every known model: computed from its shape, within 0.5 % of the published count.

    Why 0.5 %: some are published rounded («66B»), most exactly.
    """
    assert count_parameters(find_model(name)).total == pytest.approx(published_parameters(name), rel=0.005)


ROUNDED = {
    "opt-66b",
    "mpt-30b",
    "stablelm-2-1.6b",
    "deepseek-v3",
    "deepseek-v3.1",
    "deepseek-r1",
    "llama-3.2-90b-vision",
}  # six published rounded, one 0.006 % below its own checkpoint


def test_most_counts_are_exact() -> None:
    """All but seven match to the last parameter; at least 80 % lie within 0.01 % whatever is added later."""
    inexact = {
        name for name in known_models() if count_parameters(find_model(name)).total != published_parameters(name)
    }
    assert inexact == ROUNDED
    close = [
        abs(count_parameters(shape).total / published_parameters(name) - 1) <= 1e-4
        for name, shape in known_models().items()
    ]
    assert sum(close) / len(close) >= 0.8


PYTHIA_NON_EMBEDDING = [  # EleutherAI/pythia README: Non-Embedding Params
    ("pythia-70m", 18_915_328),
    ("pythia-160m", 85_056_000),
    ("pythia-410m", 302_311_424),
    ("pythia-1b", 805_736_448),
    ("pythia-1.4b", 1_208_602_624),
    ("pythia-2.8b", 2_517_652_480),
    ("pythia-6.9b", 6_444_163_072),
    ("pythia-12b", 11_327_027_200),
]


@pytest.mark.parametrize(("name", "non_embedding"), PYTHIA_NON_EMBEDDING)
def test_embeddings_and_head_are_distinguished(name: str, non_embedding: int) -> None:
    """What is neither table nor vocabulary projection equals Pythia's published non-embedding parameters."""
    count = count_parameters(find_model(name))
    assert count.total - count.embedding_total - count.lm_head == non_embedding


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [  # active parameters per token as published by their authors
        ("mixtral-8x7b", 12.9e9, 0.005),  # arXiv:2401.04088: 13B; mistral.ai: 12.9B
        ("mixtral-8x22b", 39e9, 0.01),  # mistral.ai: 39B active of 141B
        ("qwen3-30b-a3b", 3.3e9, 0.02),  # Qwen3 technical report and card: 3.3B activated
        ("qwen3-235b-a22b", 22e9, 0.02),  # card: 22B activated
        ("deepseek-moe-16b", 2.8e9, 0.02),  # arXiv:2401.06066: 2.8B activated
        ("qwen1.5-moe-a2.7b", 2.7e9, 0.02),  # card: 2.7B activated
        ("deepseek-v3", 37e9, 0.02),  # arXiv:2412.19437: 37B activated
        ("deepseek-v2-lite", 2.4e9, 0.15),  # arXiv:2405.04434: 2.4B activated, tables left out
        ("gpt-oss-20b", 4.19e9, 0.02),  # card (arXiv:2508.10925), Table 1: 3.61B, without the input table of 0.58B
        ("gpt-oss-120b", 5.71e9, 0.02),  # the same: 5.13B
        ("qwen3-coder-480b-a35b", 35e9, 0.02),  # card: 35B activated
    ],
)
def test_active_parameters_of_experts(name: str, published: float, tolerance: float) -> None:
    """Parameters a token passes through match the published figure, as precisely as that is printed."""
    assert count_parameters(find_model(name)).active == pytest.approx(published, rel=tolerance)


def test_dense_models_are_wholly_active() -> None:
    """Without experts every parameter is active."""
    for shape in known_models().values():
        count = count_parameters(shape)
        assert count.active == count.total if not shape.experts else count.active < count.total


def test_a_bert_layer_has_its_published_parameters() -> None:
    """One layer of BERT base holds 7,087,872 parameters, and its parts follow from the paper's widths."""
    count = count_parameters(find_model("bert-base-uncased"))
    assert count.per_layer == 7_087_872
    assert count.attention == 12 * 4 * 768 * 768
    assert count.mlp == 12 * 2 * 768 * 3072
    assert count.embeddings == 30522 * 768 + 2 * 768
    assert count.positions == 512 * 768
    assert count.heads == 768 * 768


@pytest.mark.parametrize("name", list(known_models()))
def test_parts_sum_to_the_total(name: str) -> None:
    """The breakdown is complete: its parts sum to the total, none is negative."""
    count = count_parameters(find_model(name))
    parts = [getattr(count, part.name) for part in fields(count) if part.name not in ("per_layer", "idle_experts")]
    assert sum(parts) == count.total
    assert min(parts) >= 0


@given(
    layers=st.integers(1, 200),
    name=st.sampled_from([n for n, s in known_models().items() if not s.dense_layers]),
)
def test_each_further_layer_adds_one_layer(layers: int, name: str) -> None:
    """One layer more adds exactly `per_layer`, unless layers share their weights or are residual stages."""
    shape = find_model(name)
    count = count_parameters(replace(shape, layers=layers))
    longer = count_parameters(replace(shape, layers=layers + 1))
    repeated = not shape.shared_layers and shape.architecture != "convolution"
    assert longer.total - count.total == (count.per_layer if repeated else 0)


def test_tied_embeddings_are_counted_once() -> None:
    """Untying the head of GPT-2 adds one vocabulary matrix."""
    tied = find_model("gpt2")
    untied = replace(tied, tied_embeddings=False)
    assert count_parameters(untied).total - count_parameters(tied).total == 50257 * 768


@pytest.mark.parametrize(
    ("name", "rank", "targets", "published"),
    [
        ("mt0-large", 8, "attention", 2_359_296),  # PEFT README
        ("gpt2", 8, "attention", 294_912),  # PEFT, GPT-2 with c_attn
        ("llama-2-7b", 8, "attention", 4_194_304),  # PEFT and lit-gpt, q and v
        ("llama-2-7b", 8, "all-linear", 19_988_480),  # PEFT, seven projections
        ("llama-2-7b", 64, "all-linear", 159_907_840),  # QLoRA guides on the same seven
        ("llama-3.1-8b", 16, "all-linear", 41_943_040),  # Unsloth and PEFT, seven projections
        ("mistral-7b-v0.1", 16, "all-linear", 41_943_040),
        ("bloom-7b1", 16, "attention", 7_864_320),  # PEFT int8 example on bloom-7b1
        ("falcon-7b", 16, "attention", 4_718_592),  # query_key_value only
        ("opt-6.7b", 16, "attention", 8_388_608),  # PEFT int8 example on opt-6.7b
        ("bert-base-uncased", 8, "attention", 294_912),
    ],
)
def test_adapters_have_the_parameters_peft_prints(name: str, rank: int, targets: Targets, published: int) -> None:
    """LoRA adapters count as PEFT's `print_trainable_parameters` shows for the same targets."""
    assert lora_parameters(find_model(name), rank, targets) == published


def test_all_linear_adapts_experts_and_router() -> None:
    """On an MoE, all-linear adapts each expert and the router."""
    shape = find_model("mixtral-8x7b")
    per_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 8 * 3 * (4096 + 14336) + (4096 + 8)
    assert lora_parameters(shape, 4, "all-linear") == 4 * 32 * per_layer


@given(rank=st.integers(1, 512), name=st.sampled_from([n for n, s in known_models().items() if s.heads]))
def test_adapters_grow_with_rank(rank: int, name: str) -> None:
    """Adapters are proportional to the rank, and all-linear has more than attention."""
    shape = find_model(name)
    attention = lora_parameters(shape, rank, "attention")
    assert attention == rank * lora_parameters(shape, 1, "attention")
    assert lora_parameters(shape, rank, "all-linear") > attention > 0


@pytest.mark.parametrize(("name", "rank"), [("gpt2", 0), ("gpt2", -4), ("resnet-50", 8)])
def test_adapters_that_make_no_sense_are_refused(name: str, rank: int) -> None:
    """A rank below 1, or a network without linear layers, is an input error."""
    with pytest.raises(WorkloadError):
        lora_parameters(find_model(name), rank, "attention")


TORCHVISION_GMACS = [  # `_ops` in the weights metadata of torchvision: 10⁹ multiply-accumulates an image
    ("resnet-18", 1.814),
    ("resnet-34", 3.664),
    ("resnet-50", 4.089),
    ("resnet-101", 7.801),
    ("resnet-152", 11.514),
    ("resnext-50-32x4d", 4.23),
    ("wide-resnet-50-2", 11.398),
]


@pytest.mark.parametrize(("name", "gmacs"), TORCHVISION_GMACS)
def test_residual_networks_cost_what_is_published(name: str, gmacs: float) -> None:
    """Multiply-accumulates of convolutions and classifier equal torchvision's to its three decimals."""
    shape = find_model(name)
    assert (convolution_macs(shape.convolutions) + shape.hidden * shape.classes) / 1e9 == pytest.approx(
        gmacs, abs=0.0006
    )


def test_grouped_convolutions_cost_a_group_each() -> None:
    """A depthwise 3 x 3 over 32 channels at 112 x 112 is 32·9·112² multiply-accumulates."""
    depthwise = Convolution(in_channels=32, out_channels=32, kernel=3, output_side=112, groups=32)
    assert convolution_macs([depthwise]) == 32 * 9 * 112**2


def test_a_gpt3_shape_has_its_published_size() -> None:
    """Brown et al. 2020, Table 2.1: 96 layers of 12,288 are 175.0 billion parameters (printed rounded)."""
    gpt3 = ModelShape(
        name="gpt3-175b",
        architecture="decoder",
        layers=96,
        hidden=12288,
        heads=96,
        kv_heads=96,
        head_dim=128,
        ffn=49152,
        vocab=50257,
        max_positions=2048,
    )
    assert count_parameters(gpt3).total == pytest.approx(175.0e9, rel=0.005)


def test_adapters_of_latent_attention_follow_its_matrices() -> None:
    """DeepSeek-V2-Lite, rank 1, attention: h + a·192 for queries, 512 + a·256 for keys with values, in 27 layers."""
    shape = find_model("deepseek-v2-lite")
    assert lora_parameters(shape, 1, "attention") == 27 * ((2048 + 16 * 192) + (512 + 16 * 256))


def test_transformer_xl_has_one_matrix_of_positions_a_layer() -> None:
    """Transformer-XL Standard on WikiText-103 has 151 M parameters (Dai et al. 2019, arXiv:1901.02860, table 1): 16
    layers, 410 wide, ten heads of 41, 2,100 in the MLP, 267,735 words; a second matrix would make 153.5 M."""
    shape = ModelShape(
        name="transformer-xl", architecture="decoder", layers=16, hidden=410, heads=10, kv_heads=10, head_dim=41,
        ffn=2100, vocab=267_735, max_positions=0, positions="relative", relative_projections=True, qkv_bias=False,
        output_bias=False,
    )  # fmt: skip
    assert count_parameters(shape).total == pytest.approx(151e6, rel=0.004)
    projections, mlp = 5 * (410 + 410), 2 * (410 + 2100)  # query, key, value, output and positions
    assert lora_parameters(shape, 1, "all-linear") == 16 * (projections + mlp)
