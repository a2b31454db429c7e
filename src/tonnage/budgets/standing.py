"""The state of a budget: what is spent and reserved in its period, what is left, where it will be at the end. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

from tonnage.budgets.file import MICRO_USD, Budget, PeriodWindow, window_of
from tonnage.runs.spec import ChargeSpec
from tonnage.values import dataclass

HINT_LEFT: Final = "a lower --max-cost reserves less; `tonnage budgets list` shows what is spent and reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCost:
    """What a reservation came to, and the time it was spent over. `micro_usd` None: no price was given."""

    micro_usd: int | None
    started_at: datetime
    ended_at: datetime


HolderKind = Literal["run", "service", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation in the book. It is open until `spent` is known."""

    number: int
    run: str
    charge: ChargeSpec
    reserved_at: datetime
    bound_micro_usd: int | None  # the most it may cost; None: not known
    spent: SettledCost | None = None
    kind: HolderKind = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStanding:
    """A budget in the period of one instant, in millionths of a US dollar."""

    budget: Budget
    window: PeriodWindow
    spent_micro_usd: int
    committed_micro_usd: int  # the bounds of what is under way, in full whenever it began
    unknown: int  # runs of this period whose cost is not known: the sums lack them
    forecast_micro_usd: int | None  # at the end of the period; None: it has no end, or has just begun

    @property
    def left_micro_usd(self) -> int:
        """What a new run may reserve; below 0 where more was spent than the limit."""
        return self.budget.limit_micro_usd - self.spent_micro_usd - self.committed_micro_usd

    def takes(self, bound_micro_usd: int | None) -> bool:
        """Whether a run of this bound fits; one whose bound is not known does not."""
        return bound_micro_usd is not None and bound_micro_usd <= self.left_micro_usd


def standing_of(budget: Budget, commitments: Iterable[Reservation], now: datetime) -> BudgetStanding:
    """Spending counts in the period in which its hours lie, evenly over them; a reservation in full until it ends."""
    window = window_of(budget.period, now)
    spent = committed = unknown = 0
    for one in commitments:
        if not budget.applies_to(one.charge):
            continue
        if one.spent is None:
            committed += one.bound_micro_usd or 0
            unknown += one.bound_micro_usd is None
        elif share := window.share_of(one.spent.started_at, one.spent.ended_at):
            spent += math.ceil((one.spent.micro_usd or 0) * share - 1e-6)
            unknown += one.spent.micro_usd is None
    return BudgetStanding(
        budget=budget, window=window, spent_micro_usd=spent, committed_micro_usd=committed, unknown=unknown,
        forecast_micro_usd=_forecast(window, spent, committed, now),
    )  # fmt: skip


def counted_in(standing: BudgetStanding, commitments: Iterable[Reservation]) -> tuple[Reservation, ...]:
    """The reservations that the sums of a standing are made of."""
    return tuple(
        one
        for one in commitments
        if standing.budget.applies_to(one.charge)
        and (one.spent is None or standing.window.share_of(one.spent.started_at, one.spent.ended_at))
    )


def _forecast(window: PeriodWindow, spent: int, committed: int, now: datetime) -> int | None:
    """What the period comes to at the pace so far, and at least what is spent and reserved already.

    None in the first hundredth of a period, when a pace says nothing yet.
    """
    if window.start is None or window.end is None:
        return None
    whole: timedelta = window.end - window.start
    elapsed = (now - window.start) / whole
    return None if elapsed < 0.01 else max(spent + committed, math.ceil(spent / elapsed))


def usd(micro_usd: int) -> float:
    """US dollars.

    >>> usd(1_500_000)
    1.5
    """
    return micro_usd / MICRO_USD


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
