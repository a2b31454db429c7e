"""Spot work with checkpoints when lifetimes are not exponential: expected time and bill exactly, and the best interval.

A machine that has lived long is safer than a new one (the hazard falls with age), which the formulas of Young and
Daly leave out. Here a run is a renewal process: every launch starts at age 0, takes the start-up, then does segments
of work, each followed by a save. A preemption loses what was done since the last save, waits for spot to return and
starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, exp, expm1, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.estimates import distinct
from tonnage.values import dataclass

Hours = NDArray[np.float64]
Cumulative = Callable[[Hours], Hours]  # age in hours -> cumulative hazard H; survival is exp(-H)
SEARCHED_H: Final = 100.0  # longer work has the same best interval: its lives are many
MOST_SEGMENTS: Final = 2000  # of the searched work
_NEGLIGIBLE: Final = 1e-18
_QUADRATURE: Final = 24  # Gauss-Legendre points a piece
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """How long a spot machine lives: H(age), and the ages in hours at which H bends (pieces are smooth between)."""

    cumulative: Cumulative
    bends_h: tuple[float, ...] = ()

    def survival(self, age_h: Hours) -> Hours:
        """Chance to live to an age."""
        return np.exp(-self.cumulative(age_h))


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalTerms:
    """Hours of start-up (with restoring), of one save, and of waiting for spot to return after a preemption."""

    startup_h: float
    save_h: float
    wait_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalRun:
    """Expected hours on the clock and on the bill, and preemptions; infinite where the work is never done."""

    interval_h: float
    expected_h: float
    billed_h: float
    preemptions: float


def exponential(rate_per_h: float) -> Lifetime:
    """A constant hazard: no memory."""
    return Lifetime(cumulative=lambda age: rate_per_h * age)


def weibull(shape: float, scale_h: float) -> Lifetime:
    """H(t) = (t / scale)^shape; a shape under 1 is a hazard that falls with age."""
    return Lifetime(cumulative=lambda age: (age / scale_h) ** shape, bends_h=_powers_of_two(scale_h))


def by_age(ages_h: tuple[float, ...], per_h: tuple[float, ...]) -> Lifetime:
    """A hazard that is constant between ages; the last one goes on forever."""
    starts, rates = np.array(ages_h), np.array(per_h)
    before = np.concatenate([[0.0], np.cumsum(np.diff(starts) * rates[:-1])])

    def cumulative(age: Hours) -> Hours:
        place = np.searchsorted(starts, age, side="right") - 1
        return np.asarray(before[place] + (age - starts[place]) * rates[place])

    return Lifetime(cumulative=cumulative, bends_h=ages_h[1:])


def renewal_run(work_h: float, interval_h: float, lifetime: Lifetime, terms: RenewalTerms) -> RenewalRun:
    """Expected time and bill of `work_h` hours with a save after every `interval_h` hours of work.

    With n segments left after a launch, p_i the chance that exactly i < n of them are saved before the preemption,
    A_n the expected hours lived (at most to the end) and w the wait:
    T_n · (1 - p_0) = A_n + w · (1 - chance to finish) + Σ p_i T_(n-i), i from 1; the bill is the same without w.
    The last segment ends the work and is not saved. Exact for any lifetime law; preemptions while starting count too.
    """
    segments = max(1, ceil(work_h / interval_h - 1e-9))
    last_h = work_h - (segments - 1) * interval_h
    saved_at: Hours = terms.startup_h + np.arange(1.0, segments) * (interval_h + terms.save_h)
    reach = lifetime.survival(saved_at)  # chance that i segments are saved, i from 1
    ends: Hours = terms.startup_h + np.arange(float(segments)) * (interval_h + terms.save_h) + last_h
    finish = lifetime.survival(ends)  # chance that n segments end in one life, n from 1
    lived = _mean_life_to(lifetime, ends)
    chances = np.append(reach[:-1] - reach[1:], 0.0) if segments > 1 else np.zeros(0)
    chances = chances[: 1 + int(np.flatnonzero(chances > _NEGLIGIBLE).max(initial=-1))]
    clock, bill, lost = np.zeros(segments + 1), np.zeros(segments + 1), np.zeros(segments + 1)
    for left in range(1, segments + 1):
        _one_more(left, chances, reach, finish, lived, terms.wait_h, (clock, bill, lost))
    return RenewalRun(
        interval_h=min(interval_h, work_h), expected_h=float(clock[-1]), billed_h=float(bill[-1]),
        preemptions=float(lost[-1]),
    )  # fmt: skip


def _one_more(
    left: int, chances: Hours, reach: Hours, finish: Hours, lived: Hours, wait_h: float, sums: tuple[Hours, ...]
) -> None:
    """Fill in the expectations with `left` segments left from those with fewer."""
    clock, bill, lost = sums
    done = float(finish[left - 1])
    progress = done if left == 1 else float(reach[0])  # chance that a life is not in vain
    if progress <= 1e-290:
        clock[left] = bill[left] = lost[left] = inf
        return
    tail = float(reach[left - 2]) - done if left > 1 else 0.0  # all but the last one saved, then lost
    constants = (float(lived[left - 1]) + wait_h * (1 - done), float(lived[left - 1]), 1 - done)
    for sums_of, constant in zip((clock, bill, lost), constants, strict=True):
        part = chances[: max(left - 2, 0)]
        partly = float(part @ sums_of[left - len(part) : left][::-1])
        sums_of[left] = (constant + partly + (tail * sums_of[1] if left > 1 else 0.0)) / progress


def best_interval(work_h: float, lifetime: Lifetime, terms: RenewalTerms) -> RenewalRun:
    """The run at the interval with the least expected bill, found by golden section on its logarithm.

    Not to save at all is tried too, and ties go to the fewest saves. Work over SEARCHED_H is searched as that much.
    """
    if work_h > SEARCHED_H:
        return renewal_run(work_h, best_interval(SEARCHED_H, lifetime, terms).interval_h, lifetime, terms)
    least = max(work_h / MOST_SEGMENTS, terms.save_h / 10, 1e-4)
    unsaved = renewal_run(work_h, work_h, lifetime, terms)
    if least >= work_h:
        return unsaved
    low, high = np.log(least), np.log(work_h)
    tries = {point: renewal_run(work_h, exp(point), lifetime, terms) for point in np.linspace(low, high, 25).tolist()}
    points = sorted(tries)
    place = min(range(len(points)), key=lambda one: tries[points[one]].billed_h)
    below, above = points[max(place - 1, 0)], points[min(place + 1, len(points) - 1)]
    for _ in range(12):
        width = (above - below) * _GOLDEN
        left, right = above - width, below + width
        runs = [tries.setdefault(point, renewal_run(work_h, exp(point), lifetime, terms)) for point in (left, right)]
        below, above = (below, right) if runs[0].billed_h <= runs[1].billed_h else (left, above)
    return min([unsaved, *tries.values()], key=lambda run: (run.billed_h, -run.interval_h))


def daly_hours(work_h: float, interval_h: float, rate_per_h: float, terms: RenewalTerms) -> float:
    """The same expectation if lifetimes were exponential, by Daly's equation 13, without waiting.

    T = (e^(λR) / λ) · (e^(λ(τ+C)) - 1) · work/τ, which saves after the last segment too. Daly 2006, FGCS 22.

    >>> round(daly_hours(10.0, 1.0, 1e-9, RenewalTerms(startup_h=0.1, save_h=0.02, wait_h=0.0)), 3)
    10.2
    """
    exponent = rate_per_h * (interval_h + terms.save_h)
    if exponent + rate_per_h * terms.startup_h > 700:
        return inf
    return exp(rate_per_h * terms.startup_h) / rate_per_h * expm1(exponent) * work_h / interval_h


def _mean_life_to(lifetime: Lifetime, ends_h: Hours) -> Hours:
    """∫ S from 0 to each end, in pieces between bends so that each piece is smooth."""
    cuts = distinct(np.concatenate([[0.0], ends_h, [b for b in lifetime.bends_h if b < ends_h[-1]]]))
    nodes, weights = np.polynomial.legendre.leggauss(_QUADRATURE)
    pieces = [
        float(weights @ lifetime.survival((end - begin) / 2 * nodes + (begin + end) / 2)) * (end - begin) / 2
        for begin, end in pairwise(cuts.tolist())
    ]
    totals = np.concatenate([[0.0], np.cumsum(pieces)])
    return np.asarray(totals[np.searchsorted(cuts, ends_h)])


def _powers_of_two(scale_h: float) -> tuple[float, ...]:
    """Pieces that shrink towards 0, where a Weibull with shape under 1 is steep."""
    return tuple(scale_h * 2.0**power for power in range(-24, 7))
