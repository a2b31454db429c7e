"""A Hugging Face config.json becomes the right shape, or an error that says what to mend."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import WorkloadError
from tonnage.workload.huggingface import READERS, load_huggingface_config, parse_huggingface_config
from tonnage.workload.huggingface.defaults import TRANSFORMERS_DEFAULTS
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters

EXAMPLES = int(os.environ.get("TONNAGE_EXAMPLES", "100"))  # `make test-slow` tries more
SAMPLES = Path(__file__).parents[1] / "data" / "models"
FILES = sorted(SAMPLES.glob("*.json"))
PACKAGED = sorted(Path(str(files("tonnage.workload"))).joinpath("data/configs").glob("*.json"))
CONFIGS: dict[str, dict[str, Any]] = {file.stem: json.loads(file.read_text()) for file in (*FILES, *PACKAGED)}
CONFIGS["llama-4-maverick's text model"] = CONFIGS["llama-4-maverick"]["text_config"]


def without(name: str, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in CONFIGS[name].items() if key not in keys}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_has_the_parameters_of_the_known_model(file: Path) -> None:
    """A published config.json gives exactly the parameters of the known model it is named after."""
    shape = load_huggingface_config(file)
    known = find_model(file.stem)
    expected = count_parameters(known).total
    if file.stem == "electra-small-discriminator":
        expected += known.hidden + 1  # the file is the whole discriminator: one output on top of the known shape
    assert count_parameters(shape).total == expected
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads) == (
        known.layers,
        known.hidden,
        known.heads,
        known.kv_heads,
    )
    assert shape.architecture == known.architecture
    assert shape.source.startswith(str(file))


def test_every_model_type_that_is_read_has_a_sample() -> None:
    """No reader goes untested, and each has its table of defaults."""
    assert {config["model_type"] for config in CONFIGS.values()} == set(READERS)
    assert set(READERS) <= set(TRANSFORMERS_DEFAULTS)


def refusal(config: dict[str, Any]) -> WorkloadError | None:
    """The error that reading `config` gives, None where it gives a shape; any other goes through."""
    try:
        shape = parse_huggingface_config(config, name="mine", file="config.json")
    except WorkloadError as error:
        return error
    count = count_parameters(shape)
    assert 0 < count.active <= count.total
    return None


NO_PART_OF_THE_SHAPE = {
    "architectures",
    "num_labels",
    "hidden_act",
    "layer_norm_eps",
    "n_ctx",
    "rotary_dim",
} | {
    "partial_rotary_factor",
    "window_size",
    "mm_tokens_per_image",
    "quantization_config",
    "use_qk_norm",
}
DERIVED = {  # keys that transformers itself derives, or does not use, when they are left out
    "albert": {"inner_group_num", "num_hidden_groups"},
    "llama": {"head_dim"},
    "gpt_neo": {"intermediate_size"},
    "gptj": {"n_inner"},
    "qwen2_moe": {"shared_expert_intermediate_size"},
    "qwen3_moe": {"mlp_only_layers", "head_dim"},
    "t5": {"n_positions"},
    "deepseek_v2": {"q_lora_rank"},
    "deepseek_v3": {"q_lora_rank", "num_key_value_heads"},
    "gpt_oss": {"layer_types"},
    "qwen2_5_vl": {"num_key_value_heads", "use_sliding_window"},  # defaults of the text model inside
    "mpt": {"attn_config"},
}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_each_size_is_needed(name: str) -> None:
    """A key that is left out either has a documented transformers default or is named in the error."""
    model_type = CONFIGS[name]["model_type"]
    optional = {*TRANSFORMERS_DEFAULTS[model_type], *DERIVED.get(model_type, ()), *NO_PART_OF_THE_SHAPE}
    for key in CONFIGS[name]:
        error = refusal(without(name, key))
        if key in optional:
            assert error is None or "leaves" in str(error.hint), f"{name} without {key}: {error}"
            continue
        assert error is not None, f"{name}: '{key}' was silently assumed"
        assert (error.file, error.key is None, "missing" in str(error)) == ("config.json", False, True)
        assert error.hint


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), 4096.5, "4096", True, [4096], {}, 10**12])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads"])
def test_a_size_that_is_no_size_is_named(key: str, bad: Any) -> None:
    """Zero, negative, NaN, fractions, text and absurd figures are refused: key, value, what is expected."""
    with pytest.raises(WorkloadError) as caught:
        parse_huggingface_config({**CONFIGS["llama-2-7b"], key: bad}, name="mine", file="mine/config.json")
    assert caught.value.key == key
    assert "expected" in str(caught.value)
    assert "mine/config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "key"),
    [
        ("llama-2-7b", {"num_attention_heads": 33, "num_key_value_heads": 33}, "hidden_size"),
        ("llama-2-7b", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("llama-2-7b", {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ("llama-2-7b", {"architectures": ["LlamaForSomething"]}, "architectures"),
        ("llama-2-7b", {"architectures": "LlamaForCausalLM"}, "architectures"),
        ("bert-base-uncased", {"architectures": ["BertForSomething"]}, "architectures"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0]}, "mlp_only_layers"),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("deepseek-moe-16b", {"first_k_dense_replace": 28}, "first_k_dense_replace"),
        ("deberta-base", {"pos_att_type": ["c2p"]}, "pos_att_type"),
        ("deberta-base", {"relative_attention": False}, "relative_attention"),
        ("deberta-v3-base", {"share_att_key": False}, "share_att_key"),
        ("deberta-v3-base", {"conv_kernel_size": 3}, "conv_kernel_size"),
        ("albert-base-v2", {"num_hidden_groups": 2}, "num_hidden_groups"),
        ("bart-base", {"encoder_ffn_dim": 1024}, "encoder_ffn_dim"),
        ("mpt-7b", {"attn_config": [1]}, "attn_config"),
        ("mpt-7b", {"attn_config": {"attn_type": "grouped"}}, "attn_type"),
        ("vit-base-patch16-224", {"patch_size": 15}, "patch_size"),
        ("vit-base-patch16-224", {"id2label": {}}, "id2label"),
        ("resnet-50", {"depths": [3, 4]}, "depths"),
        ("resnet-50", {"depths": [3, 4, 6, 0]}, "depths"),
        ("resnet-50", {"layer_type": "dense"}, "layer_type"),
        ("stablelm-3b-4e1t", {"qk_layernorm": True}, "qk_layernorm"),
    ],
)
def test_what_the_shape_cannot_express_is_refused(name: str, change: dict[str, Any], key: str) -> None:
    """A variant outside the shape language, or sizes that contradict each other, is an error, not a guess."""
    with pytest.raises(WorkloadError) as caught:
        parse_huggingface_config({**CONFIGS[name], **change}, name="mine")
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("name", "saved_by", "published"),
    [  # num_parameters() of the class, from the checkpoint's page and transformers
        ("bert-base-uncased", "BertForMaskedLM", 109_514_298),
        ("bert-base-uncased", "BertForPreTraining", 110_106_428),
        ("bert-base-uncased", "BertForSequenceClassification", 109_483_778),
        ("roberta-base", "RobertaForMaskedLM", 124_697_433),
        ("roberta-base", "RobertaForSequenceClassification", 124_647_170),
        ("distilbert-base-uncased", "DistilBertForSequenceClassification", 66_955_010),
        ("distilbert-base-uncased", "DistilBertForMaskedLM", 66_985_530),
    ],
)
def test_heads_follow_the_class_that_saved_it(name: str, saved_by: str, published: int) -> None:
    """`architectures` decides which heads count: known totals of masked-LM, pre-training and classifiers."""
    config = {**CONFIGS[name], "architectures": [saved_by]}
    assert count_parameters(parse_huggingface_config(config, name="mine")).total == published


def test_a_null_window_is_no_window() -> None:
    """`sliding_window: null` switches the window off; leaving it out leaves transformers' 4,096."""
    config = CONFIGS["mistral-7b-v0.3"]
    assert parse_huggingface_config(config, name="mine").sliding_window == 0
    assert parse_huggingface_config(without("mistral-7b-v0.3", "sliding_window"), name="m").sliding_window == 4096


