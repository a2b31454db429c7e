"""Objects of CustomResourceDefinitions: defaults, the schema, then its rules in the Common Expression Language (CEL).

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tonnage.errors import MissingExtra
from tonnage.places.kubernetes.checking.decoding import EITHER, Schema, resolved
from tonnage.places.kubernetes.checking.formats import quantity
from tonnage.places.kubernetes.checking.refusals import Found, ObjectRefusal, duplicate, invalid, required

RULES: Final = "x-kubernetes-validations"
_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def with_defaults(value: Any, schema: Schema) -> Any:
    """The value with the schema's defaults; a null that is not allowed gives way to its default."""
    schema = resolved(schema)
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(one, schema["items"]) for one in value]
    if not isinstance(value, dict):
        return value
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    made = dict(value)
    for name, one in known.items():
        inner = resolved(one)
        if "default" in inner and (name not in made or (made[name] is None and not inner.get("nullable"))):
            made[name] = inner["default"]
    for name, one in made.items():
        if name in known:
            made[name] = with_defaults(one, known[name])
        elif isinstance(rest, dict):
            made[name] = with_defaults(one, rest)
    return made


def against_schema(value: Any, schema: Schema, path: str = "") -> Found:
    """Everything that the schema itself refuses: types, missing fields, enums, patterns, bounds, repeats."""
    schema = resolved(schema)
    if value is None and schema.get("nullable"):
        return
    if not _fits(value, schema):
        wanted = "integer or string" if schema.get(EITHER) else schema.get("type")
        yield ObjectRefusal(field=path, reason="type", message=f"must be of type {wanted}")
        return
    yield from _value(value, schema, path)
    if isinstance(value, list):
        yield from _list(value, schema, path)
    if isinstance(value, dict):
        yield from _mapping(value, schema, path)


def _fits(value: Any, schema: Schema) -> bool:
    if schema.get(EITHER):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    return wanted is None or _TYPES[wanted](value)


def _value(value: Any, schema: Schema, path: str) -> Found:
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(map(str, schema["enum"]))
        yield ObjectRefusal(field=path, reason="unsupported", message=f"{value!r} is none of {allowed}")
    if isinstance(value, str):
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            yield invalid(path, f"'{value}' should match {schema['pattern']}")
        if len(value) > schema.get("maxLength", len(value)):
            yield ObjectRefusal(field=path, reason="too long", message=f"at most {schema['maxLength']} characters")
        if len(value) < schema.get("minLength", 0):
            yield invalid(path, f"at least {schema['minLength']} characters")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield invalid(path, f"{value} is less than {schema['minimum']}")
        if value > schema.get("maximum", value):
            yield invalid(path, f"{value} is more than {schema['maximum']}")
        if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
            yield invalid(path, f"{value} does not fit into 32 bits")
    yield from _pattern_of_quantity(value, schema, path)


def _pattern_of_quantity(value: Any, schema: Schema, path: str) -> Found:
    """Of numbers that may be strings, where no pattern says what a quantity is."""
    if schema.get("format") == "quantity":
        try:
            quantity(value)
        except ValueError as error:
            yield invalid(path, str(error))


def _list(value: list[Any], schema: Schema, path: str) -> Found:
    if len(value) > schema.get("maxItems", len(value)):
        yield ObjectRefusal(field=path, reason="too many", message=f"at most {schema['maxItems']} items")
    if len(value) < schema.get("minItems", 0):
        yield invalid(path, f"at least {schema['minItems']} items")
    for place, one in enumerate(value):
        yield from against_schema(one, schema.get("items", {}), f"{path}[{place}]")
    kind, seen = schema.get("x-kubernetes-list-type"), []
    keys = schema.get("x-kubernetes-list-map-keys", ())
    for place, one in enumerate(value):
        if kind == "map" and isinstance(one, dict):
            mark: Any = {key: one.get(key) for key in keys}
        elif kind == "set":
            mark = one
        else:
            continue
        if mark in seen:
            yield duplicate(f"{path}[{place}]", mark)
        seen.append(mark)


def _mapping(value: dict[str, Any], schema: Schema, path: str) -> Found:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    if len(value) > schema.get("maxProperties", len(value)):
        yield ObjectRefusal(field=path, reason="too many", message=f"at most {schema['maxProperties']} items")
    if len(value) < schema.get("minProperties", 0):
        yield invalid(path, f"at least {schema['minProperties']} items")
    for name in schema.get("required", ()):
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    for name, one in value.items():
        here = f"{path}.{name}" if path else name
        if name in known and here != "metadata":
            yield from against_schema(one, known[name], here)
        elif isinstance(rest, dict):
            yield from against_schema(one, rest, here)


def against_rules(value: Any, schema: Schema, path: str = "", *, old: Any = None) -> Found:
    """What the schema's CEL rules refuse. `old`: the object before an update, for rules about changes."""
    schema = resolved(schema)
    if value is None:
        return
    for rule in schema.get(RULES, ()):
        yield from _rule(value, rule, path, old)
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for name, one in value.items():
            inner = known.get(name, rest if isinstance(rest, dict) else None)
            if inner is not None:
                yield from against_rules(one, inner, f"{path}.{name}" if path else name, old=before.get(name))
    if isinstance(value, list) and "items" in schema:
        keys = schema.get("x-kubernetes-list-map-keys")
        for place, one in enumerate(value):
            was = _same(one, old, keys) if keys else None
            yield from against_rules(one, schema["items"], f"{path}[{place}]", old=was)


def _same(one: Any, old: Any, keys: list[str]) -> Any:
    """The member of a list that had the same keys."""
    mark = [one.get(key) for key in keys]
    return next((was for was in old or () if [was.get(key) for key in keys] == mark), None)


def _rule(value: Any, rule: dict[str, Any], path: str, old: Any) -> Found:
    text: str = rule["rule"]
    about_changes = "oldSelf" in text
    if about_changes and old is None and not rule.get("optionalOldSelf"):
        return
    given = {"self": value, **({"oldSelf": old} if about_changes else {})}
    try:
        holds = _program(text).execute(given)
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        yield invalid(path, f"the rule cannot be evaluated: {error}")
        return
    if holds is not True:
        where = f"{path}{rule['fieldPath']}" if rule.get("fieldPath") else path
        yield invalid(where, rule.get("message") or f"failed rule: {text.strip()}")


def can_evaluate() -> bool:
    """Whether the package that evaluates CEL is installed."""
    from importlib.util import find_spec

    return find_spec("cel") is not None


@cache
def _program(text: str) -> Any:
    return compiled(text)


def compiled(text: str) -> Any:
    """A CEL expression ready to run. ValueError where it is not one; MissingExtra without its package."""
    try:
        import cel
    except ImportError as error:
        raise MissingExtra("rules of custom resources", "kubernetes") from error
    return cel.compile(text)
