"""What a JSON API would refuse of a body, by the recorded members, types and values of its own documents. Pure.

A shape is a small part of JSON Schema: `$ref` (a name among the schemas), `type`, `format`, `enum`, `pattern`,
`maxLength`, `minItems`, `items`, `additionalProperties`, `properties`, `required`, `anyOf`. A schema is an object's
members by name; the member `*required` lists those that have to be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tonnage.errors import InputError

REQUIRED: Final = "*required"
NUMBERS: Final = {"integer": int, "number": (int, float)}
Schemas = Mapping[str, Mapping[str, Any]]


@cache
def recorded_schemas(package: str, name: str) -> Schemas:
    """The schemas of a recorded document that lies in a package."""
    found: dict[str, Any] = json.loads(files(package).joinpath(name).read_text(encoding="utf-8"))["schemas"]
    return found


def check_body(body: Mapping[str, Any], schemas: Schemas, root: str, operation: str) -> None:
    """InputError with every fault of an operation's body."""
    found = list(faults_of(body, {"$ref": root}, "", schemas))
    if found:
        raise InputError(f"{operation} would refuse the request: {'; '.join(found)}", hint="correct what is named")


def faults_of(value: Any, shape: Mapping[str, Any], where: str, schemas: Schemas) -> Iterator[str]:
    """Each thing that the documents do not know, with the path of its member.

    >>> list(faults_of({"a": 1}, {"$ref": "A"}, "", {"A": {"b": {"type": "string"}}}))
    ['a: there is no such member']
    """
    if "anyOf" in shape:
        if all(any(faults_of(value, one, where, schemas)) for one in shape["anyOf"]):
            yield f"{where}: {value!r} is none of what it takes"
    elif "$ref" in shape or shape.get("type") == "object":
        yield from _object(value, shape, where, schemas)
    elif shape.get("type") == "array":
        if not isinstance(value, list | tuple):
            yield f"{where}: a list, not {value!r}"
            return
        if len(value) < shape.get("minItems", 0):
            yield f"{where}: {shape['minItems']} at least"
        for at, one in enumerate(value):
            yield from faults_of(one, shape["items"], f"{where}[{at}]", schemas)
    else:
        yield from _scalar(value, shape, where)


def _object(value: Any, shape: Mapping[str, Any], where: str, schemas: Schemas) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{where}: an object, not {value!r}"
    elif "additionalProperties" in shape:
        for key, one in value.items():
            yield from faults_of(one, shape["additionalProperties"], f"{where}.{key}", schemas)
    else:
        own = {**shape.get("properties", {}), REQUIRED: shape.get(REQUIRED, ())}
        members = schemas[shape["$ref"]] if "$ref" in shape else own
        yield from _members(value, members, where, schemas)


def _members(
    value: Mapping[str, Any], members: Mapping[str, Any], where: str, schemas: Schemas
) -> Iterator[str]:  # fmt: skip
    for key, one in value.items():
        inside = f"{where}.{key}".lstrip(".")
        if key not in members or key == REQUIRED:
            yield f"{inside}: there is no such member"
        else:
            yield from faults_of(one, members[key], inside, schemas)
    for key in members.get(REQUIRED, ()):
        if key not in value:
            yield f"{where}.{key}".lstrip(".") + ": has to be there"


def _scalar(value: Any, shape: Mapping[str, Any], where: str) -> Iterator[str]:
    kind = shape.get("type")
    if kind == "boolean":
        if not isinstance(value, bool):
            yield f"{where}: true or false, not {value!r}"
    elif kind in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, NUMBERS[kind]):  # type: ignore[arg-type]
            yield f"{where}: a number, not {value!r}"
    elif kind == "string":
        yield from _text(value, shape, where)


def _text(value: Any, shape: Mapping[str, Any], where: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{where}: a text, not {value!r}"
    elif "enum" in shape and value not in shape["enum"]:
        yield f"{where}: {value!r} is none of {', '.join(shape['enum'])}"
    elif shape.get("format") in {"int64", "uint64"} and not value.lstrip("-").isdigit():
        yield f"{where}: digits as a text, not {value!r}"
    elif "maxLength" in shape and len(value) > shape["maxLength"]:
        yield f"{where}: {len(value)} characters, {shape['maxLength']} at most"
    elif "pattern" in shape and not re.search(shape["pattern"], value):
        yield f"{where}: {value!r} does not match {shape['pattern']}"
