"""The same run at several places: rates, variation and differences with their confidence (`tonnage/place-bench@1`)."""

from __future__ import annotations

from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_scaled
from tonnage.side_by_side.places import PlaceCell, PlaceResult, PlacesCompared
from tonnage.side_by_side.spread import PlaceDifference
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

PLACE_BENCH_SCHEMA: Final = "tonnage/place-bench@1"
SURE: Final = 0.9  # from this confidence on the page says that it holds, below its complement that it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesBenched:
    """A run at several places. `limit`: the variation and the difference asked about, a fraction."""

    name: str
    limit: float
    cells: tuple[PlaceCell, ...]
    compared: PlacesCompared


def place_bench_report(found: PlacesBenched) -> Report:
    """One row a place; below, every pair."""
    return fields_report(lambda: _page(found), lambda: _document(found), _ROW, found.compared.places)


def _page(found: PlacesBenched) -> Page:
    cells: Fields[PlaceResult] = (
        cell("place", lambda one: one.place),
        cell("runs", lambda one: str(one.spread.repeats), right=True),
        cell("samples/s (80 %)", lambda one: _rate(one.spread.rate_per_s), right=True),
        cell("variation (80 %)", lambda one: _share(one.spread.sd_fraction), right=True),
        cell(f"below {found.limit:.0%}", lambda one: _verdict(one.spread.confidence)),
        cell("failed", lambda one: str(one.failed) if one.failed else "", right=True),
    )
    blocks: list[Block] = [field_table(cells, found.compared.places)]
    lines = [_difference(one, found.limit) for one in found.compared.differences]
    lines += [f"{one.place}: {one.failed} failed: {one.reason}" for one in found.compared.places if one.reason]
    if lines:
        blocks.append(Bullets(items=tuple(lines)))
    blocks.append(
        Paragraph(text="Variation is the standard deviation of the logarithm over the runs at a place. Runs of one "
                  "hour on one machine each say little of other hours and machines there.", tone="faint")
    )  # fmt: skip
    return Page(title=f"{found.name} at {len(found.compared.places)} places", blocks=tuple(blocks))


def _verdict(confidence: float | None) -> str:
    if confidence is None:
        return UNKNOWN
    word = "yes" if confidence >= SURE else "no" if confidence <= 1 - SURE else "open"
    return f"{word} (confidence {confidence:.0%})"


def _difference(one: PlaceDifference, limit: float) -> str:
    ratio = one.ratio
    ends = f"{ratio.low:.3f} to {ratio.high:.3f}"
    return (
        f"{one.other} runs at {ratio.value:.3f} ({ends}) of {one.one}; within {limit:.0%} of one another: "
        f"{_verdict(one.confidence)}"
    )


def _rate(figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    return f"{render_scaled(figure.value, '')} ({render_scaled(figure.low, '')} to {render_scaled(figure.high, '')})"


def _share(figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    return f"{figure.value:.1%} ({figure.low:.1%}–{figure.high:.1%})"


def _document(found: PlacesBenched) -> dict[str, Any]:
    return {
        "schema": PLACE_BENCH_SCHEMA,
        "run": found.name,
        "limit_fraction": plain_number(found.limit),
        "places": [field_values(_ROW, one) for one in found.compared.places],
        "differences": [
            {"one": one.one, "other": one.other, "ratio": plain_figure(one.ratio),
             "within_limit_confidence": plain_number(one.confidence)}
            for one in found.compared.differences
        ],
        "cells": [
            {"place": one.place, "turn": one.turn, "samples_per_s": plain_number(one.rate_per_s), "reason": one.reason}
            for one in found.cells
        ],
    }  # fmt: skip


_ROW: Final[Fields[PlaceResult]] = (
    Field("place", lambda one: one.place),
    Field("runs", lambda one: one.spread.repeats),
    *figure_fields("samples_per_s{}", lambda one: one.spread.rate_per_s),
    *figure_fields("variation_fraction{}", lambda one: one.spread.sd_fraction),
    Field("below_limit_confidence", lambda one: one.spread.confidence, json=plain_number),
    Field("failed", lambda one: one.failed),
    Field("reason", lambda one: one.reason),
)
