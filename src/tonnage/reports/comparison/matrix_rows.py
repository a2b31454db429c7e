"""The matrix of a comparison as rows for CSV: one for each alternative and criterion."""

from __future__ import annotations

from typing import Any

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.criteria import Criterion
from tonnage.comparison.request import Alternative
from tonnage.comparison.scoring import Score
from tonnage.reports.plain import plain_number
from tonnage.sizing.estimates import Figure

COLUMNS = (
    "thing",
    "aspect",
    "group",
    "value",
    "unit",
    "low",
    "high",
    "basis",
    "score",
    "score_low",
    "score_high",
    "because",
    "sources",
    "read_on",
)
UNITS = {
    "usd_per_month": "usd_per_month",
    "setup_usd": "usd",
    "time_at_budget_s": "s",
    "time_on_equal_devices_s": "s",
    "latency_p95_s": "s",
    "throughput_per_s": "per_s",
    "energy_kwh_per_month": "kwh_per_month",
    "carbon_kg_per_month": "kg_per_month",
}


def comparison_rows(comparison: Comparison) -> list[tuple[Any, ...]]:
    """One row for each alternative and criterion; what is not known has empty cells."""
    return [
        (alternative.name, criterion.key, criterion.group, *_cells(comparison, alternative, criterion))
        for alternative in comparison.request.alternatives
        for criterion in comparison.criteria
    ]


def _cells(comparison: Comparison, alternative: Alternative, criterion: Criterion) -> tuple[Any, ...]:
    """From the value on: a figure of the planner, a judgement with its evidence, or nothing."""
    scores = _ends(comparison.scores[alternative.name].get(criterion.key))
    if criterion.measure is not None:
        figure = getattr(comparison.totals[alternative.name], criterion.measure)
        value, *bounds = _ends(figure)
        basis = None if figure is None else figure.basis
        return (value, UNITS[criterion.measure], *bounds, basis, *scores, None, "planner", None)
    cell = alternative.profile.cells.get(criterion.key)
    if cell is None:
        return (None,) * 11
    sources = "; ".join(one.url or one.title for one in cell.evidence)
    dates = "; ".join(one.read_on.isoformat() if one.read_on else "not verified" for one in cell.evidence)
    return (cell.value, None, None, None, "judged", *scores, cell.because or None, sources, dates)


def _ends(figure: Figure | Score | None) -> tuple[Any, Any, Any]:
    if figure is None:
        return (None, None, None)
    return (plain_number(figure.value), plain_number(figure.low), plain_number(figure.high))
