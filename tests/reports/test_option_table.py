"""Risks as footnotes."""

from __future__ import annotations

from dataclasses import replace

from tonnage.planning.plan import Plan
from tonnage.reports.option_table import option_table


def test_risks_that_differ_in_figures_share_a_letter(plan: Plan) -> None:
    """«123 days old» and «99 days old» are one footnote, which quotes the better option and counts the other."""
    table, legend = option_table(plan, plan.options, best_first=True)
    assert [row[-1] for row in table.rows] == ["a b", "b c", ""]
    assert legend.rows == (
        ("a", "spot: may be interrupted or not to be had"),
        ("b", "the price is 123 days old (#1; 1 other alike)"),
        ("c", "community host: no data-centre guarantees"),
    )


def test_front_is_marked_where_it_matters(plan: Plan) -> None:
    """Under `--rank pareto` each row says whether it is on the front; under cost it does not."""
    table, _ = option_table(replace(plan, objective="pareto"), plan.options, best_first=True)
    column = [one.title for one in table.columns].index("front")
    assert [row[column] for row in table.rows] == ["on", "behind", "behind"]
    assert "front" not in [one.title for one in option_table(plan, plan.options, best_first=True)[0].columns]
