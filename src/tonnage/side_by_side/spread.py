"""How much the same work differs from repeat to repeat at a place, and from place to place, with confidence.

All in logarithms: rates vary by factors. Distributions by their series and continued fractions, so that no library of
statistics is needed (Abramowitz and Stegun 1964, *Handbook of Mathematical Functions*, 6.5.29, 6.5.31, 26.5.8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf, lgamma, log, log1p, sqrt
from statistics import fmean, variance
from typing import Final

from tonnage.side_by_side.result import interval
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

LIMIT: Final = 0.05  # the variation that documents promise to stay under
TERMS: Final = 500
TINY: Final = 1e-300
CLOSE: Final = 1e-14


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatSpread:
    """Repeats at one place. `sd_fraction`: the standard deviation of the logarithm, about the coefficient of variation,
    with its 80 % interval; `confidence`: that it lies below the limit. None of fewer than two repeats."""

    rate_per_s: Figure | None
    repeats: int
    sd_fraction: Figure | None
    confidence: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceDifference:
    """Two places: the rate of `other` over that of `one`, with its 80 % interval, and the confidence that they differ
    by less than the limit (two one-sided Welch tests: Schuirmann 1987, J. Pharmacokin. Biopharm. 15(6))."""

    one: str
    other: str
    ratio: Figure
    confidence: float


def repeat_spread(rates: Sequence[float], limit: float = LIMIT) -> RepeatSpread:
    """The spread of repeats, from the distribution of a normal sample's variance: (n - 1)·s²/σ² is chi-squared.

    >>> found = repeat_spread([100.0, 101.0, 99.0, 100.0, 100.5])
    >>> found.sd_fraction is not None and round(found.sd_fraction.value, 4), found.confidence > 0.99
    (0.0074, True)
    """
    count, rate = len(rates), interval(rates)
    if count < 2:
        return RepeatSpread(rate_per_s=rate, repeats=count, sd_fraction=None, confidence=None)
    free, squared = count - 1, variance([log(one) for one in rates])
    ends = [sqrt(free * squared / chi_squared_quantile(part, free)) for part in (0.9, 0.1)]
    sd = Figure(value=sqrt(squared), low=ends[0], high=ends[1], basis="measured")
    confidence = 1.0 - chi_squared(free * squared / log1p(limit) ** 2, free)
    return RepeatSpread(rate_per_s=rate, repeats=count, sd_fraction=sd, confidence=confidence)


def place_difference(
    one: tuple[str, Sequence[float]], other: tuple[str, Sequence[float]], limit: float = LIMIT
) -> PlaceDifference | None:
    """Whether two places give the same rate; None where one has fewer than two repeats.

    >>> same = place_difference(("a", [100.0, 101.0, 99.0]), ("b", [100.0, 100.5, 99.5]))
    >>> same is not None and same.confidence > 0.95
    True
    """
    first, second = ([log(rate) for rate in rates] for _, rates in (one, other))
    if min(len(first), len(second)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (first, second)]
    difference, error = fmean(second) - fmean(first), sqrt(sum(parts))
    if error == 0.0:
        sure = 1.0 if abs(difference) < log1p(limit) else 0.0
        return PlaceDifference(one=one[0], other=other[0], ratio=_ratio(difference, 0.0), confidence=sure)
    free = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    bound = log1p(limit)
    confidence = min(student((bound - difference) / error, free), student((bound + difference) / error, free))
    half = error * _root(lambda value: student(value, free) - 0.9, 0.0, 1e4)
    return PlaceDifference(one=one[0], other=other[0], ratio=_ratio(difference, half), confidence=confidence)


def _ratio(difference: float, half: float) -> Figure:
    ends = exp(difference - half), exp(difference + half)
    return Figure(value=exp(difference), low=ends[0], high=ends[1], basis="measured")


def chi_squared(value: float, free: float) -> float:
    """The share of a chi-squared distribution below a value.

    >>> round(chi_squared(9.4877, 4), 4)
    0.95
    """
    return 0.0 if value <= 0 else _lower_gamma(free / 2.0, value / 2.0)


def chi_squared_quantile(share: float, free: float) -> float:
    """The value that this share lies below.

    >>> round(chi_squared_quantile(0.95, 4), 3)
    9.488
    """
    return _root(lambda value: chi_squared(value, free) - share, 0.0, 100.0 + 20.0 * free)


def student(value: float, free: float) -> float:
    """The share of Student's distribution below a value; `free` need not be whole.

    >>> round(student(2.1318, 4), 4), round(student(-2.1318, 4), 4)
    (0.95, 0.05)
    """
    tail = 0.5 * _beta(free / 2.0, 0.5, free / (free + value * value))
    return 1.0 - tail if value > 0 else tail


def _lower_gamma(shape: float, value: float) -> float:
    """The regularised lower incomplete gamma function: a series, or where it is slow the complement's fraction."""
    front = exp(-value + shape * log(value) - lgamma(shape))
    if value < shape + 1.0:
        term = total = 1.0 / shape
        for step in range(1, TERMS):
            term *= value / (shape + step)
            total += term
            if term < total * CLOSE:
                break
        return front * total
    return 1.0 - front * _fraction(
        lambda step: -step * (step - shape), lambda step: value + 2.0 * step + 1.0 - shape, 1.0 / (value + 1.0 - shape)
    )


def _fraction(over: Callable[[int], float], under: Callable[[int], float], first: float) -> float:
    """A continued fraction from its first convergent on (Lentz 1976, Applied Optics 15(3))."""
    ratio, above, found = first, inf, first
    for step in range(1, TERMS):
        numerator, denominator = over(step), under(step)
        ratio = 1.0 / (denominator + numerator * ratio or TINY)
        above = denominator + (0.0 if above == inf else numerator / above) or TINY
        change = ratio * above
        found *= change
        if abs(change - 1.0) < CLOSE:
            break
    return found


def _beta(first: float, second: float, value: float) -> float:
    """The regularised incomplete beta function, by the fraction on the side where it converges fast."""
    if value <= 0.0 or value >= 1.0:
        return 0.0 if value <= 0.0 else 1.0
    front = exp(
        lgamma(first + second) - lgamma(first) - lgamma(second) + first * log(value) + second * log(1.0 - value)
    )
    if value >= (first + 1.0) / (first + second + 2.0):
        return 1.0 - _beta(second, first, 1.0 - value)
    total = first + second

    def over(step: int) -> float:
        half = step // 2
        if step % 2 == 0:
            return half * (second - half) * value / ((first + 2 * half - 1) * (first + 2 * half))
        return -(first + half) * (total + half) * value / ((first + 2 * half) * (first + 2 * half + 1))

    return front * _fraction(over, lambda _: 1.0, 1.0) / first


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is zero."""
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2.0
