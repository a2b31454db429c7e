"""What `tonnage evaluate`, `tonnage predict` and `tonnage runs register` end with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.reports.blocks import Block, Column, Page, Pairs, Table
from tonnage.reports.rendering import Report

EVALUATION_SCHEMA: Final = "tonnage/evaluation@1"
PREDICTION_SCHEMA: Final = "tonnage/predicted-rows@1"
REGISTRATION_SCHEMA: Final = "tonnage/registration@1"


def evaluation_report(values: Mapping[str, Any]) -> Report:
    """Figures of a finished model: `values` are the document's, without its schema."""
    figures = [("model", name, value) for name, value in values["metrics"].items()]
    figures += [("baseline", name, value) for name, value in (values["baseline"] or {}).items()]
    return Report(
        page=lambda: _evaluation_page(values, figures),
        document=lambda: {"schema": EVALUATION_SCHEMA, **values},
        columns=("of", "metric", "value"),
        rows=lambda: [list(one) for one in figures],
    )


def _evaluation_page(values: Mapping[str, Any], figures: list[tuple[str, str, float]]) -> Page:
    split = {"test": "its test rows", "validation": "its validation rows", "file": "rows of a file"}[values["split"]]
    facts = (
        ("task", values["task"]),
        ("judged on", f"{values['samples']:,} samples, {split}: {values['data']}"),
        ("device", f"{values['device']}, {values['precision']}, {values['seconds']:,.1f} s"),
    )
    columns = (Column(title="of"), Column(title="metric"), Column(title="value", align="right"))
    rows = tuple((of, name, f"{value:,.4f}") for of, name, value in figures)
    blocks: tuple[Block, ...] = (Pairs(rows=facts), Table(columns=columns, rows=rows))
    return Page(title=f"Run {values['run']}", blocks=blocks)


def predicted_rows_report(values: Mapping[str, Any]) -> Report:
    """Where answers were written, how many and how fast."""
    rate = values["rows_per_s"]
    before = values["resumed_at_row"]
    facts = (
        ("rows", f"{values['rows']:,}" + (f", {before:,} of them answered before" if before else "")),
        ("rate", "nothing was left to do" if rate is None else f"{rate:,.1f} rows/s on {values['device']}"),
        ("answers", values["out"]),
    )
    return _pairs(f"Run {values['run']}", facts, PREDICTION_SCHEMA, values)


def registration_report(values: Mapping[str, Any]) -> Report:
    """Name, version and alias of a model in the registry."""
    facts = (
        ("model", values["name"]),
        ("version", values["version"] + ("" if values["new"] else " (was there)")),
        ("alias", values["alias"] or "none"),
        ("registry", values["registry"]),
    )
    return _pairs(f"Run {values['run']}", facts, REGISTRATION_SCHEMA, values)


def _pairs(title: str, facts: tuple[tuple[str, str], ...], schema: str, values: Mapping[str, Any]) -> Report:
    return Report(
        page=lambda: Page(title=title, blocks=(Pairs(rows=facts),)),
        document=lambda: {"schema": schema, **values},
        columns=("name", "value"),
        rows=lambda: [[name, value] for name, value in values.items()],
    )
