"""Predictions in words: value, 80 % interval, and whether it is computed or assumed."""

from __future__ import annotations

from typing import Final

from tonnage.reports.wording import render_duration, render_money, render_money_interval, render_time_interval, short
from tonnage.sizing.estimates import Figure

UNKNOWN: Final = "not known"


def money(figure: Figure | None) -> str:
    """«$12.30 ($9.10–18.00)»; «not known» for None."""
    if figure is None:
        return UNKNOWN
    interval = render_money_interval(figure)
    return f"{render_money(figure.value)} ({interval})" if interval else render_money(figure.value)


def duration(figure: Figure | None) -> str:
    """A time with its interval."""
    if figure is None:
        return UNKNOWN
    interval = render_time_interval(figure)
    return f"{render_duration(figure.value)} ({interval})" if interval else render_duration(figure.value)


def rate(found: tuple[str, Figure] | None) -> str:
    """A rate with its unit, read from its key."""
    if found is None:
        return UNKNOWN
    key, figure = found
    unit = key.removesuffix("_per_s").replace("_", " ") + "/s"
    if figure.low == figure.high:
        return f"{short(figure.value)} {unit}"
    return f"{short(figure.value)} ({short(figure.low)}–{short(figure.high)}) {unit}"


def volume(factor: float) -> str:
    """A multiple of the stated volume.

    >>> volume(0.1), volume(10.0)
    ('0.1x', '10x')
    """
    return f"{factor:g}x"


def counted(value: float, noun: str, many: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "week"), counted(1.5, "week"), counted(1200, "person", "people")
    ('1 week', '1.5 weeks', '1,200 people')
    """
    shown = f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"
    return f"{shown} {noun if value == 1 else many or noun + 's'}"


def amount(figure: Figure | None, unit: str) -> str:
    """«12.3 (10–14) kWh»; «not known» for None."""
    if figure is None:
        return UNKNOWN
    if figure.low == figure.high:
        return f"{short(figure.value)} {unit}"
    return f"{short(figure.value)} ({short(figure.low)}–{short(figure.high)}) {unit}"
