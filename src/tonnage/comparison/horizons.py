"""The cost of a whole horizon: getting there once, then running, people included; and when a move has paid."""

from __future__ import annotations

from tonnage.sizing.estimates import Figure, add_figures
from tonnage.values import dataclass

WEEKS_PER_MONTH = 365.25 / 12 / 7


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCost:
    """What it takes to be on an alternative: one-time dollars and weeks; nothing for where one is already."""

    usd: Figure | None
    weeks: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one alternative costs. `run`: a month's machines, fees and tokens, None: not known. `people`: a month's
    hours at
    the team's rate, None: not counted. `entry`: once, to get there."""

    run: Figure | None
    people: Figure | None
    entry: EntryCost

    @property
    def usd_per_month(self) -> Figure | None:
        if self.run is None:
            return None
        return add_figures((self.run, *([] if self.people is None else [self.people])))


def horizon_cost(bill: Bill, weeks: float, *, today: Bill | None = None) -> Figure | None:
    """Entry once, then run and people for the weeks of the horizon.

    Until the move is done the work runs where it runs today (`today`; None: nowhere, or its cost is not known), and
    only then on the target. Both at once, during the parallel run, are not counted.
    """
    month, before = bill.usd_per_month, None if today is None else today.usd_per_month
    if month is None:
        return None
    moving = min(bill.entry.weeks or 0.0, weeks) if before is not None else 0.0
    parts = [month.scaled((weeks - moving) / WEEKS_PER_MONTH)]
    if before is not None:
        parts.append(before.scaled(moving / WEEKS_PER_MONTH))
    return add_figures((*parts, *([] if bill.entry.usd is None else [bill.entry.usd])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Payback:
    """Weeks from the start of a move until it has paid for itself, moving included. None: never, each month costs as
    much or more (`low`, `high`: at the ends of the costs that suit the move best and worst)."""

    weeks: float | None
    low: float | None
    high: float | None


def payback(entry: EntryCost, before: Figure, after: Figure, *, worth_usd_per_month: float = 0.0) -> Payback:
    """What it takes to move over what is saved a month, from the day that the move is done.

    `worth_usd_per_month`: what the reader says that being there is worth beyond its cost.

    >>> exact = lambda value: Figure(value=value, low=value, high=value)
    >>> payback(EntryCost(usd=exact(1200.0), weeks=None), exact(300.0), exact(200.0)).weeks == 12 * WEEKS_PER_MONTH
    True
    >>> payback(EntryCost(usd=exact(1200.0), weeks=None), exact(200.0), exact(300.0)).weeks is None
    True
    """
    moving, worth = entry.weeks or 0.0, worth_usd_per_month

    def weeks(once: float, saved_usd: float) -> float | None:
        if saved_usd + worth <= 0:
            return None
        return moving + (once - worth * moving / WEEKS_PER_MONTH) / (saved_usd + worth) * WEEKS_PER_MONTH

    usd = entry.usd or Figure(value=0.0, low=0.0, high=0.0)
    return Payback(
        weeks=weeks(usd.value, before.value - after.value),
        low=weeks(usd.low, before.high - after.low),
        high=weeks(usd.high, before.low - after.high),
    )
