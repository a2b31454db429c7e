"""What rows measured on a device teach about it: a Bayesian update in logarithms, exact and independent of order.

Model, for a run i whose predicted time is the sum of groups of work (products, attention, ...) with shares s_i:

    r_i = ln(measured / predicted) = s_i·θ + μ_m(i) + δ_c(i) + ε_i
    θ ~ N(0, (σ² - ν² - τ²)(ρ 11ᵀ + (1-ρ) I))  error of each group's rate; ρ: what they have in common
    μ_m ~ N(0, ν²)                           what the physics leaves out of one method (full, lora)
    δ_c ~ N(0, τ²)                           what the physics leaves out of one configuration c
    ε_i ~ N(0, noise_i²)                     the measurement

All normal, so the posterior is exact (Bishop 2006, «Pattern Recognition and Machine Learning», equations 3.49 to 3.51,
here in the dual form of Rasmussen and Williams 2006, «Gaussian Processes for Machine Learning», equations 2.25 and
2.26). σ is what packaged predictions are off on devices that no row is of. The sum of groups is taken as straight at
the profile's own figures. A row more never widens the interval of anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp, fsum, log, sqrt
from typing import Final

import numpy as np

from tonnage.calibration.local_profile import NORMAL_80, combined_log_sd
from tonnage.sizing.estimates import Basis, Figure
from tonnage.values import dataclass

COMMON_SHARE: Final = 0.5  # ρ: of the groups' errors, what is common to all (judgement, range 0.2 to 0.8)
METHOD_SHARE: Final = 0.2  # ν²/σ²: what one method has (judgement, range 0.05 to 0.4)
CONFIGURATION_SHARE: Final = 0.1  # τ²/σ²: what only one configuration has (judgement, range 0.03 to 0.3)
EXPECTED_COUNTS: Final = 3.0  # repeats that an expected spread stands for, beside those seen (judgement, range 2 to 6)
LEAST_NOISE: Final = 0.005  # a clock, a scheduler and a cache are never surer than that


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalObservation:
    """One measured figure beside its prediction from the profile alone."""

    configuration: str
    shares: tuple[tuple[str, float], ...]  # group -> share of the predicted figure; they sum to 1
    log_ratio: float  # ln(measured / predicted)
    noise_log_sd: float
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureBelief:
    """Mean and standard deviation of ln(true / predicted) of one figure."""

    mean: float
    log_sd: float

    def around(self, value: float, noise_log_sd: float = 0.0, basis: Basis = "computed") -> Figure:
        """The figure a prediction of `value` becomes, with its 80 % interval; `noise_log_sd`: of one measurement."""
        middle = value * exp(self.mean)
        reach = exp(NORMAL_80 * combined_log_sd(self.log_sd, noise_log_sd))
        return Figure(value=middle, low=middle / reach, high=middle * reach, basis=basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pooled:
    """All rows of one configuration: their mean weighed by their noise."""

    configuration: str
    method: str
    shares: dict[str, float]
    log_ratio: float
    variance: float


def condition(
    observations: Sequence[LocalObservation],
    prior_log_sd: float,
    shares: Mapping[str, float],
    configuration: str,
    method: str = "",
) -> FigureBelief:
    """What is believed of a figure with these `shares`, after the observations; the same whatever their order.

    >>> seen = LocalObservation(configuration="a", shares=(("products", 1.0),), log_ratio=0.2, noise_log_sd=0.01)
    >>> before, after = (condition(rows, 0.2, {"products": 1.0}, "a") for rows in ((), (seen,)))
    >>> before.log_sd, round(after.mean, 3), round(after.log_sd, 3)
    (0.2, 0.2, 0.01)
    """
    variance = prior_log_sd**2
    own, alike = CONFIGURATION_SHARE * variance, METHOD_SHARE * variance
    rest = variance - own - alike
    prior = _covariance(shares, shares, rest) + alike + own
    pooled = _pool(observations)
    if not pooled:
        return FigureBelief(mean=0.0, log_sd=sqrt(prior))
    kernel = np.array(
        [
            [_covariance(one.shares, other.shares, rest) + (one.method == other.method) * alike
             + (one is other) * (own + one.variance) for other in pooled]
            for one in pooled
        ]
    )  # fmt: skip
    ratios = np.array([one.log_ratio for one in pooled])
    towards = np.array(
        [_covariance(one.shares, shares, rest) + (one.method == method) * alike
         + (one.configuration == configuration) * own for one in pooled]
    )  # fmt: skip
    weights = np.linalg.solve(kernel, np.stack([ratios, towards], axis=1))
    left = prior - fsum(towards * weights[:, 1])
    return FigureBelief(mean=fsum(towards * weights[:, 0]), log_sd=sqrt(max(left, 0.0)))


def _covariance(one: Mapping[str, float], other: Mapping[str, float], variance: float) -> float:
    common = fsum(one.values()) * fsum(other.values())
    alike = fsum(share * other.get(group, 0.0) for group, share in one.items())
    return variance * (COMMON_SHARE * common + (1.0 - COMMON_SHARE) * alike)


def _pool(observations: Sequence[LocalObservation]) -> list[_Pooled]:
    """One entry a configuration, in the order of their names; sums are exact, so no order shows."""
    groups: defaultdict[str, list[LocalObservation]] = defaultdict(list)
    for one in observations:
        groups[one.configuration].append(one)
    found = []
    for name in sorted(groups):
        weights = [1.0 / max(one.noise_log_sd, LEAST_NOISE) ** 2 for one in groups[name]]
        total = fsum(weights)
        mean = fsum(weight * one.log_ratio for weight, one in zip(weights, groups[name], strict=True)) / total
        found.append(
            _Pooled(
                configuration=name, method=groups[name][0].method, shares=dict(groups[name][0].shares),
                log_ratio=mean, variance=1.0 / total,
            )
        )  # fmt: skip
    return found


def shares_of(parts: Mapping[str, float]) -> dict[str, float]:
    """Each part's share of their sum, those of nothing left out.

    >>> shares_of({"products": 3.0, "attention": 1.0, "all-reduce": 0.0})
    {'products': 0.75, 'attention': 0.25}
    """
    total = fsum(parts.values())
    return {name: value / total for name, value in parts.items() if value > 0}


def repeat_log_sd(observations: Sequence[LocalObservation], expected: float) -> float:
    """How far the same work differs from run to run: the spread of the rows of one configuration about their mean,
    pooled over configurations, with what is expected of it counting as much as `EXPECTED_COUNTS` repeats.

    >>> same = {"configuration": "a", "shares": (), "noise_log_sd": 0.0}
    >>> rows = [LocalObservation(**same, log_ratio=ratio) for ratio in (0.0, 0.02)]
    >>> round(repeat_log_sd((), 0.03), 3), round(repeat_log_sd(rows, 0.03), 3)
    (0.03, 0.027)
    """
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for one in observations:
        groups[one.configuration].append(one.log_ratio)
    means = {name: fsum(ratios) / len(ratios) for name, ratios in groups.items()}
    spread = fsum((ratio - means[name]) ** 2 for name in sorted(groups) for ratio in sorted(groups[name]))
    freedom = sum(len(ratios) - 1 for ratios in groups.values())
    return sqrt((EXPECTED_COUNTS * expected**2 + spread) / (EXPECTED_COUNTS + freedom))


def observed(
    configuration: str, parts: Mapping[str, float], measured: float, noise_log_sd: float, method: str = ""
) -> LocalObservation:  # fmt: skip
    """A measured figure beside the parts its prediction sums."""
    return LocalObservation(
        configuration=configuration, method=method, shares=tuple(shares_of(parts).items()),
        log_ratio=log(measured / fsum(parts.values())), noise_log_sd=noise_log_sd,
    )  # fmt: skip
