"""`tonnage validate` and `tonnage calibrate` as reports: errors with what each rests on, intervals, fitted values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import exp
from typing import Any, Final

from tonnage.calibration.intervals import GroupInterval
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.store import Calibration, ResidualLine, ValueRange
from tonnage.calibration.validation import ErrorLine, ValidationReport, error_pct
from tonnage.reports.blocks import Block, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, part_fields
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, short
from tonnage.values import dataclass

SCHEMA = "tonnage/validation@1"
CALIBRATION_SCHEMA = "tonnage/calibration-summary@1"
_COLUMNS = (
    "kind", "group", "n", "fitted_median_abs_pct", "fitted_p90_abs_pct", "left_out_median_abs_pct",
    "left_out_p90_abs_pct", "left_out_coverage80",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """What was validated, and by what."""

    kind: str
    file: str
    left_out: str | None  # None: nothing, the calibration is used as it is
    calibration: str | None  # the day it was made; None: uncalibrated, or fitted on the file itself


def validation_report(found: ValidationReport, context: ValidationContext) -> Report:
    """The report in its three contents."""
    return fields_report(
        lambda: _page(found, context),
        lambda: _document(found, context),
        (
            Field("scope", lambda row: row[0]),
            Field("name", lambda row: row[1].name),
            *part_fields("", lambda row: row[1], _FIGURES),
        ),
        [(scope, line) for scope, lines in _scopes(found) for line in lines],
    )


def _scopes(found: ValidationReport) -> Iterator[tuple[str, Sequence[ErrorLine]]]:
    yield "all", found.metrics
    yield "group", found.groups
    yield "gpu", found.by_gpu
    yield "family", found.by_family
    yield "suspect", found.suspect.metrics


def _document(found: ValidationReport, context: ValidationContext) -> dict[str, Any]:
    fit = found.memory_fit
    return {
        "schema": SCHEMA,
        "kind": context.kind,
        "file": context.file,
        "left_out": context.left_out,
        "calibration": context.calibration,
        "rows": found.rows,
        "predicted": found.predicted,
        "skipped": dict(found.skipped),
        "skipped_at": {reason: list(lines) for reason, lines in found.skipped_at},
        "metrics": [field_values(_FIGURES, line) for line in found.metrics],
        "groups": [{"group": line.metric} | field_values(_FIGURES[1:], line) for line in found.groups],
        "memory_fit": {"n": fit.n, "false_fits": fit.false_fits, "false_misfits": fit.false_misfits},
        "by_gpu": [{"gpu": line.name} | field_values(_FIGURES, line) for line in found.by_gpu],
        "by_family": [{"family": line.name} | field_values(_FIGURES, line) for line in found.by_family],
        "worst": [field_values(_WORST, row) for row in found.worst],
        "suspect": {
            "rows": found.suspect.rows,
            "predicted": found.suspect.predicted,
            "metrics": [field_values(_FIGURES, line) for line in found.suspect.metrics],
        },
    }


def _page(found: ValidationReport, context: ValidationContext) -> Page:
    return Page(title=f"{context.kind.capitalize()} rows of {context.file}", blocks=tuple(_blocks(found, context)))


def _blocks(found: ValidationReport, context: ValidationContext) -> Iterator[Block]:
    yield Pairs(rows=tuple(_summary(found, context)))
    if found.metrics:
        yield Heading(text="Error by metric")
        yield _errors(found.metrics, "")
        yield Heading(text="By GPU")
        yield _errors(found.by_gpu, "GPU")
        yield Heading(text="By family")
        yield _errors(found.by_family, "family")
        yield Heading(text="Worst rows")
        yield field_table(_WORST, found.worst)
    if found.skipped:
        yield Heading(text="Skipped")
        yield field_table(_skipped(context.file, dict(found.skipped_at)), found.skipped)
    if found.suspect.metrics:
        yield Heading(text="Rows of doubtful quality, counted apart")
        yield _errors(found.suspect.metrics, "")
    yield Paragraph(
        text="Error: |predicted / measured - 1|. Bias: median of predicted / measured - 1. "
        "Covered: share of rows inside their 80 % interval.",
        tone="faint",
    )


def _skipped(file: str, places: Mapping[str, tuple[int, ...]]) -> Fields[tuple[str, int]]:
    return (
        cell("rows", lambda row: f"{row[1]:,}", right=True),
        cell("reason", lambda row: _placed(*row, file, places.get(row[0], ())), wraps=True),
    )


def _placed(reason: str, count: int, file: str, lines: tuple[int, ...]) -> str:
    """The reason, with the file and the lines it was met in.

    >>> _placed("seq_len is negative", 9, "facts.csv", (3, 8))
    'seq_len is negative (facts.csv, lines 3, 8, ...)'
    """
    if not lines:
        return reason
    more = ", ..." if count > len(lines) else ""
    return f"{reason} ({file}, line{'s' if count > 1 else ''} {', '.join(map(str, lines))}{more})"


def _summary(found: ValidationReport, context: ValidationContext) -> Iterator[tuple[str, str]]:
    skipped = sum(count for _, count in found.skipped)
    yield "rows read", f"{found.rows:,}"
    yield "predicted", f"{found.predicted:,}"
    yield "skipped", f"{skipped:,}"
    yield "suspect, apart", f"{found.suspect.rows:,} ({found.suspect.predicted:,} predicted)"
    if context.left_out is not None:
        yield "predicted by", f"fits on the other rows, one {context.left_out} left out at a time"
    elif context.calibration is not None:
        yield "predicted by", f"the calibration of {context.calibration}"
    else:
        yield "predicted by", "the formulas and their default judgements; no calibration"
    fit = found.memory_fit
    if fit.n:
        wrong = f"{fit.false_fits} falsely said to fit, {fit.false_misfits} falsely said not to"
        yield "does it fit", f"{plural(fit.n, 'row')}: {wrong}"


def _errors(lines: Sequence[ErrorLine], name: str) -> Table:
    named: list[Field[ErrorLine]] = [cell(name, lambda line: line.name or "not stated")] if name else []
    return field_table([*named, *_FIGURES], lines)


_FIGURES: Final[tuple[Field[ErrorLine], ...]] = (
    Field("metric", lambda line: line.metric, title="metric", show=str),
    Field("n", lambda line: line.n, title="rows", show="{:,}".format, right=True),
    Field("median_abs_pct", lambda line: line.median_abs_pct, title="median %", show="{:.1f}".format, right=True),
    Field("p90_abs_pct", lambda line: line.p90_abs_pct, title="p90 %", show="{:.1f}".format, right=True),
    Field("bias_pct", lambda line: line.bias_pct, title="bias %", show="{:+.1f}".format, right=True, folds=2,
          fold_text="bias {} %"),
    Field("coverage80", lambda line: line.coverage80, title="covered %", show=lambda share: f"{100 * share:.0f}",
          right=True, folds=1, fold_text="{} % covered"),
)  # fmt: skip
_WORST: Final[Fields[JudgedRow]] = (
    Field("id", lambda row: row.row_id, title="row", show=str),
    Field("metric", lambda row: row.metric, title="metric", show=str),
    Field("gpu", lambda row: row.gpu, title="GPU", show=lambda gpu: gpu or "not stated", folds=2),
    Field("family", lambda row: row.family, title="family", show=str, folds=1),
    Field("measured", lambda row: row.measured, title="measured", right=True),
    Field("predicted", lambda row: row.predicted, title="predicted", right=True),
    Field("error_pct", error_pct, title="error %", show="{:+.0f}".format, right=True),
    Field("group", lambda row: row.group),
    Field("far", lambda row: row.unseen_factors),
)


def calibration_report(made: Calibration, file: str) -> Report:
    """What a calibration came to. JSON holds the summary; the file itself holds all."""
    return Report(
        page=lambda: Page(title=f"Calibration of {made.made_on}", blocks=tuple(_calibration_blocks(made, file))),
        document=lambda: _calibration_document(made, file),
        columns=_COLUMNS,
        rows=lambda: [[getattr(line, name) for name in _COLUMNS] for line in made.residuals],
    )


def _calibration_document(made: Calibration, file: str) -> Mapping[str, Any]:
    return {
        "schema": CALIBRATION_SCHEMA,
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


def _calibration_blocks(made: Calibration, file: str) -> Iterator[Block]:
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
