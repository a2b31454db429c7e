"""Hours of machines: what a run takes, what a schedule stretches, what a provider rounds up, what a commitment adds."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import BuyTerms, Schedule

Array = NDArray[np.float64]

HOURS_PER_MONTH: Final = 730.0  # 8,760 / 12: as Google prints commitments and as most price calculators count
TERM_HOURS: Final = {"reserved_1y": 8760.0, "reserved_3y": 26_280.0}
SECONDS_PER_DAY: Final = 86_400.0
FINE_QUANTUM_S: Final = 1.0  # rounding up by less than this is below what a prediction can say


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Columns: how often the machines are started, how long each is on in all, and when the work is done."""

    count: Array
    on_s: Array  # of one machine, start-ups included
    wall_s: Array  # on the calendar


def run_sessions(work_s: Array, startup_s: float, schedule: Schedule | None) -> Sessions:
    """Work of `work_s` seconds after a start-up; on a schedule it is cut into days, each with its own start-up.

    A day of h hours holds h - start-up of work; d days a month come (365.25 / 12) / d calendar days apart on average.
    Endless where a day is no longer than its start-up.
    """
    if schedule is None:
        on = work_s + startup_s
        return Sessions(count=np.ones_like(on), on_s=on, wall_s=on)
    window = schedule.hours_per_day * SECONDS_PER_HOUR
    useful = window - startup_s
    if useful <= 0:
        endless = np.full_like(work_s, np.inf)
        return Sessions(count=endless, on_s=endless, wall_s=endless)
    count = np.maximum(np.ceil(work_s / useful), 1.0)
    apart = SECONDS_PER_DAY * 365.25 / 12 / schedule.days_per_month
    with np.errstate(invalid="ignore"):  # endless work stays endless
        last = work_s - (count - 1) * useful + startup_s
        wall = np.where(np.isfinite(work_s), (count - 1) * apart + last, np.inf)
    return Sessions(count=count, on_s=work_s + count * startup_s, wall_s=wall)


def billed_hours(sessions: Sessions, *, idle_s: float, quantum_s: Array, minimum_s: Array) -> Array:
    """Hours of one machine on the bill: each session with its idle tail, rounded up as the provider does.

    Quanta of a second and below are not rounded to (`FINE_QUANTUM_S`); 0 stands for «not known», and rounds nothing.

    >>> one = Sessions(count=np.array([1.0]), on_s=np.array([61.0]), wall_s=np.array([61.0]))
    >>> float(billed_hours(one, idle_s=0.0, quantum_s=np.array([60.0]), minimum_s=np.array([60.0]))[0]) * 3600
    120.0
    """
    each = sessions.on_s / sessions.count + idle_s
    coarse = np.where(quantum_s > FINE_QUANTUM_S, quantum_s, 1.0)
    rounded = np.where(quantum_s > FINE_QUANTUM_S, np.ceil(each / coarse - 1e-9) * coarse, each)
    return np.maximum(rounded, minimum_s) * sessions.count / SECONDS_PER_HOUR


def unused_hours(billed_h: Array, term_h: Array, buy: BuyTerms, *, service: bool) -> Array:
    """Committed hours of one machine that this work pays for and does not use; 0 where `term_h` is 0.

    A service pays its whole month. A job pays nothing more where the reservation is owned, its part of the idle hours
    where the share in use is stated (hours x (1 / share - 1)), and else all the hours of the term.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if service:
            unused = np.maximum(HOURS_PER_MONTH - billed_h, 0.0)
        elif buy.reserved_owned:
            unused = np.zeros_like(billed_h)
        elif buy.reserved_utilization is not None:
            unused = billed_h * (1.0 / buy.reserved_utilization - 1.0)
        else:
            unused = np.ceil(billed_h / term_h) * term_h - billed_h
    return np.where(term_h > 0, unused, 0.0)
