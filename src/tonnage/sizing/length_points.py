"""Lengths that vary as a few lengths with weights: what sums and percentiles over requests are taken from."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Final

import numpy as np

from tonnage.sizing.estimates import Array
from tonnage.sizing.length_spread import log_spread
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths

# Where the distribution is cut: finer towards the long end, which percentiles and caches ask about, and at the short
# one: the fewer tokens an answer has, the more of its time per token is what all others' prompts took.
STRATA: Final = (0.0, 0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.92, 0.96, 0.98, 0.99, 0.999, 1.0)
MOST_POINTS: Final = 32  # a longer histogram is summed into the strata


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPoints:
    """Lengths in tokens, ascending, and the share of requests that has each; the shares sum to 1."""

    tokens: Array
    shares: Array

    @property
    def mean(self) -> float:
        return float(self.tokens @ self.shares)


def length_points(lengths: Lengths) -> LengthPoints:
    """The points of a distribution: as stated, or log-normal through mean and maximum where only those are stated.

    >>> length_points(Lengths(mean=45_500, maximum=90_000, points=((1_000.0, 0.5), (90_000.0, 0.5)))).tokens
    array([ 1000., 90000.])
    """
    tokens, shares = _points(lengths)
    return LengthPoints(tokens=np.array(tokens), shares=np.array(shares))


@lru_cache(maxsize=4096)
def _points(lengths: Lengths) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if lengths.points:
        ordered = sorted(lengths.points)
        if len(ordered) <= MOST_POINTS:
            return tuple(tokens for tokens, _ in ordered), tuple(share for _, share in ordered)
        return _regrouped(ordered)
    spread = log_spread(lengths)
    if spread <= 0.0:
        return (lengths.mean,), (1.0,)
    shares = tuple(right - left for left, right in pairwise(STRATA))
    return tuple(_log_normal_means(lengths.mean, spread, float(lengths.maximum))), shares


def _log_normal_means(mean: float, spread: float, longest: float) -> list[float]:
    """Mean length inside each stratum: mean · [Φ(z₂ - s) - Φ(z₁ - s)] / (u₂ - u₁), at most the longest.

    What the cut at the longest takes off is given back in proportion, so that the mean is the stated one.
    """
    normal = NormalDist()
    edges = [normal.inv_cdf(min(max(u, 1e-9), 1 - 1e-9)) for u in STRATA]
    below = [normal.cdf(z - spread) for z in edges]
    below[0], below[-1] = 0.0, 1.0
    widths = [right - left for left, right in pairwise(STRATA)]
    found = [mean * (below[i + 1] - below[i]) / width for i, width in enumerate(widths)]
    cut = [min(value, longest) for value in found]
    scale = mean / sum(value * width for value, width in zip(cut, widths, strict=True))
    return [min(value * scale, longest) for value in cut]


def _regrouped(ordered: list[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean of the stated lengths inside each stratum."""
    tokens = np.array([value for value, _ in ordered])
    ends = np.cumsum([share for _, share in ordered])
    starts = np.concatenate([[0.0], ends[:-1]])
    means, shares = [], []
    for left, right in pairwise(STRATA):
        inside = np.maximum(np.minimum(ends, right) - np.maximum(starts, left), 0.0)
        if inside.sum() > 0:
            means.append(float(tokens @ inside / inside.sum()))
            shares.append(float(inside.sum()))
    return tuple(means), tuple(shares)


CHAT_SPREAD: Final = 0.9  # of the logarithm of lengths in a recorded conversation trace: prompts 0.99, answers 0.86
CHAT_LONGEST: Final = 4.7  # longest answer over the mean one there; serving benchmarks cut prompts near it too
# The same of ShareGPT's answers as serving benchmarks sample it (4 tokens and more). Three servers that were asked
# 1,000 of them at once stopped each answer for what was still to be read, R on average: a token of n takes R / n more,
# so that the mean time per token, 235, 252 and 365 ms, is R times the mean of 1/n above the median step (51, 48 and 66
# ms), with R half of the 19.6, 13.2 and 37.3 s in which the last prompts were read: the mean of 1/n is 3.1 to 6.2 times
# that of n = 202, exp(s^2) of a log-normal distribution (gpustack/gpustack@7ae332a:docs/performance-lab/qwen3-14b).
SHAREGPT_SPREAD: Final = 1.15


def chat_lengths(mean: float, spread: float = CHAT_SPREAD) -> Lengths:
    """Lengths of a conversation data set of which only the mean is known: log-normal, cut at 4.7 times the mean.
    `spread`: standard deviation of their logarithm."""
    shares = [right - left for left, right in pairwise(STRATA)]
    means = _log_normal_means(mean, spread, CHAT_LONGEST * mean)
    return Lengths(mean=mean, maximum=max(round(CHAT_LONGEST * mean), 1), points=tuple(zip(means, shares, strict=True)))
