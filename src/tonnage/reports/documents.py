"""Documents cut to a part: those with a thousand refusals are too long for some readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def longest_list(document: Mapping[str, Any]) -> str | None:
    """The key of the longest list of a document; None where it has none.

    >>> longest_list({"options": [1], "refused": [1, 2], "schema": "x"})
    'refused'
    """
    lists = [(len(value), key) for key, value in document.items() if isinstance(value, list)]
    return max(lists)[1] if lists else None


def cut_longest(document: Mapping[str, Any], *, limit: int, offset: int) -> dict[str, Any]:
    """The document with a part of its longest list; `page` says of which and of how many.

    >>> cut_longest({"options": [1, 2, 3]}, limit=1, offset=1)
    {'options': [2], 'page': {'of': 'options', 'total': 3, 'limit': 1, 'offset': 1}}
    """
    name = longest_list(document)
    if name is None:
        return dict(document)
    whole = document[name]
    page = {"of": name, "total": len(whole), "limit": limit, "offset": offset}
    return {**document, name: whole[offset : offset + limit], "page": page}


def cut_lists(document: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The document with at most `limit` entries of each list; `cut` says how long those were that lost some.

    >>> cut_lists({"options": [1, 2, 3], "refused": [1]}, 2)
    {'options': [1, 2], 'refused': [1], 'cut': {'options': 3}}
    """
    cut = {key: len(value) for key, value in document.items() if isinstance(value, list) and len(value) > limit}
    return {**document, **{key: document[key][:limit] for key in cut}, "cut": cut}
