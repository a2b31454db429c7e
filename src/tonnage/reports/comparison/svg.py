"""Small drawings as SVG text: the same bytes for the same values, colours that hold on light and dark pages.

Written here because the drawing libraries at hand are too large for what every installation carries; a report needs
no extra. Each series has a dash and a mark of its own, so that colour alone never carries meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

COLORS: Final = ("#3b7dd8", "#d9822b", "#2a9d6f", "#b35cc4", "#c0504d", "#8a8a2a")
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "5 5", "1 5")
WIDTH: Final = 760
LINE: Final = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: (x, value, low, high) in order of x."""

    name: str
    points: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar with its interval, and its value in words."""

    name: str
    value: float
    low: float
    high: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One bar of a Gantt chart, in days; `late`: where it ends if all goes slowly."""

    name: str
    start: float
    end: float
    group: int
    label: str
    critical: bool


def lines_chart(key: str, title: str, text: str, series: Sequence[Series], *, x_title: str, y_title: str) -> str:
    """Lines with their intervals as bands, both axes logarithmic; values must be above 0."""
    height, left, right, top, bottom = 330, 70, 190, 20, 48
    xs = [point[0] for one in series for point in one.points]
    ys = [value for one in series for point in one.points for value in point[1:] if value > 0]
    if not xs or not ys:
        return ""
    x_low, x_high = math.log10(min(xs)), math.log10(max(xs))
    y_low, y_high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    x_high, y_high = max(x_high, x_low + 1e-9), max(y_high, y_low + 1)

    def x(value: float) -> float:
        return left + (math.log10(value) - x_low) / (x_high - x_low) * (WIDTH - left - right)

    def y(value: float) -> float:
        value = max(value, 10.0**y_low)
        return height - bottom - (math.log10(value) - y_low) / (y_high - y_low) * (height - top - bottom)

    out = []
    for mark in _marks(y_low, y_high):
        out.append(f'<path d="M{left} {y(mark):.1f}H{WIDTH - right}" class="grid"/>')
        out.append(_text(left - 8, y(mark) + 4, f"${mark:,g}", "end"))
    for value in sorted(set(xs)):
        out.append(_text(x(value), height - bottom + 18, f"{value:g}x", "middle"))
    out.append(_text((left + WIDTH - right) / 2, height - 8, x_title, "middle"))
    out.append(_text(left, top - 6, y_title, "start"))
    for place, one in enumerate(series):
        out += _line(one, place, x, y, left=WIDTH - right + 14, top=top + 10 + place * 22)
    return _svg(key, title, text, height, out)


def _marks(low: int, high: int) -> list[float]:
    """Marks of a logarithmic axis: powers of ten, with 2 and 5 between them where there are few.

    >>> _marks(2, 3), _marks(0, 4)
    ([100.0, 200.0, 500.0, 1000.0], [1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    return [step * 10.0**power for power in range(low, high) for step in steps] + [10.0**high]


def _line(one: Series, place: int, x: object, y: object, *, left: float, top: float) -> Iterable[str]:
    assert callable(x)
    assert callable(y)
    color, dash = COLORS[place % len(COLORS)], DASHES[place % len(DASHES)]
    upper = [f"{x(at):.1f} {y(high):.1f}" for at, _, _, high in one.points]
    lower = [f"{x(at):.1f} {y(low):.1f}" for at, _, low, _ in reversed(one.points)]
    yield f'<path d="M{"L".join([*upper, *lower])}Z" fill="{color}" fill-opacity="0.13"/>'
    way = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value, _, _ in one.points)
    yield f'<path d="M{way}" fill="none" stroke="{color}" stroke-width="2.2" stroke-dasharray="{dash}"/>'
    for at, value, _, _ in one.points:
        yield f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3" fill="{color}"/>'
    yield f'<path d="M{left} {top}h24" stroke="{color}" stroke-width="2.2" stroke-dasharray="{dash}"/>'
    yield _text(left + 30, top + 4, shorten(one.name, 20), "start")


def bars_chart(key: str, title: str, text: str, bars: Sequence[Bar], *, highest: float, x_title: str) -> str:
    """Horizontal bars from 0 to `highest`, each with its interval as a whisker."""
    left, right, top = 230, 130, 8
    height = top + LINE * len(bars) + 40
    scale = (WIDTH - left - right) / highest
    out = []
    for place, bar in enumerate(bars):
        middle = top + LINE * place + LINE / 2
        color = COLORS[place % len(COLORS)]
        out.append(_text(left - 10, middle + 4, shorten(bar.name, 32), "end"))
        out.append(
            f'<rect x="{left}" y="{middle - 8:.1f}" width="{bar.value * scale:.1f}" height="16" fill="{color}"/>'
        )
        if bar.high > bar.low:
            low, high = left + bar.low * scale, left + bar.high * scale
            out.append(
                f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 5:.1f}v10'
                f'M{high:.1f} {middle - 5:.1f}v10" class="axis"/>'
            )
        out.append(_text(WIDTH - right + 10, middle + 4, bar.label, "start"))
    for mark in range(int(highest) + 1):
        out.append(_text(left + mark * scale, height - 22, f"{mark}", "middle"))
    out.append(_text(left + highest * scale / 2, height - 4, x_title, "middle"))
    return _svg(key, title, text, height, out)


def gantt_chart(key: str, title: str, text: str, spans: Sequence[Span], *, x_title: str) -> str:
    """Tasks over working days; bars on the critical way have an outline."""
    left, right, top = 300, 16, 8
    height = top + 20 * len(spans) + 40
    last = max((span.end for span in spans), default=1.0) or 1.0
    scale = (WIDTH - left - right) / last
    out = []
    step = max(1, math.ceil(last / 10 / 5) * 5)
    for day in range(0, int(last) + 1, step):
        at = left + day * scale
        out.append(f'<path d="M{at:.1f} {top}V{height - 36}" class="grid"/>')
        out.append(_text(at, height - 20, f"{day}", "middle"))
    for place, span in enumerate(spans):
        at = top + 20 * place
        color = COLORS[span.group % len(COLORS)]
        width = max((span.end - span.start) * scale, 2.0)
        mark = ' class="critical"' if span.critical else ""
        out.append(_text(left - 8, at + 14, shorten(span.name, 44), "end", size=11))
        out.append(
            f'<rect x="{left + span.start * scale:.1f}" y="{at + 3}" width="{width:.1f}" height="14" '
            f'fill="{color}"{mark}>'
            f"<title>{escape(span.label)}</title></rect>"
        )
    out.append(_text((left + WIDTH - right) / 2, height - 4, x_title, "middle"))
    return _svg(key, title, text, height, out)


def shorten(text: str, limit: int) -> str:
    """
    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(x: float, y: float, text: str, anchor: str, *, size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="currentColor">'
        f"{escape(text)}</text>"
    )


def _svg(key: str, title: str, text: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="{key}-title {key}-text" font-family="system-ui, sans-serif">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-text">{escape(text)}</desc>'
    )
    return "\n".join([head, *parts, "</svg>"])
