"""`spot fit`: how long spot lasted in given traces, zone by zone and by accelerator, and whether the model predicts it.

Lengths are taken at the trace's own sampling; runs cut by the start of a stretch are dropped, by its end censored.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, gamma, log

import numpy as np
from numpy.typing import NDArray

from tonnage.spot_instances.belief import hypotheses
from tonnage.spot_instances.hazards import (
    BUCKETS,
    HazardModel,
    bucket_of,
    exposure_by_age,
    fit_hazards,
)
from tonnage.spot_instances.traces import SpotTrace
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

Hours = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weibull:
    """S(t) = exp(-(t / scale)^shape). A shape under 1: the hazard falls with age."""

    shape: float
    scale_h: float

    @property
    def mean_h(self) -> float:
        """scale · Γ(1 + 1/shape)."""
        return self.scale_h * gamma(1 + 1 / self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Spot prices of a trace, US dollars an hour; `changes` counts samples whose price is not the one before."""

    mean: float
    low: float
    high: float
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """One zone, or all zones of one accelerator. None: not one event, or no prices in the trace."""

    name: str
    accelerator: str
    nodes: int
    zones: int
    hours: float
    availability: float
    up_runs: int
    preemptions: int
    preemptions_per_up_h: float
    up_weibull: Weibull | None
    down_weibull: Weibull | None
    hazard_per_h: tuple[float | None, ...]  # by age bucket; None: no run got so old
    prices: Prices | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutFamily:
    """Mean log-likelihood a preemption of the traces of one family, under fits on the others. Higher is better.

    `buckets` is the hazard by age of the typical zone, `zone_factors` the same with the zone's factor unknown, which
    is what the policy believes at its start.
    """

    family: str
    preemptions: int
    exponential: float
    weibull: float
    buckets: float
    zone_factors: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotFit:
    """Everything `spot fit` finds; `left_out` is empty with fewer than two families."""

    model: HazardModel
    zones: tuple[RunStatistics, ...]
    groups: tuple[RunStatistics, ...]
    left_out: tuple[LeftOutFamily, ...]


def fit_traces(traces: Sequence[SpotTrace], *, source: str) -> SpotFit:
    """Statistics, the hazard model, and its check on families left out."""
    groups: dict[tuple[str, int], list[SpotTrace]] = {}
    for trace in traces:
        groups.setdefault((trace.accelerator, trace.nodes), []).append(trace)
    return SpotFit(
        model=fit_hazards(traces, source=source),
        zones=tuple(run_statistics([trace], trace.name) for trace in traces),
        groups=tuple(
            run_statistics(members, f"{accelerator} x {nodes}") for (accelerator, nodes), members in groups.items()
        ),
        left_out=_left_out(traces),
    )


def observed_runs(traces: Sequence[SpotTrace], *, up: bool) -> tuple[Hours, Flags]:
    """Hours of each run whose start was seen, at the traces' own sampling, and whether its end was seen."""
    lengths: list[Hours] = [np.zeros(0)]
    ended: list[Flags] = [np.zeros(0, np.bool_)]
    for trace in traces:
        for segment in trace.segments:
            changes = np.flatnonzero(segment[1:] != segment[:-1]) + 1
            runs = np.diff(np.append(changes, len(segment))) * trace.gap_s / SECONDS_PER_HOUR
            kept = segment[changes] == up
            lengths.append(runs[kept])
            ended.append((np.arange(len(runs)) < len(runs) - 1)[kept])
    return np.concatenate(lengths), np.concatenate(ended)


def fit_weibull(lengths_h: Hours, ended: Flags) -> Weibull | None:
    """Censored maximum likelihood; None without two events of different length.

    The shape k solves  1/k + mean(ln t over events) = Σ t^k ln t / Σ t^k  (sums over all runs);
    scale^k = Σ t^k / events.
    """
    events = lengths_h[ended]
    if len(events) < 2 or np.ptp(lengths_h) == 0:
        return None
    top = float(lengths_h.max())
    scaled = lengths_h / top
    logs = np.log(scaled)
    mean_log = float(np.log(events / top).mean())

    def score(shape: float) -> float:
        powers = scaled**shape
        return 1 / shape + mean_log - float((powers * logs).sum() / powers.sum())

    low, high = 0.02, 50.0
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if score(middle) > 0 else (low, middle)
    shape = (low * high) ** 0.5
    scale = top * float((scaled**shape).sum() / len(events)) ** (1 / shape)
    return Weibull(shape=shape, scale_h=scale)


