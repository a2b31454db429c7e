"""All sections of a comparison, in order."""

from __future__ import annotations

from tonnage.comparison.comparing import Comparison
from tonnage.reports.comparison.architecture import architecture_section
from tonnage.reports.comparison.choice import (
    advice_section,
    decision_section,
    score_section,
    split_section,
    summary_section,
)
from tonnage.reports.comparison.costs import cost_section, performance_section, volume_section
from tonnage.reports.comparison.guidance import (
    choosing_section,
    footprint_section,
    levers_section,
    moves_section,
    practice_section,
)
from tonnage.reports.comparison.matrix import (
    Sources,
    appendix_section,
    matrix_section,
    risk_section,
    scope_section,
    trade_off_section,
)
from tonnage.reports.comparison.moving import migration_section
from tonnage.reports.comparison.sections import Section


def build_sections(comparison: Comparison) -> tuple[Section, ...]:
    """The whole report: the answer first, its inputs after it, sources last."""
    sources = Sources()
    matrix = matrix_section(comparison, sources)
    out = [
        summary_section(comparison),
        scope_section(comparison),
        matrix,
        architecture_section(comparison),
        choosing_section(comparison),
        cost_section(comparison),
        levers_section(comparison),
        volume_section(comparison),
        performance_section(comparison),
        footprint_section(comparison),
        decision_section(comparison),
        score_section(comparison),
        trade_off_section(comparison),
        advice_section(comparison),
        split_section(comparison),
        moves_section(comparison),
    ]
    if comparison.migration is not None:
        out.append(migration_section(comparison.migration, comparison))
    out += [practice_section(comparison), risk_section(comparison), appendix_section(comparison, sources)]
    return tuple(out)


def subtitle(comparison: Comparison) -> str:
    """When, and on which prices."""
    stamps = {row.stamp for total in comparison.totals.values() for row in total.rows if row.stamp is not None}
    stamp = min(stamps, key=lambda one: one.snapshot) if stamps else None
    said = f"As of {comparison.as_of.date().isoformat()}"
    return said if stamp is None else f"{said}; prices of catalog {stamp.snapshot}, built {stamp.built_on.isoformat()}"
