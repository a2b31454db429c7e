"""`tonnage calibrate` as a report: fitted and left-out error side by side, the intervals, the fitted values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import exp
from typing import Any, Final

from tonnage.calibration.intervals import GroupInterval
from tonnage.calibration.store import Calibration, ResidualLine, ValueRange
from tonnage.reports.blocks import Block, Heading, Page, Pairs
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, short

SCHEMA = "tonnage/calibration-summary@1"
_COLUMNS = (
    "kind", "group", "n", "fitted_median_abs_pct", "fitted_p90_abs_pct", "left_out_median_abs_pct",
    "left_out_p90_abs_pct", "left_out_coverage80",
)  # fmt: skip


def calibration_report(made: Calibration, file: str) -> Report:
    """What a calibration came to. JSON holds the summary; the file itself holds all."""
    return Report(
        page=lambda: Page(title=f"Calibration of {made.made_on}", blocks=tuple(_blocks(made, file))),
        document=lambda: _document(made, file),
        columns=_COLUMNS,
        rows=lambda: [[getattr(line, name) for name in _COLUMNS] for line in made.residuals],
    )


def _document(made: Calibration, file: str) -> Mapping[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "made_on": made.made_on,
        "left_out": made.left_out,
        "data": [asdict(one) for one in made.data],
        "residuals": [_rounded(asdict(line)) for line in made.residuals],
        "intervals": [field_values(_INTERVAL, one) for one in made.intervals.groups],
        "values": [_rounded(asdict(one)) for one in made.ranges],
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: plain_number(value) if isinstance(value, float) else value for key, value in values.items()}


def _blocks(made: Calibration, file: str) -> Iterator[Block]:
    rows = [(f"{one.kind} rows", f"{one.rows:,}, sha256 {one.sha256[:12]}…") for one in made.data]
    yield Pairs(rows=(("written to", file), *rows))
    yield Heading(text=f"Error in %: fitted, and with one {made.left_out} left out at a time")
    yield field_table(_RESIDUAL, made.residuals)
    yield Heading(text="80 % intervals: measured / predicted")
    yield field_table(_INTERVAL, made.intervals.groups)
    yield Heading(text="Fitted values, and how far they move")
    yield field_table(_VALUE, made.ranges)


def _tenths(figure: float | None) -> str:
    return UNKNOWN if figure is None else f"{figure:.1f}"


def _wider(one: GroupInterval) -> str:
    return f"x {one.widening:.2f}" + ("" if one.far_rows else " (judgement)")


_RESIDUAL: Final[Fields[ResidualLine]] = (
    cell("group", lambda line: line.group, wraps=True),
    cell("rows", lambda line: f"{line.n:,}", right=True),
    cell("fitted median", lambda line: _tenths(line.fitted_median_abs_pct), right=True),
    cell("p90", lambda line: _tenths(line.fitted_p90_abs_pct), right=True),
    cell("left-out median", lambda line: _tenths(line.left_out_median_abs_pct), right=True),
    cell("p90", lambda line: _tenths(line.left_out_p90_abs_pct), right=True),
    cell("covered %", lambda line: f"{100 * line.left_out_coverage80:.0f}", right=True),
)
_INTERVAL: Final[Fields[GroupInterval]] = (
    Field("group", lambda one: one.group, title="group", wraps=True),
    Field("rows", lambda one: one.rows, title="rows", show="{:,}".format, right=True),
    Field("families", lambda one: one.families, title="families", show=str, right=True),
    Field("sources", lambda one: one.sources, title="sources", show=str, right=True),
    Field("low_factor", lambda one: exp(one.low_log), title="low", show=short, right=True),
    Field("high_factor", lambda one: exp(one.high_log), title="high", show=short, right=True),
    Field("widening", lambda one: one.widening),
    Field("far_rows", lambda one: one.far_rows),
    cell("wider for each unknown", _wider, right=True),
)
_VALUE: Final[Fields[ValueRange]] = (
    cell("value", lambda one: one.name, wraps=True),
    cell("fitted", lambda one: short(one.value, 4), right=True),
    cell("least", lambda one: short(one.low, 4), right=True),
    cell("greatest", lambda one: short(one.high, 4), right=True),
)
