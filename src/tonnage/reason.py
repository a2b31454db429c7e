"""What every reason has: its kind, and fields of which some are figures."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar


class Reason:
    """One reason. A kind is one frozen dataclass: `kind` is its name in JSON, units are in the names of fields."""

    __slots__ = ()
    kind: ClassVar[str]


def is_figure(value: object) -> bool:
    """Whether a field's value is a number rather than a name or an answer.

    >>> is_figure(0.5), is_figure(True), is_figure("H100-SXM")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def without_figures(reason: Any) -> tuple[object, ...]:
    """The kind and the fields that are no figures: two reasons with the same differ in their figures alone."""
    found: list[object] = [type(reason)]
    for field in fields(reason):
        value = getattr(reason, field.name)
        if is_dataclass(value):
            found.append(without_figures(value))
        elif not is_figure(value):
            found.append(value)
    return tuple(found)


def has_figures(reason: Any) -> bool:
    """Whether one of the fields, or of a value in one, is a figure."""
    values = [getattr(reason, field.name) for field in fields(reason)]
    return any(has_figures(value) if is_dataclass(value) else is_figure(value) for value in values)
