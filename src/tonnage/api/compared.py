"""A comparison that shows itself in a terminal, a notebook or a file."""

from __future__ import annotations

from dataclasses import fields

from tonnage.api.answers import Result
from tonnage.comparison.comparing import Comparison
from tonnage.reports.rendering import Report
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownComparison(Comparison, Result):
    """The same comparison, with the forms of every other answer."""

    def report(self) -> Report:
        """The report that the page shows: the answer and its reasons."""
        from tonnage.reports.comparison.report import comparison_report

        return comparison_report(self)


def shown(made: Comparison) -> ShownComparison:
    """The comparison as one that shows itself."""
    return ShownComparison(**{one.name: getattr(made, one.name) for one in fields(made)})
