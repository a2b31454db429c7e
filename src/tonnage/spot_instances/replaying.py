"""Policies side by side over random windows of traces: what each costs, how far it is from the optimum, its misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.spot_instances.engine import Recorded, ReplayOutcome, SpotPolicy, replay
from tonnage.spot_instances.hazards import HazardModel
from tonnage.spot_instances.job import TICK_H, SpotJob
from tonnage.spot_instances.optimum import optimal_costs
from tonnage.spot_instances.policy import TonnagePolicy
from tonnage.spot_instances.rivals import SLICES, Greedy, OnDemand, TimeSliced, UniformProgress
from tonnage.spot_instances.traces import SpotTrace
from tonnage.values import dataclass

POLICIES: Final = ("tonnage", "uniform-progress", "greedy", "time-sliced", "on-demand", "optimum")
Progress = Callable[[str], None]
Hours = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPolicyResult:
    """Means over the windows of one trace; `slices` of time-sliced is the best number in hindsight.

    `cost_vs_on_demand` is the mean bill over that of the whole job on demand, `cost_vs_optimum` over the mean bill of
    the optimum. The optimum has no `finished_h` and no launches: only its bill is computed.
    """

    policy: str
    cost_vs_on_demand: float
    cost_vs_optimum: float
    misses: int
    windows: int
    finished_h: float | None
    launches: float | None
    slices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """One trace, or several as zones of one job."""

    trace: str
    family: str
    zones: tuple[str, ...]
    nodes: int
    availability: float  # share of the windows' ticks with spot in some zone
    results: tuple[SpotPolicyResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTrace:
    """A trace that could not be replayed, and why."""

    trace: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """Everything one replay found."""

    job: SpotJob
    windows: int
    seed: int
    together: bool
    model_source: str
    traces: tuple[TraceResult, ...]
    skipped: tuple[SkippedTrace, ...]


def _silent(text: str) -> None:
    del text


def replay_traces(
    job: SpotJob, traces: Sequence[SpotTrace], model: HazardModel, *, windows: int, seed: int, together: bool = False,
    on_step: Progress = _silent,
) -> ReplayResult:  # fmt: skip
    """Replay every policy over `windows` random starts of each trace (or of all traces as zones of one job).

    Raises InputError where no trace is as long as the deadline.
    """
    drawn, skipped = _drawn(job, traces, windows, seed, together)
    ups = np.concatenate([one.up for _, one in drawn])
    outcomes = _outcomes(job, ups, model, on_step)
    bests = np.concatenate([_optima(job, one, place, len(drawn), on_step) for place, (_, one) in enumerate(drawn)])
    found = []
    for place, (members, one) in enumerate(drawn):
        part = slice(place * windows, (place + 1) * windows)
        found.append(
            TraceResult(
                trace=one.name,
                family=" + ".join(dict.fromkeys(member.family for member in members)),
                zones=tuple(member.zone for member in members),
                nodes=max(member.nodes for member in members),
                availability=float(one.up.any(axis=2).mean()),
                results=_results(job, outcomes, bests, part),
            )
        )
    return ReplayResult(
        job=job, windows=windows, seed=seed, together=together, model_source=model.source, traces=tuple(found),
        skipped=tuple(skipped),
    )  # fmt: skip


def _drawn(
    job: SpotJob, traces: Sequence[SpotTrace], windows: int, seed: int, together: bool
) -> tuple[list[tuple[Sequence[SpotTrace], SpotWindows]], list[SkippedTrace]]:
    if together:
        return [(traces, draw_joint_windows(traces, ticks=job.ticks, count=windows, seed=seed))], []
    drawn: list[tuple[Sequence[SpotTrace], SpotWindows]] = []
    skipped, errors = [], []
    for trace in traces:
        try:
            drawn.append(((trace,), draw_windows(trace, ticks=job.ticks, count=windows, seed=seed)))
        except InputError as error:
            skipped.append(SkippedTrace(trace=trace.name, reason=error.message))
            errors.append(error)
    if not drawn:
        raise errors[0]
    return drawn, skipped


def _policies(model: HazardModel) -> list[tuple[str, int | None, SpotPolicy]]:
    return [
        ("tonnage", None, TonnagePolicy(model)),
        ("uniform-progress", None, UniformProgress()),
        ("greedy", None, Greedy()),
        *(("time-sliced", slices, TimeSliced(slices)) for slices in SLICES),
        ("on-demand", None, OnDemand()),
    ]


def _outcomes(
    job: SpotJob, ups: NDArray[np.bool_], model: HazardModel, on_step: Progress
) -> list[tuple[str, int | None, ReplayOutcome]]:
    outcomes = []
    for name, slices, policy in _policies(model):
        on_step(f"replaying {name}{'' if slices is None else f' ({slices} slices)'} ...")
        outcomes.append((name, slices, replay(job, Recorded(ups), policy)))
    return outcomes


def _optima(job: SpotJob, windows: SpotWindows, place: int, of: int, on_step: Progress) -> Hours:
    on_step(f"optimum of {windows.name} ({place + 1} of {of}) ...")
    return optimal_costs(job, windows.up)


def _results(
    job: SpotJob, outcomes: Sequence[tuple[str, int | None, ReplayOutcome]], bests: Hours, part: slice
) -> tuple[SpotPolicyResult, ...]:
    best = float(bests[part].mean())
    found: dict[str, SpotPolicyResult] = {}
    for name, slices, outcome in outcomes:
        mean = float(outcome.cost[part].mean())
        line = SpotPolicyResult(
            policy=name,
            cost_vs_on_demand=mean / job.on_demand_cost,
            cost_vs_optimum=mean / best,
            misses=int(outcome.missed[part].sum()),
            windows=len(outcome.cost[part]),
            finished_h=float(np.nanmean(outcome.finished_h[part])),
            launches=float(outcome.launches[part].mean()),
            slices=slices,
        )
        if name not in found or line.cost_vs_on_demand < found[name].cost_vs_on_demand:
            found[name] = line
    found["optimum"] = SpotPolicyResult(
        policy="optimum", cost_vs_on_demand=best / job.on_demand_cost, cost_vs_optimum=1.0, misses=0,
        windows=len(bests[part]), finished_h=None, launches=None,
    )  # fmt: skip
    return tuple(found[name] for name in POLICIES)


Up = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWindows:
    """`up[window, tick, zone]`: whether spot is up in a zone."""

    name: str
    up: Up


def draw_windows(trace: SpotTrace, *, ticks: int, count: int, seed: int) -> SpotWindows:
    """`count` random starts of one trace. The draw depends on the seed and the trace alone, not on its neighbours.

    Raises InputError where no stretch of the trace is long enough.
    """
    segments = trace.ticks()
    rooms = np.array([max(0, len(one) - ticks + 1) for one in segments])
    if not rooms.sum():
        raise InputError(
            f"{trace.name} covers {max(map(len, segments)) * TICK_H:.1f} h without a hole, the deadline "
            f"{ticks * TICK_H:.1f} h",
            hint="a shorter job with a shorter deadline, or a longer trace",
        )
    places = np.random.default_rng(seed).integers(rooms.sum(), size=count)
    owner = np.searchsorted(np.cumsum(rooms), places, side="right")
    first = places - (np.cumsum(rooms) - rooms)[owner]
    up = np.stack([segments[o][f : f + ticks] for o, f in zip(owner, first, strict=True)])
    return SpotWindows(name=trace.name, up=up[:, :, None])


def draw_joint_windows(traces: Sequence[SpotTrace], *, ticks: int, count: int, seed: int) -> SpotWindows:
    """Random starts over the time that all traces cover, taken to begin together; every trace is one zone."""
    split = [trace.name for trace in traces if len(trace.segments) > 1]
    if split:
        raise InputError(
            f"{split[0]} has a hole of more than 600 s, so its zones cannot be laid side by side",
            hint="leave the trace out, or replay it without --zones together",
        )
    zones = [trace.ticks()[0] for trace in traces]
    room = min(map(len, zones)) - ticks + 1
    if room < 1:
        shortest = min(traces, key=lambda trace: trace.hours)
        raise InputError(
            f"{shortest.name} covers {shortest.hours:.1f} h, the deadline {ticks * TICK_H:.1f} h",
            hint="leave it out, or replay a shorter job",
        )
    starts = np.random.default_rng(seed).integers(room, size=count)
    up = np.stack([np.stack([zone[start : start + ticks] for zone in zones], axis=1) for start in starts])
    return SpotWindows(name=" + ".join(trace.name for trace in traces), up=up)
