"""`spot advise`: hours and money of work on spot, the best checkpoint interval, and whether a deadline can be kept.

Two ways to run are set side by side. Spot alone: start, lose, wait, start again, until done; its expectation is the
exact renewal computation for hazards that fall with age, its risk a simulation. With the policy: on-demand steps in as
`spot replay` measures it, on windows drawn from the hazard model, so that the deadline is kept.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

import numpy as np

from tonnage.errors import InputError
from tonnage.pricing.interruptions import young_interval_s
from tonnage.pricing.renewal import (
    RenewalRun,
    RenewalTerms,
    best_interval,
    daly_hours,
    renewal_run,
)
from tonnage.pricing.spot_runs import SpotTerms, expected_spot_runs, save_interval_h
from tonnage.spot_instances.drawing import drawn_windows, draws, lifetime, mean_h
from tonnage.spot_instances.engine import Recorded, replay
from tonnage.spot_instances.hazards import AGES_H, NODES_EXPONENT, HazardModel
from tonnage.spot_instances.job import LONGEST_H, SpotJob
from tonnage.spot_instances.policy import TonnagePolicy
from tonnage.spot_instances.refusals import DeadlineTooSoon, SpotDiverges, SpotMissesDeadline, SpotRefusal
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

Z80: Final = 1.2816  # standard deviations to either end of an 80 % interval
DIVERGES: Final = 10.0  # times the undisturbed hours from which spot is refused: judgement, 5 to 50
RISK: Final = 0.05  # chance of a miss from which spot alone is refused a deadline: judgement, 0.01 to 0.2
_RUNS: Final = 4000
_WINDOWS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotQuestion:
    """What is to be run. `interval_h` None: the one that plans take; `checkpoints` False: none are saved. Prices as in
    SpotJob."""

    work_h: float
    changeover_h: float
    price_ratio: float
    save_h: float = 60.0 / SECONDS_PER_HOUR
    interval_h: float | None = None
    checkpoints: bool = True
    deadline_h: float | None = None
    nodes: int = 1
    usd_per_h: float | None = None  # spot, of one machine
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, low in (
            ("--hours", self.work_h, 1e-3), ("--changeover-hours", self.changeover_h, 0.0),
            ("--price-ratio", self.price_ratio, 1.0), ("--save-minutes", self.save_h, 0.0),
            ("--checkpoint-minutes", 1.0 if self.interval_h is None else self.interval_h, 1e-6),
            ("--deadline-hours", 1.0 if self.deadline_h is None else self.deadline_h, 1e-3),
            ("--price", 1.0 if self.usd_per_h is None else self.usd_per_h, 1e-6), ("--nodes", self.nodes, 1.0),
        ):  # fmt: skip
            if not isfinite(value) or not low <= value <= LONGEST_H:
                raise InputError(f"{name} is out of range", hint=f"at least {low:g} h, USD or times, at most a year")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A run of the typical zone, and of zones at the ends of the 80 % interval. Infinite: never done."""

    value: RenewalRun
    low: RenewalRun
    high: RenewalRun


@dataclass(frozen=True, slots=True, kw_only=True)
class WithPolicy:
    """The job as the policy runs it to the deadline: bill over that of on-demand alone, hours until done, misses."""

    cost_vs_on_demand: float
    cost_vs_on_demand_low: float
    cost_vs_on_demand_high: float
    finished_h: float
    misses: int
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAdvice:
    """The answer. `refused` says why spot is refused, None where it is not."""

    question: SpotQuestion
    chosen: Expected
    best: RenewalRun
    unsaved: RenewalRun
    young_interval_h: float
    young: RenewalRun
    young_by_daly_h: float  # what Daly's formula expects there
    hazard_per_h: float  # mean: one over the mean life
    wait_h: float
    miss_chance: float | None  # on spot alone; None without a deadline
    policy: WithPolicy | None
    refused: SpotRefusal | None
    model_source: str

    @property
    def on_demand_cost(self) -> float:
        """The whole job on demand, in spot hours of one machine."""
        return self.question.price_ratio * (self.question.work_h + self.question.changeover_h)


def advise(question: SpotQuestion, model: HazardModel) -> SpotAdvice:
    """Judge spot for one job under a hazard model."""
    nodes = question.nodes**NODES_EXPONENT
    life = lifetime(model.up, 0.0, nodes)
    terms = RenewalTerms(startup_h=question.changeover_h, save_h=question.save_h, wait_h=mean_h(model.down, 0.0))
    best = best_interval(question.work_h, life, terms)
    interval = _interval(question, _columns(model, 0.0, nodes, terms))
    value, low, high = (_run(question, interval, _columns(model, z, nodes, terms)) for z in (0.0, -Z80, Z80))
    chosen = Expected(value=value, low=low, high=high)
    rate = 1.0 / mean_h(model.up, 0.0, nodes)
    young_h = float(young_interval_s(max(question.save_h, 1e-6), np.array([rate]))[0])
    young_h = min(young_h, question.work_h)
    miss = None if question.deadline_h is None else _miss_chance(question, model, interval, nodes)
    policy = _with_policy(question, model, interval, nodes)
    return SpotAdvice(
        question=question, chosen=chosen, best=best,
        unsaved=renewal_run(question.work_h, question.work_h, life, terms),
        young_interval_h=young_h, young=renewal_run(question.work_h, young_h, life, terms),
        young_by_daly_h=daly_hours(question.work_h, young_h, rate, terms),
        hazard_per_h=rate, wait_h=terms.wait_h, miss_chance=miss, policy=policy,
        refused=_refusal(question, chosen.value, miss, policy), model_source=model.source,
    )  # fmt: skip


