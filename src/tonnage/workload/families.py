"""Architecture families: what every model of one `model_type` shares, and how its sizes complete a shape."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from tonnage.workload.shapes import ModelShape

SHAPE_FIELDS = frozenset(field.name for field in fields(ModelShape))
_SAME_SHAPE = {"xlm-roberta": "roberta", "camembert": "roberta", "mt5": "t5"}  # model_type -> family


def family_constants(model_type: str) -> Mapping[str, Any]:
    """Fields of `ModelShape` that all models of a family share.

    >>> family_constants("gpt2")["fused_qkv"]
    True
    """
    return _families()[_SAME_SHAPE.get(model_type, model_type)]


def complete_shape(family: str, sizes: Mapping[str, Any]) -> ModelShape:
    """The family's constants, one model's sizes on top; `kv_heads` and `head_dim` follow where not given."""
    values = {**family_constants(family), **sizes}
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("head_dim", values["hidden"] // values["heads"] if values["heads"] else 0)
    return ModelShape(**values)


@cache
def _families() -> Mapping[str, Mapping[str, Any]]:
    text = files("tonnage.workload").joinpath("data/families.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: MappingProxyType(values) for name, values in tomllib.loads(text).items()})
