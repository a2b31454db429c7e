"""Vega-Lite specification of an architecture: boxes with their lines, arrows from left to right, a frame around."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final, TypeAlias

import altair as alt

from tonnage.reports.comparison.drawings import Architecture, Lane, Station
from tonnage.reports.comparison.plots import COLORS, INK, WIDTH, shorten
from tonnage.values import dataclass

Plot: TypeAlias = alt.LayerChart | alt.FacetChart
LEFT, MIDDLE, RIGHT = (0.0, 116.0), (150.0, 332.0), (366.0, 460.0)  # where boxes begin and end across
FRAME: Final = 10.0  # pixels between a box and the frame around it
HEAD: Final = 22.0  # pixels above the first lane, for one line of the platform's name
MOST_LINES: Final = 2  # of the platform's name
LINE: Final = 15.0
BETWEEN: Final = 16.0  # pixels between two lanes
LETTER: Final = 6.0  # pixels of a letter, about
BOLD: Final = 6.8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A box in pixels; y grows downwards."""

    station: Station
    across: tuple[float, float]
    top: float

    @property
    def bottom(self) -> float:
        return self.top + LINE * (1 + len(self.station.lines)) + 8.0

    @property
    def center(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """One lane in pixels."""

    source: _Box
    does: _Box
    result: _Box | None
    beside: _Box | None

    @property
    def boxes(self) -> tuple[_Box, ...]:
        return tuple(one for one in (self.source, self.does, self.result, self.beside) if one is not None)

    @property
    def bottom(self) -> float:
        return max(one.bottom for one in self.boxes)


def architecture(drawing: Architecture) -> Plot:
    """Sources to the left, the platform's frame in the middle, results to the right."""
    name = _name_lines(drawing.platform)
    lanes = list(_placed(drawing.lanes, HEAD + LINE * (len(name) - 1)))
    height = lanes[-1].bottom + FRAME
    frame = [{"x": MIDDLE[0] - FRAME, "x2": MIDDLE[1] + FRAME, "y": 0.0, "y2": height}]
    boxes = [_corners(one, there=one.station.there) for lane in lanes for one in lane.boxes]
    layers = [
        _layer(frame).mark_rect(fillOpacity=0.06, fill=COLORS[0], stroke=COLORS[0], strokeOpacity=0.7, cornerRadius=6),
        _layer([one for one in boxes if one["there"]]).mark_rect(
            filled=False, stroke=INK, strokeOpacity=0.7, cornerRadius=4
        ),
        _layer([one for one in boxes if not one["there"]]).mark_rect(
            filled=False, stroke=INK, strokeOpacity=0.7, strokeDash=[4, 3], cornerRadius=4
        ),
        _layer(list(_arrows(lanes))).mark_rule(strokeWidth=1.3, strokeOpacity=0.8),
        *_words(name, lanes),
        *_heads(lanes),
    ]
    shown = [_at_pixels(layer, height) for layer in layers if layer.data.values]
    return alt.layer(*shown).properties(height=height)


def _name_lines(platform: str) -> list[str]:
    """The platform's name in lines that have room in the frame."""
    room = _letters((MIDDLE[0] - FRAME, MIDDLE[1] + FRAME), BOLD)
    lines = wrap(platform, room)
    return [*lines[: MOST_LINES - 1], shorten(" ".join(lines[MOST_LINES - 1 :]), room)] if lines[1:] else lines


def _placed(lanes: Sequence[Lane], top: float) -> Iterator[_Placed]:
    for lane in lanes:
        does = _Box(station=lane.does, across=MIDDLE, top=top)
        below = None if lane.beside is None else _Box(station=lane.beside, across=MIDDLE, top=does.bottom + BETWEEN)
        placed = _Placed(
            source=_Box(station=lane.source, across=LEFT, top=top),
            does=does,
            result=None if lane.result is None else _Box(station=lane.result, across=RIGHT, top=top),
            beside=below,
        )
        yield placed
        top = placed.bottom + BETWEEN


def _corners(box: _Box, *, there: bool) -> dict[str, Any]:
    return {"x": box.across[0], "x2": box.across[1], "y": box.top, "y2": box.bottom, "there": there}


def _arrows(lanes: Sequence[_Placed]) -> Iterator[dict[str, Any]]:
    for lane in lanes:
        level = min(one.center for one in lane.boxes if one is not lane.beside)
        yield {"x": LEFT[1], "x2": MIDDLE[0], "y": level, "y2": level}
        if lane.result is not None:
            yield {"x": MIDDLE[1], "x2": RIGHT[0], "y": level, "y2": level}
        if lane.beside is not None:
            center = sum(MIDDLE) / 2
            yield {"x": center, "x2": center, "y": lane.does.bottom, "y2": lane.beside.top}


def _heads(lanes: Sequence[_Placed]) -> Iterator[alt.Chart]:
    """The points of the arrows; what is kept is written and read, so its arrow has two."""
    flat = [one for one in _arrows(lanes) if one["y"] == one["y2"]]
    steep = [one for one in _arrows(lanes) if one["x"] == one["x2"]]
    ends = (
        ("triangle-right", [{"x": one["x2"] - 4, "y": one["y"]} for one in flat]),
        ("triangle-down", [{"x": one["x"], "y": one["y2"] - 4} for one in steep]),
        ("triangle-up", [{"x": one["x"], "y": one["y"] + 4} for one in steep]),
    )
    for shape, points in ends:
        yield _layer(points).mark_point(shape=shape, filled=True, size=45, color=INK, opacity=0.9)


def _words(name: Sequence[str], lanes: Sequence[_Placed]) -> Iterator[alt.Chart]:
    heads: list[dict[str, Any]] = [
        {"x": MIDDLE[0] - FRAME + 8, "y": HEAD / 2 + LINE * place, "text": line} for place, line in enumerate(name)
    ]
    for box in (box for lane in lanes for box in lane.boxes):
        title = shorten(box.station.title, _letters(box.across, BOLD))
        heads.append({"x": box.across[0] + 6, "y": box.top + LINE / 2 + 4, "text": title})
    lines = [
        {"x": box.across[0] + 6, "y": box.top + LINE * (place + 1.5) + 4, "text": shorten(line, _letters(box.across))}
        for lane in lanes for box in lane.boxes for place, line in enumerate(box.station.lines)
    ]  # fmt: skip
    look = {"align": "left", "baseline": "middle"}
    yield _layer(heads).mark_text(fontSize=11.5, fontWeight="bold", **look).encode(text=alt.Text("text:N"))
    yield _layer(lines).mark_text(fontSize=11, **look).encode(text=alt.Text("text:N"))


def _letters(across: tuple[float, float], letter: float = LETTER) -> int:
    return int((across[1] - across[0] - 10) / letter)


def _layer(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))


def _at_pixels(layer: alt.Chart, height: float) -> alt.Chart:
    """x and y (and the second corner) as pixels from the left and from the top."""
    first = layer.data.values[0]
    across = alt.Scale(domain=[0, WIDTH], nice=False, zero=False)
    down = alt.Scale(domain=[0, height], reverse=True, nice=False, zero=False)
    ends = {key: f"{key}:Q" for key in ("x2", "y2") if key in first}
    return layer.encode(x=alt.X("x:Q", axis=None, scale=across), y=alt.Y("y:Q", axis=None, scale=down), **ends)
