"""Policies side by side on one load: each rival tuned over its main parameter, and the clairvoyant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from tonnage.errors import InputError
from tonnage.scaling.clairvoyant import clairvoyant_hours
from tonnage.scaling.fleet import FleetRun, StartUp, simulate_fleet
from tonnage.scaling.law import control_law
from tonnage.scaling.load import Load
from tonnage.scaling.rivals import Fixed, Hpa, Knative, RayServe, SkyServe
from tonnage.scaling.service import Policy, ScaledService, WeekSchedule
from tonnage.values import dataclass

OWN: Final = "tonnage"
RIVALS: Final = ("static", "ray-serve", "keda-queue", "keda-rate", "skyserve", "knative")
POLICIES: Final = (OWN, *RIVALS)
TARGETS: Final = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
Tuning = Literal["hindsight", "past"]
TUNINGS: Final = ("hindsight", "past")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """One policy on the load. `setting` is its tuned parameter: replicas, or the part of a replica's slots or rate."""

    policy: str
    setting: float | None
    run: FleetRun
    keeps: bool
    vs_clairvoyant: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """All policies on one load, judged from `judged_from_s` on."""

    load: Load
    service: ScaledService
    start_up: StartUp
    tuning: Tuning
    judged_from_s: float
    clairvoyant_replica_hours: float
    results: tuple[PolicyResult, ...]

    @property
    def best_baseline(self) -> PolicyResult | None:
        """The cheapest rival that keeps the promise; None where none does."""
        kept = [one for one in self.results if one.policy != OWN and one.keeps]
        return min(kept, key=lambda one: one.run.replica_hours, default=None)

    @property
    def own(self) -> PolicyResult | None:
        return next((one for one in self.results if one.policy == OWN), None)

    @property
    def vs_best_baseline(self) -> float | None:
        """Replica-hours of the law over those of the best baseline."""
        best, own = self.best_baseline, self.own
        return None if best is None or own is None else own.run.replica_hours / best.run.replica_hours


