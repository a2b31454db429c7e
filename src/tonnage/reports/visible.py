"""Control characters of names, made visible: a terminal or a page never carries them out."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from tonnage.reports.blocks import LineChart, Page

# C0 and C1 controls but the line feed, and the marks that turn the direction of text (Unicode TR 9).
_CONTROL: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with each control character as its escape.

    >>> visible("a\x1b[31mb"), visible("plain")
    ('a\\\\x1b[31mb', 'plain')
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def visible_page(page: Page) -> Page:
    """The page with every text visible."""
    shown = _shown(page)
    assert isinstance(shown, Page)
    return shown


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, tuple):
        return tuple(_shown(one) for one in value)
    if isinstance(value, LineChart):  # thousands of points, which are numbers
        named = tuple((visible(name), points) for name, points in value.series)
        titles: dict[str, Any] = {name: visible(getattr(value, name)) for name in ("title", "x_title", "y_title")}
        return replace(value, series=named, **titles)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: _shown(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **changed)
    return value
