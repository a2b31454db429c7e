"""80 % intervals from residuals of rows that the fit never saw (split conformal, in log space, each tail by itself).

Rows of one source err together: one laboratory, one set of programs, one way to measure. So sources are what is
sampled: their rows are weighed down, few of them borrow from kin, and coverage is stated with whole sources left out.

A residual is ln(measured / predicted) in the direction of its group: a group of times counts a throughput row the
other way round, so that one interval serves every metric of the same physics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from types import MappingProxyType
from typing import Final

from tonnage.calibration.interval_level import calibrated_level
from tonnage.calibration.prediction import JudgedRow
from tonnage.sizing.assumptions import (
    HOST_SPREAD,
    INFERENCE_MEMORY_SPREAD,
    INFERENCE_TIME_SPREAD,
    TRAINING_MEMORY_SPREAD,
    TRAINING_TIME_SPREAD,
)
from tonnage.sizing.estimates import Spread
from tonnage.sizing.program_profiles import ADAPTER_MEMORY, KNOWN_MEMORY, UNSTATED_MEMORY
from tonnage.values import dataclass

COVERED: Final = 0.80
FEWEST_ROWS: Final = 20  # a group with fewer borrows the residuals of all groups
FEWEST_SOURCES: Final = 3  # so does one of fewer sources, beside its own: two do not show how sources differ
FEWEST_WITHOUT_KIN: Final = 5  # a group of fewer sources is judged together with its kin, where it has any
# What a group of fewer sources is judged together with: whole passes through the same engines; the same tensors of
# programs that say what they hold; times of the same steps under the same loads (what the mean request sees is not
# judged by what the slowest do).
POOLED_GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "encoder time": ("vision time",),
    "vision time": ("encoder time",),
    KNOWN_MEMORY: (ADAPTER_MEMORY,),
    ADAPTER_MEMORY: (KNOWN_MEMORY,),
    UNSTATED_MEMORY: (KNOWN_MEMORY, ADAPTER_MEMORY),
    "decoder tpot": ("decoder ttft",),
    "decoder tail": ("decoder tpot", "decoder ttft"),
})  # fmt: skip
FARTHEST: Final = 2  # beyond two unknowns the interval widens no more
DEFAULT_WIDENING: Final = 1.5  # where no residual of far rows is known: judgement, range 1.2 to 2.5
FOREIGN_WIDENING: Final = 1.5  # another generation, vendor or number format: judgement, range 1.2 to 2.5
LEAST_WIDENING: Final = 1.1  # what no fit has seen is never as sure as what it has: judgement, range 1.0 to 1.3
_WIDEST: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInterval:
    """The interval of one group as logarithms of measured / predicted; `widening` is the factor for each unknown."""

    group: str
    rows: int
    families: int
    low_log: float
    centre_log: float
    high_log: float
    widening: float
    far_rows: int  # how many residuals the widening rests on; 0: the default
    sources: int = 0  # how many measured; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Every group's interval. A group that no row was seen of has what holds for all of its kin, without any the
    judgement of `sizing.assumptions`."""

    groups: tuple[GroupInterval, ...] = ()

    def spread(self, group: str, unseen_factors: int = 0, foreign: int = 0) -> Spread:
        """Low and high factor around a prediction of `group` with `unseen_factors` that no row of the fit had.

        `foreign` of them are of a kind that no left-out row speaks of (another generation or vendor, another number
        format): each of those widens by judgement. A figure that no row had, and for which only its kin speak (tails,
        for which means do), is one more of that kind. The prediction itself always lies inside.
        """
        known = self.of_group(group)
        if known is None:
            return _judged_spread(group, unseen_factors)
        of_kin = figure_of(known.group) != figure_of(group)
        unseen_factors, foreign = unseen_factors + of_kin, foreign + of_kin
        foreign = min(foreign, unseen_factors, FARTHEST)
        factor = (
            known.widening ** (min(unseen_factors, FARTHEST) - foreign)
            * max(known.widening, FOREIGN_WIDENING) ** foreign
        )
        low = known.centre_log + (known.low_log - known.centre_log) * factor
        high = known.centre_log + (known.high_log - known.centre_log) * factor
        return Spread(low_factor=exp(min(low, 0.0)), high_factor=exp(max(high, 0.0)))

    def spread_of(self, row: JudgedRow) -> Spread:
        """The interval around the prediction of a row, by its distance from the data and by how far its host, of
        unknown speed, bounds it."""
        spread = self.spread(row.group, row.unseen_factors, row.foreign)
        return spread.beside(HOST_SPREAD, row.host_share) if row.host_share else spread

    def of_group(self, group: str) -> GroupInterval | None:
        """The interval of a group; of one that no row was seen of, what holds for all of its kin, since no row
        says which of them it is like; None where no row was seen of them either."""
        found = {one.group: one for one in self.groups}
        if group in found:
            return found[group]
        kin = [found[name] for name in POOLED_GROUPS.get(group, ()) if name in found]
        if not kin:
            return None
        return replace(
            kin[0], low_log=min(one.low_log for one in kin), high_log=max(one.high_log for one in kin),
            widening=max(one.widening for one in kin),
        )  # fmt: skip

    def covers(self, row: JudgedRow) -> bool:
        """Whether what was measured lies in the interval around what was predicted."""
        spread = self.spread_of(row)
        return log(spread.low_factor) <= residual(row) <= log(spread.high_factor)


