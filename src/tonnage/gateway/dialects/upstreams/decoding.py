"""Values of an upstream's JSON, where each may be missing or of another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tonnage.gateway.dialects.conversation import UpstreamNonsense


def parsed(data: bytes) -> dict[str, Any]:
    """Raises UpstreamNonsense for invalid JSON object."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UpstreamNonsense(f"an event that is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UpstreamNonsense("an event that is no object")
    return found


def text(said: Mapping[str, Any], name: str) -> str | None:
    found = said.get(name)
    return found if isinstance(found, str) else None


def integer(said: Mapping[str, Any], name: str) -> int | None:
    found = said.get(name)
    return found if type(found) is int else None


def mapping(said: Any, name: str) -> Mapping[str, Any]:
    found = said.get(name) if isinstance(said, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def objects(said: Any, name: str) -> list[Mapping[str, Any]]:
    """The objects of a list; what is between them and is none, is passed over."""
    found = said.get(name) if isinstance(said, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