@pytest.mark.parametrize(
    ("name", "window", "full"),
    [  # (window in tokens, layers without): arXiv:2408.00118 section 2, 2503.19786 section 2, 2508.10925 section 2.2,
        ("gemma-2-2b", 4096, 13),  # 2412.13663 section 2.1.2; Llama 4: three of four layers in chunks of 8,192
        ("gemma-3-1b", 512, 4),
        ("gemma-3-27b", 1024, 10),
        ("gpt-oss-20b", 128, 12),
        ("modernbert-base", 128, 8),
        ("llama-4-maverick", 8192, 12),
        ("qwen3-0.6b", 0, 0),
    ],
)
def test_layers_with_and_without_a_window_are_distinguished(name: str, window: int, full: int) -> None:
    """By the family's rule or the file's `layer_types`, the published mix of layers comes out, known or read."""
    for shape in (parse_huggingface_config(CONFIGS[name], name="mine"), find_model(name)):
        assert (shape.sliding_window, shape.full_layers) == (window, full)


@pytest.mark.parametrize(
    ("quantisation", "stored"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
    ],
)
def test_stored_weights_are_read(quantisation: dict[str, Any], stored: str) -> None:
    """`quantization_config` says the format of the weights; without one they are plain."""
    config = {**CONFIGS["llama-2-7b"], "quantization_config": quantisation}
    assert parse_huggingface_config(config, name="mine").stored_weights == stored
    assert parse_huggingface_config(CONFIGS["llama-2-7b"], name="mine").stored_weights == ""


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("llama-2-7b", {"quantization_config": {"quant_method": "hqq"}}, "quant_method"),
        ("llama-2-7b", {"quantization_config": {"quant_method": "gptq", "bits": 3}}, "bits"),
        ("llama-2-7b", {"quantization_config": {"quant_method": "compressed-tensors"}}, "config_groups"),
        ("llama-2-7b", {"quantization_config": "fp8"}, "quantization_config"),
        ("llama-2-7b", {"quantization_config": {"quant_algo": "NVFP4"}}, "quant_algo"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"] * 23}, "layer_types"),
        ("deepseek-v3", {"attention_bias": True}, "attention_bias"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("deepseek-v3", {"first_k_dense_replace": 61}, "first_k_dense_replace"),
        ("whisper-tiny", {"encoder_ffn_dim": 1024}, "encoder_ffn_dim"),
        ("modernbert-base", {"architectures": ["ModernBertForNothing"]}, "architectures"),
        ("clip-vit-base-patch32", {"text_config": None}, "text_config"),
        ("gemma-3-4b", {"vision_config": {"image_size": 896}}, "num_hidden_layers"),
        ("llama-3.2-11b-vision", {"vision_config": None}, "vision_config"),
    ],
)
def test_what_is_not_understood_is_named(name: str, change: dict[str, Any], says: str) -> None:
    """A newer model's key or value that has no meaning here is refused by name, never read as a plain model."""
    with pytest.raises(WorkloadError) as caught:
        parse_huggingface_config({**CONFIGS[name], **change}, name="mine")
    assert caught.value.key == says


