"""The cost of a whole horizon: getting there once, then running, people included; and when a move has paid."""

from __future__ import annotations

from tonnage.comparison.computed import add
from tonnage.sizing.estimates import Figure
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
        return add((self.run, *([] if self.people is None else [self.people])))


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
    return add((*parts, *([] if bill.entry.usd is None else [bill.entry.usd])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Payback:
    """Months until a move has paid for itself. None: never (`high`: not at the far end of the intervals)."""

    months: float | None
    low: float | None
    high: float | None


def payback(entry: Figure, before: Figure, after: Figure) -> Payback:
    """What it takes to move over what is saved a month, with the ends that suit the move best and worst.

    >>> exact = lambda value: Figure(value=value, low=value, high=value)
    >>> payback(exact(1200.0), exact(300.0), exact(200.0)).months
    12.0
    >>> payback(exact(1200.0), exact(200.0), exact(300.0)).months is None
    True
    """
    return Payback(
        months=_months(entry.value, before.value - after.value),
        low=_months(entry.low, before.high - after.low),
        high=_months(entry.high, before.low - after.high),
    )


def _months(usd: float, saved_usd: float) -> float | None:
    return usd / saved_usd if saved_usd > 0 else None