def residual(row: JudgedRow) -> float:
    """ln(measured / predicted), turned round for a rate in a group of amounts and for an amount in a group of rates."""
    value = log(row.measured / row.predicted)
    return value if counts_rate(row.metric) == is_rate_group(row.group) else -value


def counts_rate(metric: str) -> bool:
    """Whether more of `metric` means faster (or more room) rather than slower (or more bytes).

    >>> counts_rate("tokens_per_s_per_gpu"), counts_rate("latency_ms_mean"), counts_rate("peak_mem_gib")
    (True, False, False)
    """
    return "_per_s" in metric or "tflops" in metric or metric == "max_seq_len"


def is_rate_group(group: str) -> bool:
    """
    >>> is_rate_group("decoder throughput"), is_rate_group("training time")
    (True, False)
    """
    return "throughput" in group or "rate" in group.split()


def figure_of(group: str) -> str:
    """What is measured, whichever the work.

    >>> figure_of("encoder time"), figure_of("decoder tail"), figure_of("training memory, adapters")
    ('time', 'tail', 'memory')
    """
    return "memory" if "memory" in group else group.rsplit(" ", maxsplit=1)[-1]


def fit_intervals(near: Iterable[JudgedRow], distant: Iterable[JudgedRow] = ()) -> Intervals:
    """Intervals of left-out rows: `near` gives each group's quantiles, `distant` (GPU or engine left out) the
    widening.

    Suspect rows, rows that say only «fits» and readings that bound what they are of are not used. A family's rows weigh
    1/sqrt(their number), so that one long table does not speak for all families and a short one not as loud.
    """
    known = [row for row in near if usable(row) and not row.bound and row.unseen_factors == 0]
    away = [row for row in distant if usable(row) and not row.bound and row.unseen_factors > 0]
    by_group: defaultdict[str, list[JudgedRow]] = defaultdict(list)
    for row in known:
        by_group[row.group].append(row)
    found = []
    for group, rows in sorted(by_group.items()):
        like = _with_kin(group, by_group)
        quantiles = _quantiles(like) if _enough(like) else _among(like, known)
        if quantiles is not None:
            groups = {row.group for row in like}
            beyond = [row for row in away if row.group in groups]
            found.append(_group_interval(group, rows, quantiles, beyond))
    return Intervals(groups=tuple(found))


def _with_kin(group: str, by_group: Mapping[str, list[JudgedRow]]) -> list[JudgedRow]:
    """The group's rows; where few sources are behind it those of its kin too, each measurement once."""
    rows = by_group[group]
    if len(set(map(source_of, rows))) >= FEWEST_WITHOUT_KIN:
        return rows
    own = {(row.row_id, row.metric, row.measured) for row in rows}
    kin = (row for other in POOLED_GROUPS.get(group, ()) for row in by_group.get(other, ()))
    return [*rows, *(row for row in kin if (row.row_id, row.metric, row.measured) not in own)]


def source_of(row: JudgedRow) -> str:
    """Who measured a row; its family where that is not stated."""
    return row.source or row.family


def intervals_without_family(near: Sequence[JudgedRow], distant: Sequence[JudgedRow] = ()) -> dict[str, Intervals]:
    """For each family the intervals that the other families give."""
    return _intervals_without(lambda row: row.family, near, distant)


def intervals_without_source(near: Sequence[JudgedRow], distant: Sequence[JudgedRow] = ()) -> dict[str, Intervals]:
    """For each source the intervals that the other sources give: what a measurement by somebody else may expect."""
    return _intervals_without(source_of, near, distant)


def _intervals_without(
    key: Callable[[JudgedRow], str], near: Sequence[JudgedRow], distant: Sequence[JudgedRow]
) -> dict[str, Intervals]:
    return {
        out: fit_intervals((row for row in near if key(row) != out), (row for row in distant if key(row) != out))
        for out in sorted(set(map(key, near)))
    }


def usable(row: JudgedRow) -> bool:
    """Whether a row has an error at all and counts among the good ones."""
    return not row.suspect and row.metric != "fits" and row.measured > 0 and row.predicted > 0


