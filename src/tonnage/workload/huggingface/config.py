"""A Hugging Face `config.json` as a model shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tonnage.errors import WorkloadError, did_you_mean, nearest
from tonnage.workload.families import complete_shape
from tonnage.workload.huggingface import decoders, encoders, multimodal, rotary, vision
from tonnage.workload.huggingface.defaults import TRANSFORMERS_DEFAULTS
from tonnage.workload.huggingface.reader import ConfigReader, shown
from tonnage.workload.shapes import ModelShape

LARGEST_FILE_BYTES: Final = 10**6
Reader = Callable[[ConfigReader], dict[str, Any]]

READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), encoders.read_bert),
        "distilbert": encoders.read_distilbert,
        "albert": partial(encoders.read_factorised, model_type="albert"),
        "electra": partial(encoders.read_factorised, model_type="electra"),
        "deberta": encoders.read_deberta,
        "deberta-v2": encoders.read_deberta_v2,
        "mpnet": encoders.read_mpnet,
        "gpt2": decoders.read_gpt2,
        "gpt_neo": decoders.read_gpt_neo,
        "gptj": rotary.read_gptj,
        "gpt_neox": decoders.read_gpt_neox,
        "opt": decoders.read_opt,
        "bloom": decoders.read_bloom,
        **dict.fromkeys(("t5", "mt5"), decoders.read_t5),
        "bart": decoders.read_bart,
        "llama": rotary.read_llama,
        **dict.fromkeys(("mistral", "phi3"), rotary.read_windowed),
        "mixtral": rotary.read_mixtral,
        "qwen2": rotary.read_qwen2,
        "qwen3": rotary.read_qwen3,
        **dict.fromkeys(("gemma", "olmo2"), rotary.read_rotary),
        "gemma2": partial(rotary.read_alternating, period=2),
        "gemma3_text": partial(rotary.read_alternating, period=6),
        "gemma3": multimodal.read_gemma3,
        **dict.fromkeys(("qwen2_moe", "qwen3_moe"), rotary.read_qwen_moe),
        "deepseek": decoders.read_deepseek,
        **dict.fromkeys(("deepseek_v2", "deepseek_v3"), decoders.read_latent),
        "gpt_oss": rotary.read_gpt_oss,
        "llama4_text": rotary.read_llama4_text,
        "llama4": multimodal.read_llama4,
        "mistral3": multimodal.read_mistral3,
        "qwen2_5_vl": multimodal.read_qwen2_5_vl,
        "mllama": multimodal.read_mllama,
        "modernbert": encoders.read_modernbert,
        "whisper": vision.read_whisper,
        "clip": multimodal.read_clip,
        "siglip": multimodal.read_siglip,
        "phi": rotary.read_phi,
        "mpt": decoders.read_mpt,
        "falcon": decoders.read_falcon,
        "stablelm": rotary.read_stablelm,
        "starcoder2": rotary.read_starcoder2,
        "vit": partial(vision.read_vit, class_tokens=1),
        "deit": partial(vision.read_vit, class_tokens=2),
        "resnet": vision.read_resnet,
    }
)


def parse_huggingface_config(config: Mapping[str, Any], *, name: str, file: str | None = None) -> ModelShape:
    """The shape that a parsed `config.json` describes, with the heads that `architectures` names.

    Sizes must be in the file; for the rest, what transformers itself assumes holds (`TRANSFORMERS_DEFAULTS`).
    Raises `WorkloadError` naming `file` (else `name`), the key, the value there and what was expected.

    >>> parse_huggingface_config(
    ...     {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
    ...      "vocab_size": 50257}, name="mine").ffn
    3072
    """
    where = file or name
    if not isinstance(config, Mapping):
        raise WorkloadError("is not a JSON object", file=where, hint="a config.json is one object of keys and values")
    model_type = _model_type(config, where)
    reader = ConfigReader(values=config, defaults=TRANSFORMERS_DEFAULTS[model_type], name=name, file=file)
    sizes = {**READERS[model_type](reader), "stored_weights": stored_weights(reader)}
    return complete_shape(model_type, {"name": name, "source": f"{where} (model_type {model_type})", **sizes})


def load_huggingface_config(path: Path) -> ModelShape:
    """The shape in the file `path`, or in the `config.json` of the folder `path`, named after the folder.

    Raises `WorkloadError` when it cannot be read, is over 1 MB, is not JSON (with the line) or lacks a key.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _load_json(file)
    folder = file.resolve().parent.name
    named = file.stem if file.name != "config.json" else folder or file.stem
    return parse_huggingface_config(config, name=named, file=str(file))


