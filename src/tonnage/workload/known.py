"""The models we know by name: their published shapes and published parameter counts."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from tonnage.errors import CatalogError, UnknownModel, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.convolutions import BOTTLENECK_EXPANSION, resnet_sizes
from tonnage.workload.families import SHAPE_FIELDS, complete_shape
from tonnage.workload.huggingface import parse_huggingface_config
from tonnage.workload.shapes import ModelShape

_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_positions")
FROM_CONFIG = "config"  # in the column `other`: the sizes are in data/configs, as the maker publishes them
_TUNED = re.compile(r"(-hf|-chat|-instruct|-it)+$")  # a tuned model has its base model's shape
_LETTER_DIGIT = re.compile(r"(?<=[a-z])-(?=\d)|(?<=\d)-(?=[a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One row of `data/models.csv`.

    `published_parameters` is a count that someone printed, named in `published_in` with any step taken from
    the printed figure; it never comes from `count_parameters`, so that it can test it. `read_on`: when that
    figure was last looked up, there or quoted elsewhere (None: not recorded).
    """

    shape: ModelShape
    aliases: tuple[str, ...]
    published_parameters: int
    published_in: str
    read_on: date | None


def known_models() -> Mapping[str, ModelShape]:
    """Name to shape of every known model, in the order of the table."""
    return _shapes()


def find_model(name: str) -> ModelShape:
    """The shape of the model called `name`: its name, an alias, or either behind an organisation.

    Case, underscores and a hyphen between letter and digit do not count; `-hf`, `-chat`, `-instruct` and
    `-it` at the end are dropped. Raises `UnknownModel` with the nearest names.

    >>> find_model("meta-llama/Llama-2-7b-hf").name
    'llama-2-7b'
    """
    return model_record(name).shape


def published_parameters(name: str) -> int:
    """Parameters of the model called `name` as its authors or its model page print them."""
    return model_record(name).published_parameters


def model_record(name: str) -> KnownModel:
    """The whole row behind `name`, with sources. Raises `UnknownModel` as `find_model` does."""
    spellings = _spellings()
    for candidate in _candidates(name):
        if candidate in spellings:
            return _record(spellings[candidate])
    suggestions = _nearest(_folded(name))
    raise UnknownModel(
        f"no model named '{name}' among the {len(_rows())} known shapes",
        suggestions=suggestions,
        hint=did_you_mean(suggestions, "a path to its config.json or an inline shape works too"),
    )


@cache
def known_records() -> Mapping[str, KnownModel]:
    """Name to row, in the order of the table."""
    return MappingProxyType({name: _record(name) for name in _rows()})


@cache
def _rows() -> Mapping[str, tuple[int, Mapping[str, str]]]:
    """Name to line and cells of the table, unread: a plan asks for one model of hundreds."""
    table = files("tonnage.workload").joinpath("data/models.csv").read_text(encoding="utf-8")
    rows: dict[str, tuple[int, Mapping[str, str]]] = {}
    for line, row in enumerate(csv.DictReader(table.splitlines()), start=2):
        if row["name"] in rows:
            raise CatalogError(f"models.csv:{line}: '{row['name']}' occurs twice")
        rows[row["name"]] = (line, row)
    return MappingProxyType(rows)


@cache
def _record(name: str) -> KnownModel:
    """The row of a model's own name."""
    line, row = _rows()[name]
    try:
        return _parse_row(row)
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogError(f"models.csv:{line}: {name!r}: {error}") from error


@lru_cache(maxsize=4096)
def _nearest(folded: str) -> tuple[str, ...]:
    """The known names most like one that is not; remembered, since tables of measurements repeat theirs."""
    return nearest(folded, _rows())


@cache
def _shapes() -> Mapping[str, ModelShape]:
    return MappingProxyType({name: record.shape for name, record in known_records().items()})


@cache
def _spellings() -> Mapping[str, str]:
    """Every accepted spelling, folded, to the model's name."""
    spellings: dict[str, str] = {}
    for name, (_, row) in _rows().items():
        for spelling in (name, *_aliases(row)):
            for form in (_folded(spelling), _joined(spelling)):
                if spellings.setdefault(form, name) != name:
                    raise CatalogError(f"models.csv: '{spelling}' names both {spellings[form]} and {name}")
    return spellings


def _candidates(name: str) -> Iterator[str]:
    """Spellings to try, the most literal first; whole before the organisation is dropped («vit-b/16»)."""
    for spelling in (name, name.rstrip("/").rsplit("/", 1)[-1]):
        untuned = _TUNED.sub("", _folded(spelling))
        yield from (_folded(spelling), _joined(spelling), untuned, _joined(untuned))


def _folded(name: str) -> str:
    return name.strip().casefold().replace("_", "-").replace(" ", "-")


def _joined(name: str) -> str:
    """Without the hyphen between a letter and a digit: llama-2-70b and llama2-70b, ResNet-50 and resnet50."""
    return _LETTER_DIGIT.sub("", _folded(name))


def _parse_row(row: Mapping[str, str]) -> KnownModel:
    shape = _published_config(row) if row["other"] == FROM_CONFIG else _tabled_shape(row)
    return KnownModel(
        shape=shape,
        aliases=_aliases(row),
        published_parameters=int(row["published_parameters"]),
        published_in=row["published_in"],
        read_on=date.fromisoformat(row["read_on"]) if row["read_on"] else None,
    )


def _aliases(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(alias for alias in row["aliases"].split(";") if alias)


def _published_config(row: Mapping[str, str]) -> ModelShape:
    """A model of several networks: the keys of its `config.json` that make its shape, in `data/configs`."""
    text = files("tonnage.workload").joinpath(f"data/configs/{row['name']}.json").read_text(encoding="utf-8")
    shape = parse_huggingface_config(json.loads(text), name=row["name"])
    notes = "; ".join(part for part in (shape.notes, row["notes"]) if part)
    return replace(shape, source=row["source"], notes=notes)


def _tabled_shape(row: Mapping[str, str]) -> ModelShape:
    sizes: dict[str, Any] = {column: int(row[column]) for column in _SIZES if row[column]}
    other = dict(item.split("=", 1) for item in row["other"].split(";") if item)
    if row["family"] == "resnet":
        sizes |= resnet_sizes(
            [int(depth) for depth in other.pop("depths").split("-")],
            "bottleneck" if other.pop("block") == "bottleneck" else "basic",
            image_side=int(other["image_side"]),
            groups=int(other.pop("groups", 1)),
            narrowing=int(other.pop("narrowing", BOTTLENECK_EXPANSION)),
        )
    values = {**sizes, **{field: _value(field, text) for field, text in other.items()}}
    return complete_shape(row["family"], {**_texts(row), **values})


def _texts(row: Mapping[str, str]) -> dict[str, str]:
    return {"name": row["name"], "source": row["source"], "notes": row["notes"]}


def _value(field: str, text: str) -> int | bool | str:
    if field not in SHAPE_FIELDS:
        raise KeyError(f"'{field}' is not a field of a model shape")
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text