def _group_interval(
    group: str, rows: Sequence[JudgedRow], quantiles: tuple[float, float, float], beyond: Sequence[JudgedRow]
) -> GroupInterval:
    low, centre, high = quantiles
    return GroupInterval(
        group=group,
        rows=len(rows),
        families=len({row.family for row in rows}),
        low_log=low,
        centre_log=centre,
        high_log=high,
        widening=_widening(quantiles, beyond),
        far_rows=len(beyond) if len(beyond) >= FEWEST_ROWS else 0,
        sources=len(set(map(source_of, rows))),
    )


def _widening(near: tuple[float, float, float], beyond: Sequence[JudgedRow]) -> float:
    """How much the interval must grow around its centre to hold 80 % of the rows `beyond`, for each unseen factor."""
    if len(beyond) < FEWEST_ROWS:
        return DEFAULT_WIDENING
    low, centre, high = near
    needed = []
    for row in beyond:
        off = residual(row) - centre
        side = (high - centre) if off >= 0 else (low - centre)
        ratio = off / side if side else _WIDEST
        needed.append(max(ratio, 1e-9) ** (1.0 / min(row.unseen_factors, FARTHEST)))
    return min(max(LEAST_WIDENING, _weighted_quantile(needed, _weights(beyond), COVERED)), _WIDEST)


def _among(own: Sequence[JudgedRow], known: Sequence[JudgedRow]) -> tuple[float, float, float] | None:
    """Low, middle and high of a group of few sources: half of the weight is its own, half that of all rows (which say
    what its sources do not). A group of few rows has all rows alone."""
    if len(known) < FEWEST_ROWS:
        return None
    if len(own) < FEWEST_ROWS:
        return _quantiles(known)
    rows = [*own, *known]
    shares = [[weight / sum(weights) for weight in weights] for weights in (_weights(own), _weights(known))]
    return _quantiles(rows, [*shares[0], *shares[1]])


def _enough(rows: Sequence[JudgedRow]) -> bool:
    return len(rows) >= FEWEST_ROWS and len(set(map(source_of, rows))) >= FEWEST_SOURCES


def _quantiles(rows: Sequence[JudgedRow], weights: Sequence[float] = ()) -> tuple[float, float, float]:
    """Low, middle and high of the pooled distribution of all sources (Dunn, Wasserman and Ramdas 2022,
    arXiv:1809.07441, section 4.2: pooling CDFs), at the level at which each source's rows are held by the others.

    Where there are too few for that, the rows of a table err together: those of one source, family and device.
    A new table is one of k + 1, and the interval holds COVERED of that many. Peaks are the same on every device: there
    the device is no table."""
    values = [residual(row) for row in rows]
    weights = weights or _weights(rows)
    held = calibrated_level(values, weights, [source_of(row) for row in rows], COVERED)
    if held is None:
        tables = len({(source_of(row), row.family, "" if "memory" in row.group else row.gpu) for row in rows})
        held = COVERED * (1.0 + 1.0 / tables)
    level = min(1.0, (1.0 + held) / 2.0)
    low = -_quantile_of([-value for value in values], weights, level)
    high = _quantile_of(values, weights, level)
    return low, _quantile_of(values, weights, 0.5), high


def _weights(rows: Sequence[JudgedRow]) -> list[float]:
    """Of n rows that share an error, some √n speak for themselves: between one vote a source and one a row."""
    counts = Counter(map(source_of, rows))
    return [1.0 / sqrt(counts[source_of(row)]) for row in rows]


def _weighted_quantile(values: Sequence[float], weights: Sequence[float], level: float) -> float:
    """Smallest value with `level` of the weight at or below it, where one more row of average weight lies at infinity.

    That row is the finite-sample correction of conformal prediction (Tibshirani et al. 2019, arXiv:1904.06019,
    section 2). With too few rows to reach the level, the largest value.
    """
    return _quantile_of(values, weights, level * (1.0 + 1.0 / len(weights)))


def _quantile_of(values: Sequence[float], weights: Sequence[float], level: float) -> float:
    """Smallest value with `level` of the weight at or below it; the largest where the level is beyond all weight."""
    wanted, reached = level * sum(weights), 0.0
    ordered = sorted(zip(values, weights, strict=True))
    for value, weight in ordered:
        reached += weight
        if reached >= wanted - 1e-12:
            return value
    return ordered[-1][0]


def _judged_spread(group: str, unseen_factors: int) -> Spread:
    if "memory" in group:
        base = TRAINING_MEMORY_SPREAD if "training" in group else INFERENCE_MEMORY_SPREAD
    else:
        base = TRAINING_TIME_SPREAD if "training" in group else INFERENCE_TIME_SPREAD
    factor = DEFAULT_WIDENING ** min(unseen_factors, FARTHEST)
    low, high = base.low_factor**factor, base.high_factor**factor
    return (
        Spread(low_factor=1 / high, high_factor=1 / low)
        if is_rate_group(group)
        else Spread(low_factor=low, high_factor=high)
    )
