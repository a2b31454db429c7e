"""Parameters counted from a `config.json` equal those of the model that transformers builds from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.workload.families import _families
from tonnage.workload.huggingface import parse_huggingface_config
from tonnage.workload.parameters import count_parameters

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

Draw = Callable[[st.SearchStrategy[Any]], Any]
Sizes = Callable[[Draw], dict[str, Any]]


def test_one_kernel_of_attention_is_where_transformers_has_it() -> None:
    """`fused_attention` of each family is what the classes of that `model_type` say; of one that transformers does not
    have, nothing is said. Mended in families.toml when a release changes it."""
    own = {family: bool(values.get("fused_attention")) for family, values in _families().items()}
    named = {name: name.replace("-", "_") for name in own}
    named |= {"gemma3_text": "gemma3", "llama4_text": "llama4"}
    root = Path(transformers.__file__).parent / "models"
    found = {}
    for family, folder in named.items():
        code = root / folder / f"modeling_{folder}.py"
        found[family] = code.is_file() and "_supports_sdpa = True" in code.read_text(encoding="utf-8")
    assert sum(found.values()) > 30
    assert own == found


def stack(draw: Draw, *, grouped: bool = True) -> dict[str, Any]:
    """Sizes of a Llama-like stack: heads of an even width, key and value heads that divide them."""
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4)) if grouped else 1
    return {
        "num_hidden_layers": draw(st.integers(1, 9)),
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "hidden_size": kv_heads * group * 8 * draw(st.integers(1, 4)),
        "intermediate_size": 8 * draw(st.integers(1, 40)),
        "vocab_size": draw(st.integers(1000, 5000)),
        "tie_word_embeddings": draw(st.booleans()),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def wide(draw: Draw) -> dict[str, Any]:
    """A stack whose heads need not fill the hidden width."""
    return {**stack(draw), "head_dim": 8 * draw(st.integers(1, 9))}


def routed(draw: Draw, key: str) -> dict[str, Any]:
    experts = draw(st.integers(2, 9))
    return {key: experts, "num_experts_per_tok": draw(st.integers(1, experts))}


def latent(draw: Draw) -> dict[str, Any]:
    sizes = {**stack(draw, grouped=False), **routed(draw, "n_routed_experts")}
    layers = sizes["num_hidden_layers"]
    return {
        **sizes,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": draw(st.sampled_from([None, 24, 48])),
        "kv_lora_rank": 8 * draw(st.integers(1, 6)),
        "qk_nope_head_dim": 8 * draw(st.integers(1, 4)),
        "qk_rope_head_dim": 2 * draw(st.integers(1, 8)),
        "v_head_dim": 8 * draw(st.integers(1, 4)),
        "moe_intermediate_size": 8 * draw(st.integers(1, 9)),
        "n_shared_experts": draw(st.integers(1, 3)),
        "first_k_dense_replace": draw(st.integers(0, layers - 1)),
    }


def tower(draw: Draw, **names: Any) -> dict[str, Any]:
    """Sizes of an image encoder."""
    heads, patch = draw(st.integers(1, 4)), draw(st.integers(2, 8)) * 2
    return {
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "hidden_size": heads * 8 * draw(st.integers(1, 3)),
        "intermediate_size": 8 * draw(st.integers(1, 20)),
        "patch_size": patch,
        "image_size": patch * draw(st.integers(1, 9)),
        **names,
    }


def pair(draw: Draw) -> dict[str, Any]:
    text = {key: value for key, value in stack(draw, grouped=False).items() if key != "tie_word_embeddings"}
    return {"text_config": text, "vision_config": tower(draw)}


def qwen_images(draw: Draw) -> dict[str, Any]:
    text, heads = stack(draw), draw(st.integers(1, 4))
    vision = {
        "depth": draw(st.integers(1, 4)),
        "num_heads": heads,
        "hidden_size": heads * 8 * draw(st.integers(1, 3)),
        "intermediate_size": 8 * draw(st.integers(1, 20)),
        "out_hidden_size": text["hidden_size"],
        "patch_size": 14,
    }
    tied = text["tie_word_embeddings"]
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


def crossed(draw: Draw) -> dict[str, Any]:
    text = {**stack(draw), "tie_word_embeddings": False}
    layers = text["num_hidden_layers"] + 1
    vision = tower(draw, num_global_layers=draw(st.integers(1, 3)))
    vision["attention_heads"] = vision.pop("num_attention_heads")
    vision["supported_aspect_ratios"] = [[1, 1], [1, 2], [2, 1]]
    vision["intermediate_layers_indices"] = [0]
    vision["vision_output_dim"] = 2 * vision["hidden_size"]
    crossing = sorted(draw(st.sets(st.integers(0, layers - 1), min_size=1, max_size=layers - 1)))
    return {
        "text_config": {**text, "num_hidden_layers": layers, "cross_attention_layers": crossing},
        "vision_config": vision,
    }


def llama4(draw: Draw) -> dict[str, Any]:
    return {
        **wide(draw),
        **routed(draw, "num_local_experts"),
        "tie_word_embeddings": False,
        "intermediate_size_mlp": 8 * draw(st.integers(1, 20)),
        "interleave_moe_layer_step": 1,
    }


def interleaved(draw: Draw) -> dict[str, Any]:
    sizes = llama4(draw)
    step = draw(st.integers(1, 3))
    layers = step * draw(st.integers(1, 3))
    return {**sizes, "num_hidden_layers": layers, "interleave_moe_layer_step": step}


def whisper(draw: Draw) -> dict[str, Any]:
    heads = draw(st.integers(1, 4))
    width, ffn = heads * 8 * draw(st.integers(1, 4)), 8 * draw(st.integers(1, 20))
    return {
        "d_model": width,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": ffn,
        "decoder_ffn_dim": ffn,
        "encoder_layers": draw(st.integers(1, 4)),
        "decoder_layers": draw(st.integers(1, 4)),
        "num_mel_bins": draw(st.sampled_from([80, 128])),
        "max_source_positions": draw(st.integers(10, 90)),
        "max_target_positions": draw(st.integers(10, 90)),
        "vocab_size": 1000,
        "pad_token_id": 0,
    }


def images_and_text(text: Sizes, **fixed: Any) -> Sizes:
    def sizes(draw: Draw) -> dict[str, Any]:
        inner = text(draw)
        vision = tower(draw, **fixed)
        return {"text_config": inner, "vision_config": vision, "tie_word_embeddings": inner["tie_word_embeddings"]}

    return sizes


ARCHITECTURES: list[tuple[str, str, Sizes]] = [  # class, its configuration, sizes
    ("LlamaForCausalLM", "LlamaConfig", stack),
    ("MistralForCausalLM", "MistralConfig", wide),
    ("Qwen2ForCausalLM", "Qwen2Config", stack),
    ("Qwen3ForCausalLM", "Qwen3Config", wide),
    ("Qwen3ForSequenceClassification", "Qwen3Config", wide),
    (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        lambda draw: {
            **wide(draw),
            **routed(draw, "num_experts"),
            "moe_intermediate_size": 8 * draw(st.integers(1, 9)),
        },
    ),
    (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        lambda draw: {
            **stack(draw),
            **routed(draw, "num_experts"),
            "moe_intermediate_size": 8 * draw(st.integers(1, 9)),
            "shared_expert_intermediate_size": 8 * draw(st.integers(1, 9)),
        },
    ),
    ("MixtralForCausalLM", "MixtralConfig", lambda draw: {**stack(draw), **routed(draw, "num_local_experts")}),
    ("GemmaForCausalLM", "GemmaConfig", wide),
    ("Gemma2ForCausalLM", "Gemma2Config", wide),
    ("Gemma3ForCausalLM", "Gemma3TextConfig", wide),
    ("Gemma3ForConditionalGeneration", "Gemma3Config", images_and_text(wide, vision_use_head=False)),
    ("Phi3ForCausalLM", "Phi3Config", stack),
    ("Olmo2ForCausalLM", "Olmo2Config", stack),
    ("GptOssForCausalLM", "GptOssConfig", lambda draw: {**wide(draw), **routed(draw, "num_local_experts")}),
    ("DeepseekV2ForCausalLM", "DeepseekV2Config", latent),
    ("DeepseekV3ForCausalLM", "DeepseekV3Config", lambda draw: {**latent(draw), "num_mtp_layers": 0}),
    ("Llama4ForCausalLM", "Llama4TextConfig", interleaved),
    (
        "Llama4ForConditionalGeneration",
        "Llama4Config",
        lambda draw: {
            "text_config": llama4(draw),
            "vision_config": tower(
                draw, projector_input_dim=64, projector_output_dim=64, vision_output_dim=64, pixel_shuffle_ratio=0.5
            ),
        },
    ),
    ("Mistral3ForConditionalGeneration", "Mistral3Config", images_and_text(wide)),
    ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", qwen_images),
    ("MllamaForConditionalGeneration", "MllamaConfig", crossed),
    ("ModernBertModel", "ModernBertConfig", lambda draw: stack(draw, grouped=False)),
    ("ModernBertForMaskedLM", "ModernBertConfig", lambda draw: {**stack(draw, grouped=False), "norm_bias": True}),
    ("ModernBertForSequenceClassification", "ModernBertConfig", lambda draw: stack(draw, grouped=False)),
    ("WhisperForConditionalGeneration", "WhisperConfig", whisper),
    ("CLIPModel", "CLIPConfig", pair),
    ("SiglipModel", "SiglipConfig", pair),
]


def stored_parameters(model_class: str, config: Any) -> int:
    """Parameters of the model, built without memory; tied tables count once."""
    with torch.device("meta"):
        model = getattr(transformers, model_class)._from_config(config)
    model.tie_weights()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("model_class", "config_class", "sizes"), ARCHITECTURES, ids=[row[0] for row in ARCHITECTURES])
@given(data=st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_count_is_that_of_the_built_model(
    model_class: str, config_class: str, sizes: Sizes, data: st.DataObject
) -> None:
    """Whatever the sizes, the configuration that transformers writes gives its own model's parameters, to the last."""
    config = getattr(transformers, config_class)(**sizes(data.draw))
    read = parse_huggingface_config({**config.to_dict(), "architectures": [model_class]}, name="mine")
    assert count_parameters(read).total == stored_parameters(model_class, config)
