"""The calibration file: fitted values, their ranges, intervals, residuals, and a digest of the rows behind them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import isinf
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from tonnage.calibration.inference_fitted import InferenceFit
from tonnage.calibration.intervals import Intervals
from tonnage.calibration.training_fitted import TrainingFit
from tonnage.errors import InputError
from tonnage.files import save_for_user
from tonnage.sizing.engines import PRIORS, Engine, with_fronts
from tonnage.values import dataclass

SCHEMA: Final = "tonnage/calibration@1"
FILE_NAME: Final = "calibration-v1.json"
FIT_TYPES: Final[Mapping[str, type]] = {"training": TrainingFit, "inference": InferenceFit}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """A fitted number and how far it moves when one family at a time is left out of the fit."""

    name: str  # path within the fit, such as "training.engine_gap.0"
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualLine:
    """Errors of one group, fitted on all rows and with each family left out, in %."""

    kind: str
    group: str
    n: int
    fitted_median_abs_pct: float | None
    fitted_p90_abs_pct: float | None
    left_out_median_abs_pct: float
    left_out_p90_abs_pct: float
    left_out_coverage80: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDigest:
    """The rows a fit used: sha256 of the file's bytes, and how many rows it has."""

    kind: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNames:
    """What the rows behind a fit name: their GPUs, their engines. Anything else is further away
    (`Judged.unseen_factors`)."""

    kind: str
    key: str  # "gpu" or "engine"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything a calibration knows. `training` and `inference` are the fits' own types; None: not calibrated."""

    made_on: str
    left_out: str
    training: Any
    inference: Any
    intervals: Intervals
    ranges: tuple[ValueRange, ...] = ()
    residuals: tuple[ResidualLine, ...] = ()
    data: tuple[DataDigest, ...] = ()
    seen: tuple[SeenNames, ...] = ()

    def names_seen(self, kind: str) -> dict[str, frozenset[str]]:
        """Key -> names, of one kind; a key that the calibration says nothing about is not in it."""
        return {one.key: frozenset(one.names) for one in self.seen if one.kind == kind}


@cache
def load_calibration() -> Calibration | None:
    """The packaged calibration; None where this build carries none."""
    place = files("tonnage.calibration") / "data" / FILE_NAME
    return read_calibration(place) if place.is_file() else None


@cache
def calibrated_engines() -> Mapping[str, Engine]:
    """Every engine class as the packaged calibration has it; as its structure says where it has none."""
    packaged = load_calibration()
    fitted = packaged.inference.apply() if packaged is not None and packaged.inference is not None else {}
    return MappingProxyType({**with_fronts(PRIORS), **fitted})


def read_calibration(path: Path | Traversable, *, types: Mapping[str, type] = FIT_TYPES) -> Calibration:
    """A calibration file. Raises InputError when it is not one, or of another version.

    `types` gives the types of the fits; by default those of this build.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a calibration: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(
            f"{path} is not a calibration of this version ({SCHEMA})", hint="make one: `tonnage calibrate`"
        )
    try:
        parts = {
            field.name: rebuild(_hint(field.name), document[field.name])
            for field in fields(Calibration)
            if field.name not in ("training", "inference") and (field.name in document or field.name != "seen")
        }
        fits = {name: _fit(name, document[name], types) for name in ("training", "inference")}
        return Calibration(**parts, **fits)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a complete calibration: {error}", hint="make it again") from error


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write the file whole or not at all. Equal calibrations give equal bytes."""
    document = {"schema": SCHEMA, **plain_value(calibration)}
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    save_for_user(path, text)


def digest_file(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""
    found = sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def plain_value(value: Any) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists, all the way down.

    >>> plain_value({"a": (1, 2.5)})
    {'a': [1, 2.5]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_value(part) for key, part in value.items()}
    if isinstance(value, tuple | list | frozenset):
        parts = sorted(value) if isinstance(value, frozenset) else value
        return [plain_value(part) for part in parts]
    if isinstance(value, float) and isinf(value):
        return str(value)  # JSON has no infinity; `float` reads it back
    return value


def numbers_within(value: Any, path: str) -> dict[str, float]:
    """Every number inside a value of dataclasses, tuples and mappings, by its path.

    >>> numbers_within({"a": (1.0, 2.0), "b": "text"}, "fit")
    {'fit.a.0': 1.0, 'fit.a.1': 2.0}
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, bool):
        return {}
    if isinstance(value, int | float):
        return {path: float(value)}
    if isinstance(value, Mapping):
        pairs = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, tuple | list):
        pairs = [(_label(number, part), part) for number, part in enumerate(value)]
    else:
        return {}
    return {name: number for key, part in pairs for name, number in numbers_within(part, f"{path}.{key}").items()}


def rebuild(hint: Any, value: Any) -> Any:
    """The value of type `hint` that `plain_value` and JSON made `value` of: dataclasses, tuples, mappings, numbers.

    >>> rebuild(tuple[tuple[str, float], ...], [["a", 1]])
    (('a', 1.0),)
    """
    return _rebuilder(hint)(value)


@cache
def _rebuilder(hint: Any) -> Callable[[Any], Any]:
    """`rebuild` of one type, which is taken apart once."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = _rebuilder(next(one for one in arguments if one is not NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple and arguments[-1:] == (...,):
        each = _rebuilder(arguments[0])
        return lambda value: tuple([each(part) for part in value])
    if origin is tuple:
        kinds = [_rebuilder(kind) for kind in arguments]
        return lambda value: tuple([kind(part) for kind, part in zip(kinds, value, strict=True)])
    if origin is frozenset:
        each = _rebuilder(arguments[0])
        return lambda value: frozenset(each(part) for part in value)
    if origin is dict or origin is Mapping:
        table = _table_rebuilder(*arguments)
        return table if origin is dict else lambda value: MappingProxyType(table(value))
    if is_dataclass(hint):
        return _dataclass_rebuilder(hint if isinstance(hint, type) else type(hint))
    return hint if hint in (int, float, str, bool) else lambda value: value


def _table_rebuilder(key_hint: Any, part_hint: Any) -> Callable[[Any], dict[Any, Any]]:
    key_of, part_of = _rebuilder(key_hint), _rebuilder(part_hint)
    return lambda value: {key_of(key): part_of(part) for key, part in value.items()}


def _dataclass_rebuilder(kind: type) -> Callable[[Any], Any]:
    parts = {name: _rebuilder(hint) for name, hint in _hints(kind).items()}
    return lambda value: kind(**{name: parts[name](part) for name, part in value.items()})


def _fit(name: str, value: Any, types: Mapping[str, type]) -> Any:
    return None if value is None else rebuild(types[name], value)


def _hint(name: str) -> Any:
    return _hints(Calibration)[name]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _label(number: int, part: Any) -> str:
    """The number of an entry, or its own name where it starts with one."""
    if isinstance(part, tuple | list) and part and isinstance(part[0], str):
        return "/".join(str(one) for one in part if isinstance(one, str))
    for field in ("name", "group", "key"):
        if isinstance(getattr(part, field, None), str):
            return str(getattr(part, field))
    return str(number)
