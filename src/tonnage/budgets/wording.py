"""What is said of a budget that is short."""

from __future__ import annotations

from typing import Final

from tonnage.budgets.standing import BudgetStanding, HolderKind, usd

HINT_LEFT: Final = "a lower --max-cost reserves less; `tonnage budgets list` shows what is spent and reserved"
HINTS_BOUND: Final[dict[HolderKind, str]] = {
    "run": "give --usd-per-hour (0 for a machine that costs nothing) with --max-cost or --max-hours",
    "service": "give --usd-per-hour: 0 for a machine that costs nothing",
    "batch": "give --max-cost with --input-usd and --output-usd; 0 for a service that costs nothing",
}  # fmt: skip


def shortage(standing: BudgetStanding, bound_micro_usd: int | None, *, kind: HolderKind = "run") -> str:
    """Which budget, how much is left of it, until when, and what was asked."""
    budget = standing.budget
    until = "for good" if standing.window.end is None else f"until {standing.window.end:%Y-%m-%d %H:%M} UTC"
    left = f"${max(0.0, usd(standing.left_micro_usd)):,.2f} of ${float(budget.usd):,.2f} is left {until}"
    asked = f"what the {kind} may cost is not known"
    if bound_micro_usd is not None:
        asked = f"it may cost ${usd(bound_micro_usd):,.2f}"
    return f"the budget '{budget.name}' ({budget.scope}) has no room for this {kind}: {left}, and {asked}"
