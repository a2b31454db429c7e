"""What a spot replay is asked for: the job, its deadline, what a change of machine takes, and the tick."""

from __future__ import annotations

from math import isfinite
from typing import Final

from tonnage.errors import InputError
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

TICK_S: Final = 120.0
TICK_H: Final = TICK_S / SECONDS_PER_HOUR
LONGEST_H: Final = 24.0 * 366  # a job longer than a year is a typing error
_TINY_H: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotJob:
    """Work that must be done by a deadline. Prices are in spot hours: spot costs 1, on-demand `price_ratio`.

    Every launch takes `changeover_h` before work goes on, and is billed. Raises InputError on figures that cannot
    be, and when even on-demand from the first minute would miss the deadline.
    """

    work_h: float
    deadline_h: float
    changeover_h: float
    price_ratio: float

    def __post_init__(self) -> None:
        _check("--hours", self.work_h, more_than=0.0)
        _check("--deadline-hours", self.deadline_h, more_than=0.0)
        _check("--changeover-hours", self.changeover_h, at_least=0.0)
        _check("--price-ratio", self.price_ratio, at_least=1.0)
        need_h = self.work_h + self.changeover_h
        if self.deadline_h < need_h - _TINY_H:
            raise InputError(
                f"the deadline of {self.deadline_h:g} h is shorter than {self.work_h:g} h of work plus "
                f"{self.changeover_h:g} h of start-up: even on-demand from the first minute would miss it",
                hint=f"allow --deadline-hours {need_h:g} or more, or split the work over more machines",
            )

    @property
    def slack_h(self) -> float:
        """Hours that may pass without progress."""
        return self.deadline_h - self.work_h

    @property
    def guard_h(self) -> float:
        """Slack below which an idle job goes to on-demand for good: room for a spot launch that fails, or for a tick
        of waiting, and for the launch on demand after it."""
        return self.changeover_h + max(self.changeover_h, TICK_H)

    @property
    def on_demand_cost(self) -> float:
        """The whole job on demand, in spot hours."""
        return self.price_ratio * (self.work_h + self.changeover_h)

    @property
    def ticks(self) -> int:
        """Ticks that cover the time to the deadline."""
        return int(-(-(self.deadline_h - _TINY_H) // TICK_H))


def _check(option: str, value: float, *, more_than: float | None = None, at_least: float = 0.0) -> None:
    low = more_than is not None and value <= more_than
    if not isfinite(value) or low or value < at_least or value > LONGEST_H:
        bound = f"more than {more_than:g}" if more_than is not None else f"at least {at_least:g}"
        raise InputError(f"{option} {value:g} cannot be used", hint=f"a number {bound} and at most {LONGEST_H:g}")
