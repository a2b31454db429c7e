"""What is wrong with an object, as an API server names it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from tonnage.values import dataclass

Reason = Literal["required", "invalid", "unsupported", "duplicate", "not found", "forbidden", "too long", "too many",
                 "type", "unknown field", "undecodable", "no such resource", "conflict"]  # fmt: skip
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRefusal:
    """One fault of an object. `code`: of the answer an API server gives: 400, 403, 404, 422."""

    field: str  # `spec.template.spec.containers[0].image`; empty: the object as a whole
    reason: Reason
    message: str
    code: int = 422

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


Found = Iterator[ObjectRefusal]


def required(field: str, message: str = "required") -> ObjectRefusal:
    return ObjectRefusal(field=field, reason="required", message=message)


def invalid(field: str, message: str) -> ObjectRefusal:
    return ObjectRefusal(field=field, reason="invalid", message=message)


def forbidden(field: str, message: str) -> ObjectRefusal:
    return ObjectRefusal(field=field, reason="forbidden", message=message)


def not_found(field: str, message: str) -> ObjectRefusal:
    return ObjectRefusal(field=field, reason="not found", message=message)


def duplicate(field: str, value: object) -> ObjectRefusal:
    return ObjectRefusal(field=field, reason="duplicate", message=f"{value!r} is there twice")


def one_of(field: str, value: object, allowed: Sequence[str], *, empty: bool = False) -> Found:
    """Nothing where the value is one of those, or is missing; `empty`: missing is refused too."""
    if value in (None, ""):
        if empty:
            yield required(field, f"one of {', '.join(allowed)}")
    elif value not in allowed:
        yield ObjectRefusal(field=field, reason="unsupported", message=f"{value!r} is none of {', '.join(allowed)}")


def at_least(field: str, value: int | None, least: int = 0) -> Found:
    if value is not None and value < least:
        yield invalid(field, f"{value} is less than {least}")


def between(field: str, value: int | None, least: int, most: int) -> Found:
    if value is not None and not least <= value <= most:
        yield invalid(field, f"{value} is not between {least} and {most}")


def no_repeats(values: Iterable[tuple[str, object]]) -> Found:
    """(field, value) pairs whose value occurs there a second time."""
    seen: list[object] = []
    for field, value in values:
        if value in seen:
            yield duplicate(field, value)
        seen.append(value)


def many(parent: Mapping[str, Any], key: str) -> list[Any]:
    """A list of an object; none where it is missing or null."""
    return list(parent.get(key) or ())


def part(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object of an object; an empty one where it is missing or null."""
    return dict(parent.get(key) or {})
