"""The matrix of a comparison as rows for CSV: one for each alternative and criterion."""

from __future__ import annotations

from typing import Any

from tonnage.comparison.comparing import Comparison
from tonnage.reports.plain import plain_number

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
    out = []
    for alternative in comparison.request.alternatives:
        for criterion in comparison.criteria:
            score = comparison.scores[alternative.name].get(criterion.key)
            scores = (
                (None, None, None)
                if score is None
                else tuple(plain_number(x) for x in (score.value, score.low, score.high))
            )
            if criterion.measure is not None:
                figure = getattr(comparison.totals[alternative.name], criterion.measure)
                numbers = (
                    (None,) * 3
                    if figure is None
                    else tuple(plain_number(x) for x in (figure.value, figure.low, figure.high))
                )
                out.append(
                    (
                        alternative.name,
                        criterion.key,
                        criterion.group,
                        numbers[0],
                        UNITS[criterion.measure],
                        *numbers[1:],
                        None if figure is None else figure.basis,
                        *scores,
                        None,
                        "planner",
                        None,
                    )
                )
                continue
            cell = alternative.profile.cells.get(criterion.key)
            if cell is None:
                out.append((alternative.name, criterion.key, criterion.group, *(None,) * 11))
                continue
            dates = [one.read_on.isoformat() if one.read_on else "not verified" for one in cell.evidence]
            out.append(
                (
                    alternative.name,
                    criterion.key,
                    criterion.group,
                    cell.value,
                    None,
                    None,
                    None,
                    "judged",
                    *scores,
                    cell.because or None,
                    "; ".join(one.url or one.title for one in cell.evidence),
                    "; ".join(dates),
                )
            )
    return out