def _interval(question: SpotQuestion, terms: SpotTerms) -> float:
    """As asked, else the one that plans take: within a few percent of the best one's bill."""
    if not question.checkpoints:
        return question.work_h
    if question.interval_h is not None:
        return min(question.interval_h, question.work_h)
    return float(save_interval_h(np.array([question.work_h]), terms)[0])


def _columns(model: HazardModel, deviations: float, nodes: float, terms: RenewalTerms) -> SpotTerms:
    """The terms of a zone so many deviations from the typical one, as plans have them in columns."""
    hazards = np.exp(model.up.log_mean + deviations * model.up.log_spread) * np.array(model.up.per_h) * nodes
    return SpotTerms(
        ages_h=AGES_H, hazard_per_h=hazards[None, :], startup_h=np.array([terms.startup_h]),
        save_h=np.array([terms.save_h]), wait_h=np.array([terms.wait_h]),
    )  # fmt: skip


def _run(question: SpotQuestion, interval_h: float, terms: SpotTerms) -> RenewalRun:
    """The expectation that a plan has of the same question."""
    found = expected_spot_runs(np.array([question.work_h]), terms, interval_h=np.array([interval_h]))
    billed, waited = float(found.billed_h[0]), float(found.waiting_h[0])
    return RenewalRun(
        interval_h=float(found.interval_h[0]), expected_h=billed + waited, billed_h=billed,
        preemptions=float(found.preemptions[0]),
    )  # fmt: skip


def _refusal(
    question: SpotQuestion, run: RenewalRun, miss: float | None, policy: WithPolicy | None
) -> SpotRefusal | None:
    undisturbed = question.work_h + question.changeover_h
    if question.deadline_h is not None and question.deadline_h < undisturbed:
        return DeadlineTooSoon(deadline_h=question.deadline_h, undisturbed_h=undisturbed, expected_h=run.expected_h)
    if run.expected_h > DIVERGES * undisturbed:
        return SpotDiverges(work_h=question.work_h, expected_h=run.expected_h, checkpoints=question.checkpoints)
    if policy is None and question.deadline_h is not None and miss is not None and miss > RISK:
        return SpotMissesDeadline(
            deadline_h=question.deadline_h,
            chance_fraction=miss,
            expected_h=run.expected_h,
            checkpoints=question.checkpoints,
        )
    return None


def _miss_chance(question: SpotQuestion, model: HazardModel, interval_h: float, nodes: float) -> float:
    """Share of simulated runs on spot alone, zones drawn from the model, that are not done by the deadline."""
    assert question.deadline_h is not None
    random = np.random.default_rng(question.seed)
    up_factor = np.exp(random.normal(size=_RUNS) * model.up.log_spread)
    down_factor = np.exp(random.normal(size=_RUNS) * model.down.log_spread)
    live, wait = draws(model.up, nodes, up_factor), draws(model.down, 1.0, down_factor)
    clock, left = np.zeros(_RUNS), np.full(_RUNS, float(question.work_h))
    rows = np.arange(_RUNS)
    step = interval_h + question.save_h
    done = np.zeros(_RUNS, np.bool_)
    while len(rows):
        lived = live(random, rows)
        segments = np.ceil(left[rows] / interval_h - 1e-9)
        need = question.changeover_h + left[rows] + (segments - 1) * question.save_h
        ends = lived >= need
        saved = np.clip(np.floor((lived - question.changeover_h) / step), 0, segments - 1)
        left[rows] -= saved * interval_h
        clock[rows] += np.where(ends, need, lived)
        done[rows[ends & (clock[rows] <= question.deadline_h)]] = True
        rows = rows[~ends]
        clock[rows] += wait(random, rows)
        rows = rows[clock[rows] < question.deadline_h]
    return 1.0 - float(done.mean())


def _with_policy(question: SpotQuestion, model: HazardModel, interval_h: float, nodes: float) -> WithPolicy | None:
    """Replay of the policy on windows drawn from the model; None without a deadline, checkpoints, or time for one.

    Half an interval of work is lost a preemption and a save is made every interval: both go into the changeover and the
    work, as the replay's model has no checkpoints of its own.
    """
    if question.deadline_h is None or not question.checkpoints:
        return None
    work_h = question.work_h * (1 + question.save_h / interval_h)
    lost_h = question.changeover_h + interval_h / 2
    if question.deadline_h < work_h + lost_h:
        return None
    job = SpotJob(work_h=work_h, deadline_h=question.deadline_h, changeover_h=lost_h, price_ratio=question.price_ratio)
    up = drawn_windows(model, ticks=job.ticks, count=_WINDOWS, seed=question.seed, nodes=nodes)
    outcome = replay(job, Recorded(up), TonnagePolicy(model))
    ratio = outcome.cost / (question.price_ratio * (question.work_h + question.changeover_h))
    return WithPolicy(
        cost_vs_on_demand=float(ratio.mean()),
        cost_vs_on_demand_low=float(np.quantile(ratio, 0.1)),
        cost_vs_on_demand_high=float(np.quantile(ratio, 0.9)),
        finished_h=float(np.nanmean(outcome.finished_h)),
        misses=int(outcome.missed.sum()),
        windows=_WINDOWS,
    )
