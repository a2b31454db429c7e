"""The user's own words in what a place is asked: `patch` of places.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(given: Any, patch: Any) -> Any:
    """A body with the patch put into it: as a JSON merge patch (RFC 7396), without its null, so that a place adds and
    replaces.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4})
    {'a': {'b': 3, 'c': 2}, 'd': 4}
    """
    if not isinstance(given, dict) or not isinstance(patch, Mapping):
        return patch
    made = dict(given)
    for key, value in patch.items():
        made[key] = merged(made[key], value) if key in made else value
    return made