def _load_json(file: Path) -> Any:
    where = str(file)
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WorkloadError(
            f"cannot be read: {reason}", file=where, hint="expected a config.json or its folder"
        ) from error
    if len(content) > LARGEST_FILE_BYTES:
        raise WorkloadError(
            "is over 1 MB",
            file=where,
            hint="a config.json has a few kB; is this the weights or the tokenizer?",
        )
    try:
        return json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise WorkloadError(f"is not JSON: {error.msg}", file=where, line=error.lineno) from error
    except RecursionError as error:
        raise WorkloadError("is nested too deeply", file=where) from error
    except ValueError as error:  # not UTF-8, or a number of thousands of digits
        raise WorkloadError(f"is not JSON text: {error}", file=where) from error


def _model_type(config: Mapping[str, Any], where: str) -> str:
    model_type = config.get("model_type")
    known = ", ".join(sorted(READERS))
    if not isinstance(model_type, str):
        raise WorkloadError(
            "is missing" if model_type is None else "is not a name",
            file=where,
            key="model_type",
            hint=f"expected one of {known}; for another architecture give an inline shape",
        )
    if model_type not in READERS:
        raise WorkloadError(
            f"{shown(model_type)} is not read here",
            file=where,
            key="model_type",
            hint=_elsewhere(config, model_type),
        )
    return model_type


def _elsewhere(config: Mapping[str, Any], model_type: str) -> str:
    """What to do about an unknown `model_type`."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and inner.get("model_type") in tuple(READERS):
        return f"its `text_config` is a {inner['model_type']}: save that object as a config.json of its own"
    known = ", ".join(sorted(READERS))
    return did_you_mean(nearest(model_type[:60], READERS), f"known: {known}; for another give an inline shape")


# What each method of `quantization_config.quant_method` stores (the quantizers of github.com/huggingface/transformers,
# src/transformers/quantizers): its 8-bit floats are one byte a weight of every linear layer, tables at 16 bit; mxfp4
# is 4 bits and one 8-bit scale per 32 weights of the experts alone (gpt-oss), all else at 16 bit.
_FIXED: Final = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
_ALGORITHMS: Final = {"FP8": "fp8"}
_BY_BITS: Final = ("gptq", "awq", "auto-round")
_INTEGERS: Final = {4: "int4", 8: "int8"}


def stored_weights(config: ConfigReader) -> str:
    """The format of the linear layers' weights: «fp8», «mxfp4», «int4», «int8», or «» where nothing is quantised."""
    if not config.has("quantization_config"):
        return ""
    inner = config.section("quantization_config")
    if inner.has("quant_algo"):  # NVIDIA's ModelOpt, which may leave `quant_method` out
        return _ALGORITHMS[inner.choice("quant_algo", tuple(_ALGORITHMS))]
    method = inner.choice("quant_method", (*_FIXED, *_BY_BITS, "bitsandbytes", "compressed-tensors"))
    if method in _FIXED:
        return _FIXED[method]
    if method in _BY_BITS:
        return _integer(inner, "bits")
    if method == "bitsandbytes":
        return "int4" if inner.has("load_in_4bit") and inner.flag("load_in_4bit") else "int8"
    return _compressed(inner)


def _compressed(inner: ConfigReader) -> str:
    """`compressed-tensors`: the weights of its one group."""
    groups = inner.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise inner.error("config_groups", f"{shown(groups)} is not one group; several formats are not supported")
    weights = inner.section("config_groups").section(next(iter(groups))).section("weights")
    if weights.choice("type", ("float", "int")) == "int":
        return _integer(weights, "num_bits")
    if weights.integer("num_bits") != 8:
        raise weights.error("num_bits", f"{weights.integer('num_bits')} bit floats are not supported; expected 8")
    return "fp8"


def _integer(config: ConfigReader, key: str) -> str:
    bits = config.integer(key)
    if bits not in _INTEGERS:
        raise config.error(key, f"{bits} bits a weight are not supported; expected 4 or 8")
    return _INTEGERS[bits]
