"""The hazard model as a small JSON file, and the packaged one. Figures only: no record is kept in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.spot_instances.hazards import AGES_H, BUCKETS, Direction, HazardModel

SCHEMA: Final = "tonnage/spot-hazards@1"
FILE_NAME: Final = "spot-hazards-v1.json"
_HINT: Final = "`tonnage spot fit TRACE... --out FILE` writes one"


@cache
def packaged_model() -> HazardModel:
    """The model that tonnage carries."""
    place = files("tonnage.spot_instances") / "data" / FILE_NAME
    return parse_model(place.read_text(encoding="utf-8"), name=FILE_NAME)


def model_document(model: HazardModel) -> dict[str, Any]:
    """What the file holds; hazards to six digits."""
    document = {"schema": SCHEMA, "ages_h": list(AGES_H), **asdict(model)}
    for side in ("up", "down"):
        document[side] = {key: _rounded(value) for key, value in document[side].items()}
    return document


def model_text(model: HazardModel) -> str:
    """The file's text; the same model gives the same bytes."""
    return json.dumps(model_document(model), indent=2, ensure_ascii=False) + "\n"


def parse_model(text: str, *, name: str) -> HazardModel:
    """A model from the text of its file. Raises InputError when it is not one."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON", hint=_HINT) from error
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise InputError(f"{name} is not a hazard model ({SCHEMA})", hint=_HINT)
    if document.get("ages_h") != list(AGES_H):
        raise InputError(f"{name} has other age buckets than {list(AGES_H)}", hint=_HINT)
    try:
        return HazardModel(
            up=_direction(document["up"]),
            down=_direction(document["down"]),
            zones=int(document["zones"]),
            runs=int(document["runs"]),
            source=str(document["source"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as a hazard model: {error}", hint=_HINT) from error


def _direction(part: Mapping[str, Any]) -> Direction:
    per_h = tuple(float(value) for value in part["per_h"])
    log_mean, log_spread = float(part["log_mean"]), float(part["log_spread"])
    if len(per_h) != BUCKETS or not all(isfinite(value) and value > 0 for value in per_h):
        raise ValueError(f"`per_h` needs {BUCKETS} positive figures")
    if not isfinite(log_mean) or not isfinite(log_spread) or log_spread <= 0:
        raise ValueError("`log_mean` and `log_spread` must be finite, the spread positive")
    return Direction(per_h=per_h, log_mean=log_mean, log_spread=log_spread)


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [float(f"{one:.6g}") for one in value]
    return float(f"{value:.6g}")
