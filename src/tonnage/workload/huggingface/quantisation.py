"""The number format of the weights a checkpoint holds, from its `quantization_config`."""

from __future__ import annotations

from typing import Final

from tonnage.workload.huggingface.reader import ConfigReader, shown

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
