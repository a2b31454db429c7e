"""Vega-Lite specifications of bars: stacks with a total and a limit, scores, weights that would change the winner.

Names are above their bars, never beside them, so that long ones have room on a phone as well.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import altair as alt

from tonnage.reports.comparison.drawings import ScoreBars, Shifts, Stack
from tonnage.reports.comparison.plots import COLORS, DOLLARS, INK, legend, shorten

Plot: TypeAlias = alt.LayerChart | alt.FacetChart
STEP: Final = 44  # pixels a bar takes with its name
BELOW: Final = 11  # from the middle of a step to the middle of its bar
THICK: Final = 15
LONGEST: Final = 75  # letters that have room in a line


def stack(drawing: Stack) -> Plot:
    """Parts beside one another, the interval of their total as a whisker, the limit as a thick mark."""
    parts: list[dict[str, Any]] = []
    for place, bar in enumerate(drawing.bars):
        end = 0.0
        for name, amount in bar.parts:
            if amount > 0:  # a rebate is in the total only
                parts.append({"bar": place, "part": name, "from": end, "to": end + amount})
                end += amount
    names = list(dict.fromkeys(part["part"] for part in parts))
    axis = alt.Axis(tickCount=6, labelExpr=DOLLARS if drawing.in_dollars else alt.Undefined)
    x = alt.X("from:Q", title=drawing.x_title, axis=axis, scale=alt.Scale(domainMin=0))
    colors = [COLORS[place % len(COLORS)] for place in range(len(names))]
    color = alt.Color("part:N", scale=alt.Scale(domain=names, range=colors), legend=legend(names))
    bars = _rows(parts).mark_bar(size=THICK, yOffset=BELOW).encode(y=_y(), x=x, x2=alt.X2("to:Q"), color=color)
    totals = [
        {"bar": place, "low": bar.total.low, "high": bar.total.high, "label": f"{bar.shown or bar.name}: {bar.label}"}
        for place, bar in enumerate(drawing.bars)
    ]
    limits = [{"bar": place, "at": bar.limit} for place, bar in enumerate(drawing.bars) if bar.limit is not None]
    limit = _rows(limits).mark_tick(size=26, thickness=4, yOffset=BELOW).encode(y=_y(), x=alt.X("at:Q"))
    return _layer(bars, *_whiskers(totals), _names(totals), *([limit] if limits else []))


def scores(drawing: ScoreBars) -> Plot:
    """One bar each, the interval as a whisker."""
    rows = [
        {"bar": place, "zero": 0, "value": bar.value.value, "low": bar.value.low, "high": bar.value.high,
         "label": f"{bar.name}: {bar.label}"}
        for place, bar in enumerate(drawing.bars)
    ]  # fmt: skip
    scale = alt.Scale(domain=[0, drawing.highest], nice=False)
    x = alt.X("zero:Q", title=drawing.x_title, scale=scale, axis=alt.Axis(tickCount=int(drawing.highest), format="d"))
    bars = _rows(rows).mark_bar(size=THICK, yOffset=BELOW, color=COLORS[0]).encode(y=_y(), x=x, x2=alt.X2("value:Q"))
    return _layer(bars, *_whiskers(rows), _names(rows))


def shifts(drawing: Shifts) -> Plot:
    """From an open mark (now) to a filled one (where another wins)."""
    rows = [
        {"bar": place, "now": one.now, "tie": one.tie, "label": f"{one.name}: {one.label}"}
        for place, one in enumerate(drawing.shifts)
    ]
    x = alt.X("now:Q", title=drawing.x_title, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=6))
    base = _rows(rows)
    line = base.mark_rule(strokeWidth=3, yOffset=BELOW, color=COLORS[0]).encode(y=_y(), x=x, x2=alt.X2("tie:Q"))
    now = base.mark_point(size=90, yOffset=BELOW, color=INK, filled=False, strokeWidth=2).encode(y=_y(), x=x)
    tie = base.mark_point(size=110, yOffset=BELOW, color=COLORS[0], filled=True, shape="diamond", opacity=1)
    return _layer(line, now, tie.encode(y=_y(), x=alt.X("tie:Q")), _names(rows))


def _rows(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))


def _y() -> alt.Y:
    return alt.Y("bar:O", axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0.1))


def _names(rows: list[dict[str, Any]]) -> alt.Chart:
    said = [{"bar": row["bar"], "label": shorten(row["label"], LONGEST)} for row in rows]
    text = _rows(said).mark_text(align="left", baseline="middle", dy=-9)
    named: alt.Chart = text.encode(y=_y(), x=alt.XValue(0), text=alt.Text("label:N"))
    return named


def _whiskers(rows: list[dict[str, Any]]) -> list[alt.Chart]:
    known = [row for row in rows if row["high"] > row["low"]]
    if not known:
        return []
    base = _rows(known)
    rule = base.mark_rule(strokeWidth=1.6, yOffset=BELOW).encode(y=_y(), x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    ends = [
        base.mark_tick(size=9, thickness=1.6, yOffset=BELOW).encode(y=_y(), x=alt.X(f"{end}:Q"))
        for end in ("low", "high")
    ]
    return [rule, *ends]


def _layer(*charts: alt.Chart) -> Plot:
    return alt.layer(*charts).properties(height=alt.Step(STEP))
