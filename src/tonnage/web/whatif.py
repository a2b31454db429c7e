"""What-if: a workload file with other values at some of its keys, chosen by sliders that a page draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import yaml

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.workload.loading import WorkloadText

Unit = Literal["h", "usd", "count", "per_s", "per_hour", "weight"]


class Slider(NamedTuple):
    """A key of the workload file that a reader may move. `least` and `most` bound it; the slider is logarithmic
    unless it is `linear`.
    `stated`: only where the file has the key, since a volume is stated in one of several ways."""

    name: str
    key: str
    label: str
    unit: Unit
    least: float
    most: float
    kinds: tuple[str, ...]
    whole: bool = False
    stated: bool = False
    linear: bool = False


_WORK: Final = ("train", "batch", "tabular")
SLIDERS: Final = (
    Slider("deadline", "constraints.deadline", "Deadline, hours", "h", 0.1, 2000, _WORK),
    Slider("budget", "constraints.budget_usd", "Budget, USD", "usd", 0.1, 1e6, (*_WORK, "serve")),
    Slider("samples", "data.samples", "Training samples", "count", 100, 1e10, ("train",), whole=True, stated=True),
    Slider("tokens", "data.tokens", "Training tokens", "count", 1e5, 1e14, ("train",), whole=True, stated=True),
    Slider("batch", "train.global_batch", "Global batch", "count", 1, 65536, ("train",), whole=True),
    Slider("rate", "serve.rate_per_s", "Requests a second", "per_s", 0.01, 1e5, ("serve",), stated=True),
    Slider("items", "batch.items", "Items", "count", 100, 1e11, ("batch",), whole=True, stated=True),
    Slider("items_per_hour", "batch.items_per_hour", "Items an hour", "count", 1, 1e10, ("batch",), stated=True),
    Slider("rows", "tabular.rows", "Rows", "count", 1000, 1e10, ("tabular",), whole=True, stated=True),
    Slider("gpus", "constraints.max_gpus", "GPUs at most", "count", 1, 4096, (*_WORK, "serve"), whole=True),
    Slider("interruptions", "buy.interruptions_per_hour", "Spot interruptions an hour", "per_hour", 0.001, 5, _WORK),
)


class Chosen(NamedTuple):
    """A slider with the value that holds; None: the file leaves it open."""

    slider: Slider
    value: float | None


def read_document(path: Path) -> dict[str, Any]:
    """The file as YAML. Raises InputError."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path.name} is not a workload file", hint="docs/workload-file.md lists its keys")
    return found


def changed_workload(path: Path, given: Mapping[str, str]) -> tuple[WorkloadText | Path, tuple[Chosen, ...]]:
    """The workload of a file with the sliders of `given` moved, and every slider of its kind with its value.

    Raises InputError for a name that is no slider of this kind of work, and a value outside its bounds.
    """
    document = read_document(path)
    sliders = {one.name: one for one in SLIDERS if _belongs(one, document)}
    for name, text in given.items():
        if name not in sliders:
            hint = did_you_mean(nearest(name, sliders), f"known: {', '.join(sliders)}")
            raise InputError(f"'{name}' is nothing to move here", hint=hint)
        _put(document, sliders[name], read_value(sliders[name], text))
    chosen = tuple(Chosen(one, _value(document, one)) for one in sliders.values())
    if not given:
        return path, chosen
    text = yaml.safe_dump(document, sort_keys=False)
    return WorkloadText(text=text, file=path.name, folder=path.parent), chosen


def _belongs(slider: Slider, document: Mapping[str, Any]) -> bool:
    if document.get("kind") not in slider.kinds:
        return False
    return not slider.stated or _value(document, slider) is not None


def read_value(slider: Slider, text: str) -> float:
    """The number of a query. Raises InputError."""
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{slider.name}: found '{text[:40]}', expected a number") from None
    if not slider.least <= value <= slider.most:
        raise InputError(f"{slider.name}: found {value:g}, expected {slider.least:g} to {slider.most:g}")
    return value


def _put(document: dict[str, Any], slider: Slider, value: float) -> None:
    *outer, last = slider.key.split(".")
    inner: Any = document
    for part in outer:
        if not isinstance(inner.get(part), dict):
            inner[part] = {}
        inner = inner[part]
    inner[last] = f"{value:g}h" if slider.unit == "h" else round(value) if slider.whole else value


def _value(document: Mapping[str, Any], slider: Slider) -> float | None:
    """A number of the file; a deadline that is an instant, or any other spelling, is shown as open."""
    inner: Any = document
    for part in slider.key.split("."):
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    if slider.unit == "h":
        return _hours(inner)
    if isinstance(inner, str):
        inner = inner.replace("_", "")
    try:
        return None if inner is None or isinstance(inner, bool) else float(inner)
    except (TypeError, ValueError):
        return None


_HOURS: Final = {"m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}


def _hours(text: Any) -> float | None:
    """
    >>> _hours("2d"), _hours("90m"), _hours("2026-12-01")
    (48.0, 1.5, None)
    """
    if not isinstance(text, str) or not text or text[-1] not in _HOURS:
        return None
    try:
        return float(text[:-1]) * _HOURS[text[-1]]
    except ValueError:
        return None
