"""Strict decoding: a field that the type does not have, a value of another type. As `fieldValidation=Strict` does."""

from __future__ import annotations

import base64
import binascii
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.places.kubernetes.checking.formats import quantity
from tonnage.places.kubernetes.checking.refusals import Found, ObjectRefusal
from tonnage.values import dataclass

Schema = dict[str, Any]
INT32: Final = range(-(2**31), 2**31)
KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
EITHER: Final = "x-kubernetes-int-or-string"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A type of object that is known."""

    name: str
    namespaced: bool
    custom: bool  # by a CustomResourceDefinition
    schema: Schema


@cache
def _data() -> dict[str, Any]:
    text = files("tonnage.places.kubernetes.checking").joinpath("data/schemas.json").read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


def resolved(schema: Schema) -> Schema:
    """The schema that a number names."""
    number = schema.get("$")
    if number is None:
        return schema
    found: Schema = _data()["schemas"][number]
    return found


def find_kind(version: str, name: str) -> ObjectKind | None:
    """The type of `apiVersion` and `kind`, or None."""
    found = _data()["kinds"].get(f"{version}/{name}")
    if found is None:
        return None
    return ObjectKind(
        name=name, namespaced=found["scope"] == "Namespaced", custom=found.get("custom", False),
        schema=resolved(found["schema"]),
    )  # fmt: skip


def object_meta() -> Schema:
    """The type of `metadata`, the same of every kind."""
    job = find_kind("batch/v1", "Job")
    assert job is not None
    return resolved(job.schema["properties"]["metadata"])


def unknown_fields(value: Any, schema: Schema, path: str = "") -> Found:
    """Each field that the type does not have."""
    schema = resolved(schema)
    if isinstance(value, list) and "items" in schema:
        for place, one in enumerate(value):
            yield from unknown_fields(one, schema["items"], f"{path}[{place}]")
    if not isinstance(value, dict):
        return
    known, rest = schema.get("properties"), schema.get("additionalProperties")
    for name, one in value.items():
        here = f"{path}.{name}" if path else name
        if schema.get("x-kubernetes-embedded-resource") and name in {"apiVersion", "kind", "metadata"}:
            continue
        if known is not None and name in known:
            yield from unknown_fields(one, known[name], here)
        elif isinstance(rest, dict):
            yield from unknown_fields(one, rest, here)
        elif not schema.get(KEEPS) and rest is not True:
            yield ObjectRefusal(field=here, reason="unknown field", message="unknown field", code=400)


def undecodable(value: Any, schema: Schema, path: str = "") -> Found:
    """The first value that a program in Go cannot read into its type; the path has no places of lists, as there."""
    first = next(_undecodable(value, schema, path), None)
    if first is not None:
        yield first


def _undecodable(value: Any, schema: Schema, path: str) -> Found:
    schema = resolved(schema)
    if value is None or schema.get(KEEPS):
        return
    if schema.get("format") == "quantity":
        yield from _quantity(value, path)
    elif schema.get(EITHER):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _wrong(path, value, "a number or a string")
    else:
        yield from _typed(value, schema, path)


def _typed(value: Any, schema: Schema, path: str) -> Found:
    match schema.get("type"):
        case "string":
            if not isinstance(value, str):
                yield _wrong(path, value, "a string")
            elif schema.get("format") == "byte":
                yield from _base64(value, path)
        case "integer":
            if isinstance(value, bool) or not isinstance(value, int):
                yield _wrong(path, value, "a whole number")
            elif schema.get("format") == "int32" and value not in INT32:
                yield _wrong(path, value, "a number of 32 bits")
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                yield _wrong(path, value, "a number")
        case "boolean":
            if not isinstance(value, bool):
                yield _wrong(path, value, "true or false")
        case "array":
            if not isinstance(value, list):
                yield _wrong(path, value, "a list")
                return
            for one in value:
                yield from _undecodable(one, schema.get("items", {}), path)
        case "object":
            yield from _object(value, schema, path)


def _object(value: Any, schema: Schema, path: str) -> Found:
    if not isinstance(value, dict):
        yield _wrong(path, value, "an object")
        return
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for name, one in value.items():
        if name in known:
            yield from _undecodable(one, known[name], f"{path}.{name}" if path else name)
        elif isinstance(rest, dict):
            yield from _undecodable(one, rest, path)


def _quantity(value: Any, path: str) -> Found:
    try:
        quantity(value)
    except ValueError as error:
        yield ObjectRefusal(field=path, reason="undecodable", message=str(error), code=400)


def _base64(value: str, path: str) -> Found:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error as error:
        yield ObjectRefusal(field=path, reason="undecodable", message=f"is not base64: {error}", code=400)


def _wrong(path: str, value: Any, wanted: str) -> ObjectRefusal:
    return ObjectRefusal(field=path, reason="undecodable", message=f"{value!r} is not {wanted}", code=400)


def read_document(text: str) -> dict[str, Any]:
    """One object of JSON. InputError where it is not one, or a field occurs there twice."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise InputError(f"the object cannot be read: {error}", hint="send a whole JSON document") from error
    if not isinstance(found, dict):
        raise InputError("the object is no JSON object", hint="send a whole JSON document")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the field "{twice}" is there twice')
    return found
