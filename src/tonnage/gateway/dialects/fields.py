"""The fields of a request, taken one by one; a field left over has no counterpart and is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

import orjson

from tonnage.gateway.dialects.conversation import UntranslatableRequest

T = TypeVar("T")


class Fields:
    """`where` is the path of the object in the request, for messages."""

    def __init__(self, said: Any, where: str = "") -> None:
        if not isinstance(said, Mapping):
            raise UntranslatableRequest(where or "body", "is not an object")
        self.where = where
        self._left = dict(said)

    def at(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    @overload
    def take(self, name: str, kind: type[T]) -> T | None: ...
    @overload
    def take(self, name: str, kind: tuple[type, ...]) -> Any: ...
    def take(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The value of a field; None where it is absent or null. UntranslatableRequest where it is of another type."""
        found = self._left.pop(name, None)
        if found is None:
            return None
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            raise UntranslatableRequest(self.at(name), f"is not {' or '.join(one.__name__ for one in kinds)}")
        return found

    def need(self, name: str, kind: type[T]) -> T:
        found = self.take(name, kind)
        if found is None:
            raise UntranslatableRequest(self.at(name), "is missing")
        return found

    def number(self, name: str) -> float | None:
        found: float | None = self.take(name, (int, float))
        return found

    def drop(self, *names: str) -> list[str]:
        """The names among these that were said; they are hints."""
        return [self.at(name) for name in names if self._left.pop(name, None) not in (None, False, {}, [])]

    def only(self, name: str, *allowed: Any, why: str = "has no counterpart in the upstream's dialect") -> None:
        """A field that can be translated at its default alone."""
        found = self._left.pop(name, None)
        if found is not None and found not in allowed:
            raise UntranslatableRequest(self.at(name), why)

    def end(self) -> None:
        """UntranslatableRequest names the first field that was left over."""
        for name, value in self._left.items():
            if value is not None:
                raise UntranslatableRequest(self.at(name), "has no counterpart in the upstream's dialect")


def strings(fields: Fields, name: str) -> tuple[str, ...]:
    """A string or a list of strings."""
    found = fields.take(name, (str, list))
    if found is None:
        return ()
    listed = [found] if isinstance(found, str) else found
    if not all(isinstance(one, str) for one in listed):
        raise UntranslatableRequest(fields.at(name), "is not a list of strings")
    return tuple(listed)


def cache_of(fields: Fields) -> str | None:
    """Anthropic's `cache_control`, which the chat dialect of several providers takes too."""
    said = fields.take("cache_control", dict)
    if said is None:
        return None
    inner = Fields(said, fields.at("cache_control"))
    inner.only("type", "ephemeral")
    ttl = inner.take("ttl", str) or "5m"
    inner.end()
    return ttl


def arguments_object(arguments: str, where: str) -> dict[str, Any]:
    """The arguments of a call as an object; no text at all is no arguments."""
    try:
        found = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError as error:
        raise UntranslatableRequest(where, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UntranslatableRequest(where, "is not an object")
    return found


def data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 data of a data URL; None for another URL."""
    if not url.startswith("data:"):
        return None
    head, _, data = url[5:].partition(",")
    media_type, _, coding = head.partition(";")
    return (media_type, data) if coding == "base64" else None
