"""Drawings -> SVG, by Vega-Lite: altair makes the specification, vl-convert the picture, in process and offline.

One picture serves light and dark pages: text and axes take `currentColor`, the colours of series hold on both. Text is
measured with Liberation Sans, which vl-convert carries, so that the bytes do not hang on the machine's fonts.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import MissingExtra
from tonnage.reports.comparison.drawings import (
    Architecture,
    Courses,
    Curves,
    Drawing,
    Front,
    ScoreBars,
    Shifts,
    Stack,
    TaskSpans,
)
from tonnage.reports.comparison.sections import Chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

CHART_LIBRARIES: Final = ("altair", "vl_convert")
PDF_LIBRARIES: Final = (*CHART_LIBRARIES, "typst")
WIDTH: Final = 460
DOLLARS: Final = "'$' + format(datum.value, datum.value < 1000 ? '~r' : '~s')"  # the words at a mark of an axis
FONT: Final = "Liberation Sans"
FONTS: Final = "Liberation Sans, Arial, Helvetica, sans-serif"
INK: Final = "currentColor"
VEGA_LITE: Final = "6.4"
COLORS: Final = (
    "#3b7dd8", "#c8701a", "#2a9d6f", "#a95fc0", "#c9504d", "#85852a", "#1f8fa6", "#cc5a92", "#7d858f", "#9a6b4a",
    "#7a74d9", "#5c942e",
)  # fmt: skip
AXIS: Final = {
    "domainColor": INK, "tickColor": INK, "labelColor": INK, "titleColor": INK, "gridColor": INK, "gridOpacity": 0.15,
    "domainOpacity": 0.6, "tickOpacity": 0.6, "labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal",
    "titlePadding": 8,
    "labelOverlap": "greedy",
    "labelSeparation": 5,
}  # fmt: skip
LEGEND: Final = {
    "labelColor": INK, "labelFontSize": 12.5, "labelLimit": 420, "orient": "top", "symbolSize": 110,
    "columnPadding": 14, "title": None,
}  # fmt: skip


def draw_svg(chart: Chart) -> str:
    """The picture as one `svg` element with its title and words; MissingExtra without the libraries.

    It holds no script, no link and no reference to anything outside or inside itself but its title and words.
    """
    demand_libraries(CHART_LIBRARIES, "a report with charts")
    return _drawn(chart)


def demand_libraries(names: Sequence[str], what: str) -> None:
    """MissingExtra where one of the libraries of the extra is not installed."""
    if any(find_spec(name) is None for name in names):
        raise MissingExtra(what, "report")


@lru_cache(maxsize=64)  # a report in several forms draws once
def _drawn(chart: Chart) -> str:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(json.dumps(specification(chart.drawing), sort_keys=True), vl_version=VEGA_LITE)
    return _inline(svg, chart)


def specification(drawing: Drawing, *, checked: bool = False) -> dict[str, Any]:
    """The picture in Vega-Lite. `checked`: every part against the schema of Vega-Lite, which takes as long as the
    drawing; the tests check each kind of drawing."""
    import altair
    from altair.utils.schemapi import debug_mode

    with debug_mode(checked):
        made: dict[str, Any] = _plot(drawing).to_dict(validate=checked)
    return made | _frame(altair.SCHEMA_URL)


def _plot(drawing: Drawing) -> alt.TopLevelMixin:
    from tonnage.reports.comparison import plot_bars, plot_boxes, plot_fields

    if isinstance(drawing, Stack):
        return plot_bars.stack(drawing)
    if isinstance(drawing, ScoreBars):
        return plot_bars.scores(drawing)
    if isinstance(drawing, Shifts):
        return plot_bars.shifts(drawing)
    if isinstance(drawing, Curves):
        return plot_fields.curves(drawing)
    if isinstance(drawing, Courses):
        return plot_fields.courses(drawing)
    if isinstance(drawing, Front):
        return plot_fields.front(drawing)
    if isinstance(drawing, Architecture):
        return plot_boxes.architecture(drawing)
    assert isinstance(drawing, TaskSpans)
    return plot_fields.spans(drawing)


def _frame(schema: str) -> dict[str, Any]:
    """What all pictures have in common."""
    return {
        "$schema": schema,
        "width": WIDTH,
        "padding": 6,
        "background": None,
        "config": {
            "aria": False, "font": FONT, "view": {"stroke": None}, "axis": AXIS, "legend": LEGEND,
            "range": {"category": list(COLORS)}, "text": {"color": INK, "fontSize": 12.5}, "rule": {"color": INK},
            "tick": {"color": INK},
        },
    }  # fmt: skip


def legend(names: Sequence[str], **look: Any) -> alt.Legend:
    """Above the picture, in as many columns as the longest name leaves room for."""
    import altair

    longest = max(map(len, names), default=0)
    return altair.Legend(columns=next((n for n, room in ((4, 11), (3, 17), (2, 34)) if longest <= room), 1), **look)


def shorten(text: str, limit: int) -> str:
    """
    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _inline(svg: str, chart: Chart) -> str:
    """The picture with a head of ours: named and described, as wide as its place, without what vega adds for itself."""
    found = re.fullmatch(r'<svg [^>]*viewBox="([\d. -]+)"[^>]*>(.*)</svg>\s*', svg, re.DOTALL)
    if found is None:
        raise ValueError(f"vl-convert gave no SVG as known to us: {svg[:200]}")
    box, body = found.groups()
    body = re.sub(r' (?:font-family|class|role|aria-[a-z]+|pointer-events)="[^"]*"', "", body)
    body = re.sub(r"<path d=\"\"[^>]*/>|<path [^>]*display=\"none\"/>", "", body)
    key = escape(chart.key)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" '
        f'aria-labelledby="{key}-title {key}-text" font-family="{FONTS}">'
        f'<title id="{key}-title">{escape(chart.title)}</title><desc id="{key}-text">{escape(chart.text)}</desc>'
    )
    return f"{head}{body}</svg>"
