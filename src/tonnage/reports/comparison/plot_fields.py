"""Vega-Lite specifications of fields: curves with bands, the front of cost and time, tasks over the calendar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final, Literal, TypeAlias

import altair as alt

from tonnage.reports.comparison.drawings import Courses, Curves, Front, TaskSpans
from tonnage.reports.comparison.plots import COLORS, DOLLARS, INK, legend, shorten

Plot: TypeAlias = alt.LayerChart | alt.FacetChart
HEIGHT: Final = 290
LABEL: Final = 17  # pixels a line of words takes
DASHES: Final = ([1, 0], [7, 3], [2, 3], [9, 3, 2, 3], [5, 5], [1, 5])
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
WIDE: Final = 5.0  # an axis whose ends are further apart than this factor is logarithmic
TASK: Final = 34
LONGEST: Final = 82  # letters that have room in a line


def curves(drawing: Curves) -> Plot:
    """Bands, lines, and a dashed upright with words for each crossing; a line has a colour and a dash of its own."""
    rows: list[dict[str, Any]] = [
        {"name": one.name, "x": x, "value": value, "low": low, "high": high}
        for one in drawing.curves
        for x, value, low, high in one.points
    ]
    names = [one.name for one in drawing.curves]
    low, high = _decades([row[key] for row in rows for key in ("low", "high")])
    top = low + (high - low) / (1 - LABEL * len(drawing.marks) / HEIGHT)  # words of the marks are above the lines
    xs = [row["x"] for row in rows]
    x_axis = alt.Axis(values=_log_marks(min(xs), max(xs)), labelExpr="format(datum.value, '~g') + 'x'", grid=False)
    x = alt.X("x:Q", title=drawing.x_title, axis=x_axis,
              scale=alt.Scale(type="log", domain=[min(xs), max(xs)], nice=False))  # fmt: skip
    y_axis = alt.Axis(values=_log_marks(10**low, 10**high), labelExpr=DOLLARS)
    y_scale = alt.Scale(type="log", domain=[10**low, 10**top], nice=False)
    y = alt.Y("value:Q", title=drawing.y_title, axis=y_axis, scale=y_scale)
    base, ranges = _rows(rows), [COLORS[place % len(COLORS)] for place in range(len(names))]
    colors, strokes = alt.Scale(domain=names, range=ranges), legend(names, symbolType="stroke", symbolStrokeWidth=2.4)
    faint = 0.16 if len(names) <= 4 else 0.07
    bands = [
        _rows([row for row in rows if row["name"] == name])
        .mark_area(opacity=faint, color=color)
        .encode(x=x, y=alt.Y("low:Q", title=drawing.y_title, axis=y_axis, scale=y_scale), y2=alt.Y2("high:Q"))
        for name, color in zip(names, ranges, strict=True)
    ]
    line = base.mark_line(strokeWidth=2.4).encode(
        x=x, y=y, stroke=alt.Stroke("name:N", scale=colors, legend=strokes), strokeDash=_dashed(names, strokes)
    )
    return _sized(alt.layer(*bands, line, *_uprights(drawing, xs)), HEIGHT)


def courses(drawing: Courses) -> Plot:
    """Bands and lines from 0 on plain axes; a line has a colour and a dash of its own."""
    names = [one.name for one in drawing.courses]
    rows: list[dict[str, Any]] = [
        {"name": one.name, "x": x, "value": value, "low": low, "high": high}
        for one in drawing.courses
        for x, value, low, high in one.points
    ]
    x = alt.X("x:Q", title=drawing.x_title, axis=alt.Axis(grid=False, tickCount=8),
              scale=alt.Scale(domain=[0, max(row["x"] for row in rows)], nice=False))  # fmt: skip
    y = alt.Y("value:Q", title=drawing.y_title, axis=alt.Axis(labelExpr=DOLLARS, tickCount=6))
    ranges = [COLORS[place % len(COLORS)] for place in range(len(names))]
    strokes = legend(names, symbolType="stroke", symbolStrokeWidth=2.4)
    faint = 0.16 if len(names) <= 4 else 0.07
    bands = [
        _rows([row for row in rows if row["name"] == name])
        .mark_area(opacity=faint, color=color)
        .encode(x=x, y=alt.Y("low:Q", title=drawing.y_title), y2=alt.Y2("high:Q"))
        for name, color in zip(names, ranges, strict=True)
    ]
    line = _rows(rows).mark_line(strokeWidth=2.4).encode(
        x=x, y=y, stroke=alt.Stroke("name:N", scale=alt.Scale(domain=names, range=ranges), legend=strokes),
        strokeDash=_dashed(names, strokes),
    )  # fmt: skip
    return _sized(alt.layer(*bands, line), HEIGHT)


def _uprights(drawing: Curves, xs: Sequence[float]) -> Iterable[alt.Chart]:
    """A dashed line at each mark, its words above it in a row of their own."""
    xs = sorted(xs)
    for place, one in enumerate(drawing.marks):
        base = _rows([{"x": one.x, "value": one.y, "label": one.label}])
        yield base.mark_rule(strokeDash=[3, 3], opacity=0.7).encode(
            x=alt.X("x:Q"), y=alt.YValue(LABEL * place + 10), y2=alt.Y2Value(HEIGHT)
        )
        yield base.mark_point(size=70, color=INK, filled=False, strokeWidth=2).encode(
            x=alt.X("x:Q"), y=alt.Y("value:Q")
        )
        share = math.log(one.x / xs[0]) / math.log(xs[-1] / xs[0])
        side: Literal["left", "right", "center"] = "left" if share < 1 / 3 else "right" if share > 2 / 3 else "center"
        dx = {"left": 6, "right": -6, "center": 0}[side]
        words = base.mark_text(align=side, dx=dx, baseline="middle")
        yield words.encode(x=alt.X("x:Q"), y=alt.YValue(LABEL * place + 2), text=alt.Text("label:N"))


def front(drawing: Front) -> Plot:
    """Filled marks: nothing is both cheaper and faster; they are joined by steps. Intervals as crosses."""
    rows: list[dict[str, Any]] = [
        {"name": one.name, "cost": one.cost.value, "cost_low": one.cost.low, "cost_high": one.cost.high,
         "time": one.time.value, "time_low": one.time.low, "time_high": one.time.high, "best": one.best}
        for one in drawing.choices
    ]  # fmt: skip
    names = list(dict.fromkeys(one.name for one in drawing.choices))
    x = alt.X("cost:Q", title=drawing.x_title, **_spread(rows, "cost", DOLLARS))
    y = alt.Y("time:Q", title=drawing.y_title, **_spread(rows, "time", "format(datum.value, ',~r')"))
    base, color = _rows(rows), _by_name(names)
    best = sorted((row for row in rows if row["best"]), key=lambda row: row["cost"])
    steps = _rows(best).mark_line(interpolate="step-after", color=INK, opacity=0.55, strokeDash=[4, 3], strokeWidth=1.4)
    across = base.mark_rule(opacity=0.4).encode(x=alt.X("cost_low:Q"), x2=alt.X2("cost_high:Q"), y=y)
    upright = base.mark_rule(opacity=0.4).encode(x=x, y=alt.Y("time_low:Q"), y2=alt.Y2("time_high:Q"))
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    points = base.mark_point(size=95, strokeWidth=2).encode(
        x=x, y=y, color=color,
        shape=alt.Shape("name:N", scale=alt.Scale(domain=names, range=shapes), legend=legend(names)),
        fill=alt.condition("datum.best", alt.Color("name:N", legend=None), alt.value("transparent")),
    )  # fmt: skip
    return _sized(alt.layer(points, across, upright, steps.encode(x=x, y=y, order=alt.Order("cost:Q"))), HEIGHT)


def _spread(rows: list[dict[str, Any]], key: str, form: str) -> dict[str, Any]:
    """Scale and axis of one side: from the lowest low to the highest high, logarithmic where that is far."""
    low, high = min(row[f"{key}_low"] for row in rows), max(row[f"{key}_high"] for row in rows)
    if low > 0 and high / low > WIDE:
        ends = _log_steps(low, high)
        scale = alt.Scale(type="log", domain=list(ends), nice=False)
        return {"scale": scale, "axis": alt.Axis(values=_log_marks(*ends), labelExpr=form)}
    return {
        "scale": alt.Scale(zero=False, domain=[low, high], nice=True),
        "axis": alt.Axis(tickCount=6, labelExpr=form),
    }


def spans(drawing: TaskSpans) -> Plot:
    """A bar a task at the likely effort; a thin line from its end if all goes fast to that if all goes slowly."""
    rows = [
        {"task": place, "phase": one.phase, "label": shorten(one.name, LONGEST),
         "start": _noon(one.start, -0.5), "end": _noon(one.end, 0.5), "fast": _noon(one.end_fast, 0.5),
         "slow": _noon(one.end_slow, 0.5), "critical": one.critical}
        for place, one in enumerate(drawing.spans)
    ]  # fmt: skip
    phases = list(dict.fromkeys(one.phase for one in drawing.spans))
    y = alt.Y("task:O", axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0.1))
    axis = alt.Axis(labelExpr="utcFormat(datum.value, '%-d %b')", tickCount=6)
    x = alt.X("start:T", title=drawing.x_title, axis=axis, scale=alt.Scale(type="utc", nice=False))
    base, below = _rows(rows), 8
    bars = base.mark_bar(size=11, yOffset=below).encode(
        x=x, x2=alt.X2("end:T"), y=y, color=_by_name(phases, "phase", symbolStrokeWidth=0),
        strokeWidth=alt.condition("datum.critical", alt.value(1.8), alt.value(0)), stroke=alt.StrokeValue(INK),
    )  # fmt: skip
    slow = base.mark_rule(yOffset=below, strokeWidth=1.4).encode(x=alt.X("fast:T"), x2=alt.X2("slow:T"), y=y)
    ends = [
        base.mark_tick(yOffset=below, size=8, thickness=1.4).encode(x=alt.X(f"{key}:T"), y=y)
        for key in ("fast", "slow")
    ]
    words = base.mark_text(align="left", baseline="middle", dy=-7, fontSize=11.5)
    names = words.encode(x=alt.XValue(0), y=y, text=alt.Text("label:N"))
    return alt.layer(bars, slow, *ends, names).properties(height=alt.Step(TASK))


def _noon(day: date, shift_days: float) -> float:
    """Milliseconds since 1970, in UTC, as Vega counts time."""
    return (day.toordinal() - 719163 + 0.5 + shift_days) * 86_400_000.0


def _rows(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))


def _by_name(names: Sequence[str], field: str = "name", **look: Any) -> alt.Color:
    colors = [COLORS[place % len(COLORS)] for place in range(len(names))]
    scale = alt.Scale(domain=list(names), range=colors)
    return alt.Color(f"{field}:N", scale=scale, legend=legend(names, **look))


def _dashed(names: Sequence[str], key: alt.Legend) -> alt.StrokeDash:
    dashes = [DASHES[place % len(DASHES)] for place in range(len(names))]
    return alt.StrokeDash("name:N", scale=alt.Scale(domain=list(names), range=dashes), legend=key)


def _sized(chart: Plot, height: int) -> Plot:
    return chart.properties(height=height)


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the ends of an axis that holds all of `values`, at 1, 2 or 5 of a power of ten."""
    low, high = _log_steps(min(values), max(values))
    return math.log10(low), math.log10(high)


def _log_steps(low: float, high: float) -> tuple[float, float]:
    """The next 1, 2 or 5 of a power of ten below `low` and above `high`; never the same.

    >>> _log_steps(0.3, 41), _log_steps(2, 2)
    ((0.2, 50.0), (2.0, 5.0))
    """
    steps = [step * 10.0**power for power in range(-12, 16) for step in (1, 2, 5)]
    below = max(step for step in steps if step <= low * (1 + 1e-9))
    return below, min(step for step in steps if step >= high * (1 - 1e-9) and step > below)


def _log_marks(low: float, high: float) -> list[float]:
    """Marks of a logarithmic axis: 1, 2 and 5 of each power of ten, or powers alone where those are many.

    >>> _log_marks(0.1, 10), _log_marks(100, 1e8)
    ([0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0], [100.0, 1000.0, 10000.0, 100000.0, 1000000.0, 10000000.0, 100000000.0])
    """
    powers = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    marks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
