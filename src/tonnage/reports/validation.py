"""`tonnage validate` as a report: errors by metric, GPU and family; what fits; what is skipped and why; worst rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.validation import ErrorLine, ValidationReport, error_pct
from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural, short
from tonnage.values import dataclass

SCHEMA = "tonnage/validation@1"
_CSV_COLUMNS = ("scope", "name", "metric", "n", "median_abs_pct", "p90_abs_pct", "bias_pct", "coverage80")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """What was validated, and by what."""

    kind: str
    file: str
    left_out: str | None  # None: nothing, the calibration is used as it is
    calibration: str | None  # the day it was made; None: uncalibrated, or fitted on the file itself


def validation_report(found: ValidationReport, context: ValidationContext) -> Report:
    """The report in its three contents."""
    return Report(
        page=lambda: _page(found, context),
        document=lambda: _document(found, context),
        columns=_CSV_COLUMNS,
        rows=lambda: [
            [scope, line.name, *_figures(line).values()] for scope, lines in _scopes(found) for line in lines
        ],
    )


def _scopes(found: ValidationReport) -> Iterator[tuple[str, Sequence[ErrorLine]]]:
    yield "all", found.metrics
    yield "group", found.groups
    yield "gpu", found.by_gpu
    yield "family", found.by_family
    yield "suspect", found.suspect.metrics


def _figures(line: ErrorLine) -> dict[str, Any]:
    return {
        "metric": line.metric,
        "n": line.n,
        "median_abs_pct": plain_number(line.median_abs_pct),
        "p90_abs_pct": plain_number(line.p90_abs_pct),
        "bias_pct": plain_number(line.bias_pct),
        "coverage80": plain_number(line.coverage80),
    }


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
        "metrics": [_figures(line) for line in found.metrics],
        "groups": [{"group": line.metric} | _without_metric(line) for line in found.groups],
        "memory_fit": {"n": fit.n, "false_fits": fit.false_fits, "false_misfits": fit.false_misfits},
        "by_gpu": [{"gpu": line.name} | _figures(line) for line in found.by_gpu],
        "by_family": [{"family": line.name} | _figures(line) for line in found.by_family],
        "worst": [_worst(row) for row in found.worst],
        "suspect": {
            "rows": found.suspect.rows,
            "predicted": found.suspect.predicted,
            "metrics": [_figures(line) for line in found.suspect.metrics],
        },
    }


def _without_metric(line: ErrorLine) -> dict[str, Any]:
    return {key: value for key, value in _figures(line).items() if key != "metric"}


def _worst(row: JudgedRow) -> dict[str, Any]:
    return {
        "id": row.row_id,
        "metric": row.metric,
        "gpu": row.gpu,
        "family": row.family,
        "measured": plain_number(row.measured),
        "predicted": plain_number(row.predicted),
        "error_pct": plain_number(error_pct(row)),
        "group": row.group,
        "far": row.unseen_factors,
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
        yield _worst_rows(found.worst)
    if found.skipped:
        yield Heading(text="Skipped")
        columns = (Column(title="rows", align="right"), Column(title="reason", wraps=True))
        places = dict(found.skipped_at)
        rows = tuple(
            (f"{count:,}", _placed(reason, count, context.file, places.get(reason, ())))
            for reason, count in found.skipped
        )
        yield Table(columns=columns, rows=rows)
    if found.suspect.metrics:
        yield Heading(text="Rows of doubtful quality, counted apart")
        yield _errors(found.suspect.metrics, "")
    yield Paragraph(
        text="Error: |predicted / measured - 1|. Bias: median of predicted / measured - 1. "
        "Covered: share of rows inside their 80 % interval.",
        tone="faint",
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
    columns = (
        *((Column(title=name),) if name else ()),
        Column(title="metric"),
        Column(title="rows", align="right"),
        Column(title="median %", align="right"),
        Column(title="p90 %", align="right"),
        Column(title="bias %", align="right", folds=2, fold_text="bias {} %"),
        Column(title="covered %", align="right", folds=1, fold_text="{} % covered"),
    )
    return Table(columns=columns, rows=tuple(_error_cells(line, named=bool(name)) for line in lines))


def _error_cells(line: ErrorLine, *, named: bool) -> tuple[str, ...]:
    cells = (
        line.metric,
        f"{line.n:,}",
        f"{line.median_abs_pct:.1f}",
        f"{line.p90_abs_pct:.1f}",
        f"{line.bias_pct:+.1f}",
        f"{100 * line.coverage80:.0f}",
    )
    return (line.name or "not stated", *cells) if named else cells


def _worst_rows(rows: Sequence[JudgedRow]) -> Table:
    columns = (
        Column(title="row"),
        Column(title="metric"),
        Column(title="GPU", folds=2),
        Column(title="family", folds=1),
        Column(title="measured", align="right"),
        Column(title="predicted", align="right"),
        Column(title="error %", align="right"),
    )
    cells = tuple(
        (row.row_id, row.metric, row.gpu or "not stated", row.family, short(row.measured, 4), short(row.predicted, 4),
         f"{error_pct(row):+.0f}")
        for row in rows
    )  # fmt: skip
    return Table(columns=columns, rows=cells)