def test_a_headless_decoder_has_no_vocabulary_projection() -> None:
    """`LlamaModel` lacks the projection; `LlamaForSequenceClassification` has a matrix of labels instead."""
    config = CONFIGS["llama-2-7b"]
    full = count_parameters(parse_huggingface_config(config, name="m")).total
    bare = count_parameters(parse_huggingface_config({**config, "architectures": ["LlamaModel"]}, name="m")).total
    assert full - bare == 32000 * 4096
    labelled = {**config, "architectures": ["LlamaForSequenceClassification"], "num_labels": 3}
    assert count_parameters(parse_huggingface_config(labelled, name="m")).total == bare + 3 * 4096


def test_a_t5_encoder_alone_is_an_encoder() -> None:
    """`T5EncoderModel` keeps the encoder only: t5-small has 35,330,816 parameters there."""
    config = {**CONFIGS["t5-small"], "architectures": ["T5EncoderModel"]}
    shape = parse_huggingface_config(config, name="mine")
    assert shape.architecture == "encoder"
    assert count_parameters(shape).total == 35_330_816


def test_an_unknown_model_type_lists_what_is_read() -> None:
    """The error names the type, near names, and the way out."""
    with pytest.raises(WorkloadError) as caught:
        parse_huggingface_config({"model_type": "lama"}, name="mine")
    assert "'lama'" in str(caught.value)
    assert "'llama'" in (caught.value.hint or "")
    assert "inline shape" in (caught.value.hint or "")


def test_a_wrapped_text_model_is_pointed_at() -> None:
    """A multimodal config whose `text_config` we read says so."""
    config = {"model_type": "shieldgemma2", "text_config": CONFIGS["gemma-3-1b"]}
    with pytest.raises(WorkloadError) as caught:
        parse_huggingface_config(config, name="mine")
    assert "text_config" in (caught.value.hint or "")


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"model_type": 7}])
def test_a_missing_model_type_is_named(config: dict[str, Any]) -> None:
    """Without a usable `model_type` the error names that key."""
    with pytest.raises(WorkloadError) as caught:
        parse_huggingface_config(config, name="mine")
    assert caught.value.key == "model_type"


def test_a_folder_is_read_by_its_config_json(tmp_path: Path) -> None:
    """A model folder works like its config.json, and names the model."""
    folder = tmp_path / "my-bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS["bert-base-uncased"]))
    shape = load_huggingface_config(folder)
    assert shape.name == "my-bert"
    assert shape == load_huggingface_config(folder / "config.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{\n "model_type": "bert",\n oops\n}', "config.json:3"),
        (b"", "config.json:1"),
        (b"\xff\xfe\x00bad", "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"model_type": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * 1_000_001, "over 1 MB"),
    ],
)
def test_a_broken_file_is_described(tmp_path: Path, content: bytes, says: str) -> None:
    """What is not a small JSON object in UTF-8 is said so, with the line where there is one."""
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(WorkloadError) as caught:
        load_huggingface_config(tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing path, and a folder without config.json, are input errors."""
    for path in (tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(WorkloadError, match="cannot be read"):
            load_huggingface_config(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = sorted({key for config in CONFIGS.values() for key in config} - {"model_type"})


@settings(max_examples=EXAMPLES, deadline=None)
@given(config=st.dictionaries(st.sampled_from(["model_type", *KEYS]) | st.text(max_size=8), JSON, max_size=12))
def test_arbitrary_json_is_a_shape_or_an_error(config: dict[str, Any]) -> None:
    """No JSON object raises anything but WorkloadError."""
    error = refusal(config)
    assert error is None or error.message


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON | st.integers(-2, 9), max_size=4),
)
def test_a_damaged_file_is_a_shape_or_an_error(name: str, changes: dict[str, Any]) -> None:
    """A real file with some values spoiled gives a shape that can be counted, or WorkloadError."""
    error = refusal({**CONFIGS[name], **changes})
    assert error is None or error.message