def compare_policies(
    load: Load,
    service: ScaledService,
    *,
    policies: Sequence[str] = POLICIES,
    start_up: StartUp | None = None,
    schedule: WeekSchedule | None = None,
    learn_fraction: float = 0.5,
    tuning: Tuning = "hindsight",
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> PolicyComparison:
    """Each policy on the load. The first `learn_fraction` of its time is the past: the law learns from it, no figure
    counts it. Rivals are tuned on the judged part itself (`hindsight`) or on the past.

    Raises InputError for an unknown policy and a fraction outside 0 to 0.9.
    """
    _check(policies, learn_fraction, tuning)
    stage = _Stage(load, service, start_up or StartUp(mean_s=service.start_up_s), learn_fraction * load.span_s, seed)
    bound = clairvoyant_hours(load, service, judged_from_s=stage.from_s)
    results = []
    for name in policies:
        if on_step is not None:
            on_step(name)
        if name == OWN:
            setting, run = None, stage.run(control_law(service, schedule), stage.initial)
        else:
            setting, run = _tuned(name, stage, tuning)
        keeps = run.kept_fraction >= service.promised_fraction
        vs = run.replica_hours / bound if bound > 0 else math.inf
        results.append(PolicyResult(policy=name, setting=setting, run=run, keeps=keeps, vs_clairvoyant=vs))
    return PolicyComparison(
        load=load, service=service, start_up=stage.start_up, tuning=tuning, judged_from_s=stage.from_s,
        clairvoyant_replica_hours=bound, results=tuple(results),
    )  # fmt: skip


def rival(name: str, service: ScaledService, setting: float, service_s: float) -> Policy[Any]:
    """A rival with its main parameter: `setting` of a replica's slots, or of the rate at which they are all busy."""
    slots, qps = setting * service.slots, setting * service.slots / service_s
    match name:
        case "static":
            return Fixed(service=service, count=int(setting))
        case "ray-serve":
            return RayServe(service=service, target_ongoing=slots)
        case "keda-queue":
            return Hpa(service=service, target=slots, name=name)
        case "keda-rate":
            return Hpa(service=service, target=qps, metric="rate", name=name)
        case "skyserve":
            return SkyServe(service=service, target_qps=qps)
        case "knative":
            return Knative(service=service, target=slots)
        case _:
            raise InputError(f"'{name}' is not a policy", hint=f"the policies are {', '.join(POLICIES)}")


class _Stage:
    """What is the same for all policies on a load."""

    def __init__(self, load: Load, service: ScaledService, start_up: StartUp, from_s: float, seed: int) -> None:
        self.load, self.service, self.start_up, self.from_s, self.seed = load, service, start_up, from_s, seed
        self.service_s = float(load.service_s.mean())
        first = load.at_s < max(service.start_up_s, 60.0)
        slots = float(load.service_s[first].sum()) / max(service.start_up_s, 60.0)
        self.initial = service.within(slots / service.slots) if first.any() else service.least

    def run(self, policy: Policy[Any], initial: int) -> FleetRun:
        return simulate_fleet(
            self.load, self.service, policy, start_up=self.start_up, initial=initial, judged_from_s=self.from_s,
            seed=self.seed,
        )  # fmt: skip


def _tuned(name: str, stage: _Stage, tuning: Tuning) -> tuple[float, FleetRun]:
    """The cheapest setting that keeps the promise, the most careful one where none does.

    Settings go from careful to cheap. Promises kept need not fall steadily along them, so the search looks at every
    third, then at the neighbours of the last that keeps. Fixed numbers do fall steadily: they are bisected.
    """
    ordered: Sequence[float] = (
        TARGETS if name != "static" else range(stage.service.most, max(stage.service.least, 1) - 1, -1)
    )
    runs: dict[int, FleetRun] = {}

    def keeps(place: int) -> bool:
        if place not in runs:
            policy = rival(name, stage.service, ordered[place], stage.service_s)
            runs[place] = stage.run(policy, int(ordered[place]) if name == "static" else stage.initial)
        kept = runs[place].kept_fraction if tuning == "hindsight" else runs[place].past_kept_fraction
        return kept >= stage.service.promised_fraction

    if name == "static":
        _bisect(keeps, len(ordered))
    else:
        coarse = [place for place in range(0, len(ordered), 3) if keeps(place)]
        for place in range((coarse[-1] if coarse else 0) + 1, min((coarse[-1] if coarse else 0) + 3, len(ordered))):
            keeps(place)
    good = [place for place in runs if keeps(place)]
    cost = (
        (lambda place: runs[place].replica_hours)
        if tuning == "hindsight"
        else (lambda place: runs[place].past_replica_hours)
    )
    chosen = min(good, key=cost) if good else 0
    return float(ordered[chosen]), runs[chosen]


def _bisect(keeps: Callable[[int], bool], count: int) -> None:
    if not keeps(0):
        return
    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle - 1)


def _check(policies: Sequence[str], learn_fraction: float, tuning: str) -> None:
    for name in policies:
        if name not in POLICIES:
            raise InputError(f"'{name}' is not a policy", hint=f"the policies are {', '.join(POLICIES)}")
    if not policies:
        raise InputError("no policy to compare", hint=f"the policies are {', '.join(POLICIES)}")
    if not 0 <= learn_fraction <= 0.9:
        raise InputError(f"{learn_fraction:g} of the load to learn from: from 0 to 0.9")
    if tuning not in TUNINGS:
        raise InputError(f"'{tuning}' is not a way to tune", hint=f"the ways are {', '.join(TUNINGS)}")


def thinned_load(load: Load, bins: int = 240) -> tuple[tuple[float, float], ...]:
    """The load in slots over time, if no request waited: (hour, slots), for a chart."""
    width = load.span_s / bins
    edges = np.arange(bins + 1) * width
    ends = np.sort(load.at_s + load.service_s)
    inside = np.searchsorted(load.at_s, edges, side="right") - np.searchsorted(ends, edges, side="right")
    return tuple((float(edge) / 3600.0, float(count)) for edge, count in zip(edges, inside, strict=True))
