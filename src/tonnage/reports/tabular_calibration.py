"""Corrections by rows of benches, and how far off predictions were (`tonnage/tabular-calibration-summary@1`)."""

from __future__ import annotations

from collections import Counter
from math import exp
from typing import Any, Final

from tonnage.calibration.local_profile import NORMAL_80
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.tabular_fit import EngineFigures, TabularFit
from tonnage.reports.blocks import Block, Bullets, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, short

SUMMARY_SCHEMA: Final = "tonnage/tabular-calibration-summary@1"


def tabular_calibration_report(fit: TabularFit, file: str, skipped: tuple[SkippedRow, ...]) -> Report:
    """One row an engine; below, the devices, what was skipped, and who uses the file."""
    return fields_report(lambda: _page(fit, file, skipped), lambda: _document(fit, file, skipped), _ROW, fit.engines)


def _page(fit: TabularFit, file: str, skipped: tuple[SkippedRow, ...]) -> Page:
    cells: Fields[EngineFigures] = (
        cell("engine", lambda one: one.engine),
        cell("rows", lambda one: str(one.rows), right=True),
        cell("tables", lambda one: str(one.tables), right=True),
        cell("factor", lambda one: short(one.factor), right=True),
        cell("s a tree or epoch", lambda one: short(one.pass_s), right=True),
        cell("s once", lambda one: short(one.start_s), right=True),
        cell("off before", lambda one: f"{one.before_median_pct:.0f} %", right=True),
        cell("off, table left out", lambda one: _percent(one.left_out_median_pct), right=True),
        cell("80 % interval", _interval, right=True),
    )
    blocks: list[Block] = [field_table(cells, fit.engines)]
    lines = [f"{name}: {factor:.2f} times the seconds that its cores say" for name, factor in fit.devices]
    single = [one.engine for one in fit.engines if one.left_out_median_pct is None]
    if single:
        lines.append(f"{', '.join(single)}: one table alone, so that nothing could be left out and the interval stays")
    lines += [f"{plural(count, 'row')} skipped: {reason}" for reason, count in _reasons(skipped)]
    blocks += [
        Bullets(items=tuple(lines)),
        Paragraph(text=f"Written to {file}. Plans of `kind: tabular` and `tonnage bench` use what is in the home."),
        Paragraph(text="Seconds are device x (factor x the physics + s a tree or epoch + s once). «off» is the middle "
                  "absolute error, in % of what was measured; each table is left out in turn.", tone="faint"),
    ]  # fmt: skip
    return Page(title="Corrections of work on tables", blocks=tuple(blocks))


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} %"


def _interval(one: EngineFigures) -> str:
    reach = exp(NORMAL_80 * one.log_sd)
    return f"{1 / reach:.2f}–{reach:.2f}"


def _reasons(skipped: tuple[SkippedRow, ...]) -> list[tuple[str, int]]:
    return Counter(one.reason for one in skipped).most_common()


def _document(fit: TabularFit, file: str, skipped: tuple[SkippedRow, ...]) -> dict[str, Any]:
    return {
        "schema": SUMMARY_SCHEMA,
        "file": file,
        "made_on": fit.made_on,
        "rows_sha256": fit.rows_sha256,
        "engines": [field_values(_ROW, one) for one in fit.engines],
        "devices": [{"name": name, "factor": plain_number(factor)} for name, factor in fit.devices],
        "skipped": [{"reason": reason, "rows": count} for reason, count in _reasons(skipped)],
    }


_ROW: Final[Fields[EngineFigures]] = (
    Field("engine", lambda one: one.engine),
    Field("method", lambda one: one.method),
    Field("rows", lambda one: one.rows),
    Field("tables", lambda one: one.tables),
    Field("factor", lambda one: one.factor),
    Field("pass_s", lambda one: one.pass_s),
    Field("start_s", lambda one: one.start_s),
    Field("log_sd", lambda one: one.log_sd),
    Field("before_median_abs_pct", lambda one: one.before_median_pct),
    Field("left_out_median_abs_pct", lambda one: one.left_out_median_pct),
    Field("left_out_inside_fraction", lambda one: one.left_out_inside),
)
