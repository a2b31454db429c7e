"""A line over steps or time: as SVG for pages, as a row of blocks for terminals and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from tonnage.reports.blocks import LineChart
from tonnage.reports.wording import short

COLORS: Final = ("#3b7dd8", "#d9822b", "#2a9d6f", "#b35cc4", "#c0392b", "#7f8c1d", "#16808f", "#8d6e63")
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "9 3 2 3 2 3")  # colour alone carries no meaning
WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 26, 44
_LEGEND_PX: Final = 20  # height of a row of names, which are above the lines
_NAMES_A_ROW: Final = 3
_MOST_POINTS: Final = 400
_LEVELS: Final = "▁▂▃▄▅▆▇█"

Point = tuple[float, float]


def render_svg(chart: LineChart) -> str:
    """The chart as one SVG element, all text escaped; nothing where no point can be drawn."""
    series = [(name, thinned(drawable(points), _MOST_POINTS)) for name, points in chart.series]
    points = [point for _, line in series for point in line]
    if not points:
        return ""
    marks = log_ticks if chart.log_x else ticks
    x_marks = marks(min(x for x, _ in points), max(x for x, _ in points))
    y_marks = ticks(min(y for _, y in points), max(y for _, y in points))
    names = [name for name, _ in series] if len(series) > 1 else []
    above = _LEGEND_PX * math.ceil(len(names) / _NAMES_A_ROW)
    height = HEIGHT + above
    x = (_log_scale if chart.log_x else _scale)(x_marks, _LEFT, WIDTH - _RIGHT)
    y = _scale(y_marks, height - _BOTTOM, _TOP + above)
    look = 'style="max-width:100%;height:auto" role="img"'
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" {look} aria-label="{escape(chart.title)}">']
    for place, name in enumerate(names):
        out += _legend(name, place)
    out += [f'<path d="M{_LEFT} {y(mark):.1f}H{WIDTH - _RIGHT}" stroke="#8884"/>'
            + _text(_LEFT - 8, y(mark) + 4, short(mark), "end") for mark in y_marks]  # fmt: skip
    out += [_text(x(mark), height - _BOTTOM + 18, short(mark, 6), "middle") for mark in x_marks]
    out.append(_text((_LEFT + WIDTH - _RIGHT) / 2, height - 8, chart.x_title, "middle"))
    out.append(_text(_LEFT - 8, _TOP + above - 12, chart.y_title, "start"))
    for place, (_, line) in enumerate(series):
        out += _series(line, place, x, y)
    return "".join([*out, "</svg>"])


def render_spark(points: Sequence[Point], width: int) -> str:
    """The values as blocks, one a cell, each the mean of its share of the points.

    >>> render_spark([(0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)], 4)
    '█▆▃▁'
    """
    known = [value for _, value in drawable(points)]
    if not known:
        return ""
    cells = min(width, len(known))
    bounds = [round(place * len(known) / cells) for place in range(cells + 1)]
    means = [sum(known[low:high]) / (high - low) for low, high in pairwise(bounds)]
    low, span = min(means), max(means) - min(means)
    return "".join(_LEVELS[round((mean - low) / span * 7) if span else 3] for mean in means)


def chart_lines(chart: LineChart, width: int) -> Iterator[str]:
    """Each series in one line: first value, blocks, last value."""
    for name, points in chart.series:
        known = drawable(points)
        if known:
            label = f"{name}  " if len(chart.series) > 1 else ""
            ends = f"{chart.x_title} {short(known[0][0], 6)} to {short(known[-1][0], 6)}"
            yield f"{label}{short(known[0][1])} {render_spark(known, width)} {short(known[-1][1])}  ({ends})"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round marks that enclose both ends.

    >>> ticks(0.13, 0.68), ticks(3.0, 3.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8], [3.0, 4.0])
    """
    span = high - low
    if span <= abs(high) * 1e-9:
        return [low, low + 1.0]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 10) -> list[float]:
    """1, 2 and 5 of each power of ten that enclose both ends, powers alone where these are too many.

    >>> log_ticks(0.54, 42.0), log_ticks(0.003, 900.0)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1,)):
        every = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
        below, above = max(one for one in every if one <= low), min(one for one in every if one >= high)
        found = [one for one in every if below <= one <= above]
        if len(found) <= most:
            break
    return found if len(found) > 1 else [found[0], found[0] * 10.0]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(points) <= most:
        return list(points)
    pairs = most // 2
    bounds = [place * len(points) // pairs for place in range(pairs + 1)]
    kept: list[Point] = []
    for low, high in pairwise(bounds):
        stretch = points[low:high]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return kept


def drawable(points: Sequence[Point]) -> list[Point]:
    """Those whose both figures are numbers."""
    return [point for point in points if all(math.isfinite(figure) for figure in point)]


def _scale(marks: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, span = marks[0], marks[-1] - marks[0]
    return lambda value: start + (value - low) / span * (end - start)


def _log_scale(marks: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    along = _scale([math.log10(mark) for mark in marks], start, end)
    return lambda value: along(math.log10(value))


def _legend(name: str, place: int) -> list[str]:
    """A name with a piece of its line, in rows above the plot."""
    width = (WIDTH - _LEFT - _RIGHT) / _NAMES_A_ROW
    left, top = _LEFT + width * (place % _NAMES_A_ROW), 10 + _LEGEND_PX * (place // _NAMES_A_ROW)
    return [f'<path d="M{left:.1f} {top}h24" {_look(place)}/>', _text(left + 30, top + 4, name[:26], "start")]


def _series(line: Sequence[Point], place: int, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    way = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in line)
    out = [f'<path d="M{way}" fill="none" {_look(place)} stroke-linejoin="round"/>']
    if len(line) == 1:
        color = COLORS[place % len(COLORS)]
        out.append(f'<circle cx="{x(line[0][0]):.1f}" cy="{y(line[0][1]):.1f}" r="3" fill="{color}"/>')
    return out


def _look(place: int) -> str:
    color, dash = COLORS[place % len(COLORS)], DASHES[place % len(DASHES)]
    return f'stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" fill="currentColor">{escape(text)}</text>'
    )
