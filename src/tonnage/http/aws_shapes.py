"""What an AWS service would refuse, by botocore's own model of it: its client checks types and names alone.

Types, required and unknown members, enums, patterns, lengths and ranges are checked, the ones of every level. What a
service checks beyond its model (that a role exists, that two members agree) only the service knows.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError, MissingExtra

_CLASSES: Final = (  # Java's classes in patterns, as Python writes them; \w has the letters of all languages
    (r"\p{Alnum}", "A-Za-z0-9"), (r"\p{L}", r"\w"), (r"\p{M}", ""), (r"\p{N}", r"\d"), (r"\p{Z}", r"\s"),
    (r"\p{S}", r"$+<=>^`|~"), (r"\p{P}", r"!-/:-@\[-`{-~"), (r"\p{Print}", " -~"), (r"\p{ASCII}", r"\x00-\x7f"),
    (r"\p{Graph}", "!-~"), (r"\p{Punct}", r"!-/:-@\[-`{-~"), (r"\p{Space}", r"\s"), (r"\P{C}", r"\s\S"),
)  # fmt: skip
_NUMBERS: Final = {"integer": int, "long": int, "float": (int, float), "double": (int, float)}


def shape_faults(value: Any, shape: Any, where: str = "") -> Iterator[str]:
    """Each thing that the service's model forbids, with the path of its member. `shape`: of botocore's model."""
    if shape.type_name == "structure":
        yield from _structure(value, shape, where)
    elif shape.type_name == "list":
        if not isinstance(value, list | tuple):
            yield f"{where}: a list, not {value!r}"
            return
        yield from _length(value, shape, where, "entries")
        for index, one in enumerate(value):
            yield from shape_faults(one, shape.member, f"{where}[{index}]")
    elif shape.type_name == "map":
        if not isinstance(value, Mapping):
            yield f"{where}: a map, not {value!r}"
            return
        yield from _length(value, shape, where, "entries")
        for key, one in value.items():
            yield from shape_faults(key, shape.key, f"{where}.{key}")
            yield from shape_faults(one, shape.value, f"{where}.{key}")
    else:
        yield from _scalar(value, shape, where)


def check_shape(value: Any, shape: Any, where: str = "", *, service: str = "the service") -> None:
    """InputError with every fault. The client of botocore lets most of them pass, and only the service refuses them."""
    found = list(shape_faults(value, shape, where))
    if found:
        raise InputError(f"{service} would refuse the request: {'; '.join(found)}", hint="correct what is named")


def check_request(service: str, operation: str, body: Mapping[str, Any]) -> None:
    """The same, of a request by its name: `check_request("sagemaker", "CreateTrainingJob", {...})`.

    InputError where the service is not known to the botocore that is installed.
    """
    check_shape(body, request_shape(service, operation), service=f"{service} {operation}")


class _Shape:
    """A shape of a model file, with the names that botocore's own have: loading those takes twice as long."""

    def __init__(self, shapes: Mapping[str, Any], name: str) -> None:
        self._shapes, self._shape = shapes, shapes[name]
        self.type_name: str = self._shape["type"]
        self.metadata: Mapping[str, Any] = self._shape
        self.enum: list[str] = self._shape.get("enum", [])
        self.required_members: list[str] = self._shape.get("required", [])

    @property
    def members(self) -> dict[str, _Shape]:
        return {name: self._named(one) for name, one in self._shape.get("members", {}).items()}

    @property
    def member(self) -> _Shape:
        return self._named(self._shape["member"])

    @property
    def key(self) -> _Shape:
        return self._named(self._shape["key"])

    @property
    def value(self) -> _Shape:
        return self._named(self._shape["value"])

    def _named(self, reference: Mapping[str, Any]) -> _Shape:
        return _Shape(self._shapes, reference["shape"])


@cache
def _model(service: str) -> Mapping[str, Any]:
    """The newest model of a service that the installed botocore has. MissingExtra where there is no botocore."""
    found = find_spec("botocore")
    if found is None or found.origin is None:
        raise MissingExtra(f"requests of {service}", "fetch")
    files = sorted((Path(found.origin).parent / "data" / service).glob("*/service-2.json*"))
    if not files:
        raise InputError(f"the botocore that is installed knows no service '{service}'", hint="pip install -U botocore")
    text = files[-1].read_bytes()
    model: dict[str, Any] = json.loads(gzip.decompress(text) if files[-1].suffix == ".gz" else text)
    return model


def request_shape(service: str, operation: str) -> _Shape:
    """What an operation takes."""
    model = _model(service)
    return _Shape(model["shapes"], model["operations"][operation]["input"]["shape"])


def _structure(value: Any, shape: Any, where: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{where}: a structure, not {value!r}"
        return
    yield from (f"{where}.{name}: is missing".lstrip(".") for name in shape.required_members if name not in value)
    members = shape.members
    for name, one in value.items():
        inside = f"{where}.{name}".lstrip(".")
        if name not in members:
            yield f"{inside}: there is no such member"
        else:
            yield from shape_faults(one, members[name], inside)


def _scalar(value: Any, shape: Any, where: str) -> Iterator[str]:
    limits = shape.metadata
    if shape.type_name == "boolean":
        if not isinstance(value, bool):
            yield f"{where}: true or false, not {value!r}"
    elif shape.type_name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, _NUMBERS[shape.type_name]):  # type: ignore[arg-type]
            yield f"{where}: a number, not {value!r}"
        elif not limits.get("min", value) <= value <= limits.get("max", value):
            yield f"{where}: {value} is outside {limits.get('min', '...')} to {limits.get('max', '...')}"
    elif shape.type_name == "string":
        if not isinstance(value, str):
            yield f"{where}: a text, not {value!r}"
            return
        if shape.enum and value not in shape.enum:
            known = ", ".join(shape.enum) if len(shape.enum) <= 12 else f"{len(shape.enum)} known values"
            yield f"{where}: {value!r} is none of {known}"
        if "pattern" in limits and _pattern(limits["pattern"]).fullmatch(value) is None:
            yield f"{where}: {value!r} is not of the form {limits['pattern']}"
        yield from _length(value, shape, where, "characters")


def _length(value: Any, shape: Any, where: str, words: str) -> Iterator[str]:
    least, most = shape.metadata.get("min", 0), shape.metadata.get("max", len(value))
    if not least <= len(value) <= most:
        yield f"{where}: has {len(value)} {words}, {least} to {most} are allowed"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of the service as Python's.

    >>> bool(_pattern(r"[\\p{L}\\p{N} ]+").fullmatch("Läuft 1"))
    True
    """
    for java, ours in _CLASSES:
        text = text.replace(java, ours)
    try:
        return re.compile(text.replace(r"\w-", r"\w\-"))
    except re.error:  # a few models have patterns of no use in any language: the service tells
        return re.compile(r"[\s\S]*")
