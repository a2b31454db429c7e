"""Policies side by side over random windows of traces: what each costs, how far it is from the optimum, its misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.spot_instances.engine import Recorded, ReplayOutcome, SpotPolicy, replay
from tonnage.spot_instances.hazards import HazardModel
from tonnage.spot_instances.job import SpotJob
from tonnage.spot_instances.optimum import optimal_costs
from tonnage.spot_instances.policy import TonnagePolicy
from tonnage.spot_instances.rivals import SLICES, Greedy, OnDemand, TimeSliced, UniformProgress
from tonnage.spot_instances.traces import SpotTrace
from tonnage.spot_instances.windows import SpotWindows, draw_joint_windows, draw_windows
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