def hazard_by_age(lengths_h: Hours, ended: Flags) -> tuple[float | None, ...]:
    """Events over hours at risk in each age bucket."""
    events, exposure = _table(lengths_h, ended)
    return tuple(float(e / h) if h > 0 else None for e, h in zip(events, exposure, strict=True))


def run_statistics(traces: Sequence[SpotTrace], name: str) -> RunStatistics:
    """Availability, preemptions, lifetimes and prices of traces taken together."""
    up, up_ended = observed_runs(traces, up=True)
    down, down_ended = observed_runs(traces, up=False)
    all_up_h = sum(trace.availability * trace.hours for trace in traces)
    hours = sum(trace.hours for trace in traces)
    preemptions = int(up_ended.sum()) + sum(_first_lost(trace) for trace in traces)
    return RunStatistics(
        name=name,
        accelerator=traces[0].accelerator,
        nodes=traces[0].nodes,
        zones=len(traces),
        hours=hours,
        availability=all_up_h / hours,
        up_runs=len(up),
        preemptions=preemptions,
        preemptions_per_up_h=preemptions / all_up_h if all_up_h else 0.0,
        up_weibull=fit_weibull(up, up_ended),
        down_weibull=fit_weibull(down, down_ended),
        hazard_per_h=hazard_by_age(up, up_ended),
        prices=_prices(traces),
    )


def _first_lost(trace: SpotTrace) -> int:
    """Runs that were up when a stretch began and ended in it: preemptions of an unknown age."""
    return sum(bool(segment[0]) and not segment.all() for segment in trace.segments)


def _prices(traces: Sequence[SpotTrace]) -> Prices | None:
    series = [trace.prices_usd_per_h for trace in traces if trace.prices_usd_per_h is not None]
    known = [one[~np.isnan(one)] for one in series]
    known = [one for one in known if len(one)]
    if not known:
        return None
    joined = np.concatenate(known)
    return Prices(
        mean=float(joined.mean()),
        low=float(joined.min()),
        high=float(joined.max()),
        changes=sum(int((np.diff(one) != 0).sum()) for one in known),
    )


def _table(lengths_h: Hours, ended: Flags) -> tuple[Hours, Hours]:
    events, exposure = np.zeros(BUCKETS), np.zeros(BUCKETS)
    for length, end in zip(lengths_h.tolist(), ended.tolist(), strict=True):
        exposure += exposure_by_age(length)
        if end:
            events[bucket_of(length)] += 1
    return events, exposure


def _left_out(traces: Sequence[SpotTrace]) -> tuple[LeftOutFamily, ...]:
    families = list(dict.fromkeys(trace.family for trace in traces))
    lines = []
    for family in families:
        mine = [trace for trace in traces if trace.family == family]
        others = [trace for trace in traces if trace.family != family]
        lengths, ended = observed_runs(mine, up=True)
        known, known_ended = observed_runs(others, up=True)
        weibull = fit_weibull(known, known_ended)
        if not ended.any() or weibull is None:
            continue
        lines.append(_line(family, mine, others, weibull, (lengths, ended), (known, known_ended)))
    return tuple(lines)


def _line(
    family: str, mine: Sequence[SpotTrace], others: Sequence[SpotTrace], weibull: Weibull, seen: tuple[Hours, Flags],
    known: tuple[Hours, Flags],
) -> LeftOutFamily:  # fmt: skip
    lengths, ended = seen
    count = int(ended.sum())
    rate = float(known[1].sum() / known[0].sum())
    model = fit_hazards(others, source="the other families")
    typical = np.array(model.up.per_h) * exp(model.up.log_mean)
    events, exposure = _table(lengths, ended)
    powers = (lengths / weibull.scale_h) ** weibull.shape
    events_log = np.log(weibull.shape / weibull.scale_h) + (weibull.shape - 1) * np.log(lengths / weibull.scale_h)
    return LeftOutFamily(
        family=family,
        preemptions=count,
        exponential=(count * log(rate) - rate * float(lengths.sum())) / count,
        weibull=(float(events_log[ended].sum()) - float(powers.sum())) / count,
        buckets=float(events @ np.log(typical) - exposure @ typical) / count,
        zone_factors=sum(_marginal(model, trace) for trace in mine) / count,
    )


def _marginal(model: HazardModel, trace: SpotTrace) -> float:
    """Log-likelihood of one zone's runs with its factor unknown."""
    side, _ = hypotheses(model, 1)
    events, exposure = _table(*observed_runs([trace], up=True))
    logs = side.log_prior + np.log(side.per_h) @ events - side.per_h @ exposure
    top = float(logs.max())
    return top + log(float(np.exp(logs - top).sum()))
