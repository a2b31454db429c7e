"""`tonnage calibrate` as a report: fitted and left-out error side by side, the intervals, the fitted values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import exp
from typing import Any

from tonnage.calibration.intervals import GroupInterval
from tonnage.calibration.store import Calibration, ResidualLine, ValueRange
from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short

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
        "intervals": [_interval(one) for one in made.intervals.groups],
        "values": [_rounded(asdict(one)) for one in made.ranges],
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: plain_number(value) if isinstance(value, float) else value for key, value in values.items()}


def _interval(one: GroupInterval) -> dict[str, Any]:
    return {
        "group": one.group,
        "rows": one.rows,
        "families": one.families,
        "sources": one.sources,
        "low_factor": plain_number(exp(one.low_log)),
        "high_factor": plain_number(exp(one.high_log)),
        "widening": plain_number(one.widening),
        "far_rows": one.far_rows,
    }


def _blocks(made: Calibration, file: str) -> Iterator[Block]:
    rows = [(f"{one.kind} rows", f"{one.rows:,}, sha256 {one.sha256[:12]}…") for one in made.data]
    yield Pairs(rows=(("written to", file), *rows))
    yield Heading(text=f"Error in %: fitted, and with one {made.left_out} left out at a time")
    titles = ("group", "rows", "fitted median", "p90", "left-out median", "p90", "covered %")
    yield _table(titles, tuple(_residual_cells(line) for line in made.residuals))
    yield Heading(text="80 % intervals: measured / predicted")
    yield _table(
        ("group", "rows", "families", "sources", "low", "high", "wider for each unknown"),
        tuple(_interval_cells(one) for one in made.intervals.groups),
    )
    yield Heading(text="Fitted values, and how far they move")
    yield _table(("value", "fitted", "least", "greatest"), tuple(_value_cells(one) for one in made.ranges))


def _table(titles: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Table:
    columns = tuple(
        Column(title=title, align="left" if place == 0 else "right", wraps=place == 0)
        for place, title in enumerate(titles)
    )
    return Table(columns=columns, rows=rows)


def _residual_cells(line: ResidualLine) -> tuple[str, ...]:
    figures = (
        line.fitted_median_abs_pct, line.fitted_p90_abs_pct, line.left_out_median_abs_pct, line.left_out_p90_abs_pct,
    )  # fmt: skip
    cells = tuple("—" if figure is None else f"{figure:.1f}" for figure in figures)
    return (line.group, f"{line.n:,}", *cells, f"{100 * line.left_out_coverage80:.0f}")


def _interval_cells(one: GroupInterval) -> tuple[str, ...]:
    basis = f"x {one.widening:.2f}" + ("" if one.far_rows else " (judgement)")
    bounds = short(exp(one.low_log)), short(exp(one.high_log))
    return (one.group, f"{one.rows:,}", str(one.families), str(one.sources), *bounds, basis)


def _value_cells(one: ValueRange) -> tuple[str, ...]:
    return (one.name, short(one.value, 4), short(one.low, 4), short(one.high, 4))
