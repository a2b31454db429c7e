"""What is said of a budget that is short."""

from __future__ import annotations

from typing import Final

from tonnage.budgets.standing import BudgetStanding, usd

HINT_LEFT: Final = "a lower --max-cost reserves less; `tonnage budgets list` shows what is spent and reserved"
HINT_BOUND: Final = "give --usd-per-hour (0 for a machine that costs nothing) with --max-cost or --max-hours"


def shortage(standing: BudgetStanding, bound_micro_usd: int | None) -> str:
    """Which budget, how much is left of it, until when, and what was asked."""
    budget = standing.budget
    until = "for good" if standing.window.end is None else f"until {standing.window.end:%Y-%m-%d %H:%M} UTC"
    left = f"${max(0.0, usd(standing.left_micro_usd)):,.2f} of ${float(budget.usd):,.2f} is left {until}"
    asked = (
        "what the run may cost is not known" if bound_micro_usd is None else f"it may cost ${usd(bound_micro_usd):,.2f}"
    )
    return f"the budget '{budget.name}' ({budget.scope}) has no room for this run: {left}, and {asked}"
