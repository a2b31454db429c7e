"""The offline optimum: exhaustive search on tiny instances, closed forms, and what must hold everywhere."""

from __future__ import annotations

import os
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.spot_instances import (
    Greedy,
    Recorded,
    SpotJob,
    TonnagePolicy,
    UniformProgress,
    optimal_cost,
    optimal_costs,
    packaged_model,
    replay,
)
from tonnage.spot_instances.engine import Flags
from tonnage.spot_instances.job import TICK_H

EXAMPLES = int(os.environ.get("TONNAGE_EXAMPLES", "8"))  # `make test-slow` tries more


def ticks_job(work: float, deadline: float, start: float, ratio: float) -> SpotJob:
    return SpotJob(work_h=work * TICK_H, deadline_h=deadline * TICK_H, changeover_h=start * TICK_H, price_ratio=ratio)


def exhaustive(work: int, deadline: int, start: int, ratio: float, up: Flags) -> float:
    """Every choice in every tick, launches given up half-way included; in ticks."""
    zones = up.shape[1]

    @cache
    def least(tick: int, place: int, starting: int, left: int) -> float:
        if left == 0:
            return 0.0
        if tick == deadline:
            return float("inf")
        if place >= 0 and not up[tick, place]:
            place = -2
        costs = [least(tick + 1, -2, 0, left)]
        for there in (-1, *(zone for zone in range(zones) if up[tick, zone])):
            begins = starting if there == place else start
            busy = (there, begins - 1, left) if begins else (there, 0, left - 1)
            costs.append((ratio if there == -1 else 1.0) + least(tick + 1, *busy))
        return min(costs)

    return least(0, -2, 0, work)


@pytest.mark.parametrize("seed", range(120))
def test_it_is_what_exhaustive_search_finds(seed: int) -> None:
    """One and two zones, start-ups of 0 to 2 ticks, 4 to 11 ticks of time."""
    random = np.random.default_rng(seed)
    deadline, zones, start = int(random.integers(4, 12)), int(random.integers(1, 3)), int(random.integers(0, 3))
    work = int(random.integers(1, deadline - start + 1))
    ratio = float(random.choice([1.0, 1.5, 3.0, 10.0]))
    up = random.random((deadline, zones)) < random.choice([0.3, 0.6, 0.85])
    found = optimal_cost(ticks_job(work, deadline, start, ratio), up) / TICK_H
    assert found == pytest.approx(exhaustive(work, deadline, start, ratio, up))


@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 1.0), ratio=st.floats(1.0, 10.0))
def test_without_changeovers_it_is_all_spot_there_is(seed: int, share: float, ratio: float) -> None:
    """d = 0: spot whenever it is up, on-demand for what is left."""
    up = np.random.default_rng(seed).random((90, 1)) < 0.5
    job = SpotJob(work_h=3.0 * share, deadline_h=3.0, changeover_h=0.0, price_ratio=ratio)
    on_spot = min(job.work_h, float(up.sum()) * TICK_H)
    assert optimal_cost(job, up) == pytest.approx(on_spot + ratio * (job.work_h - on_spot))


def flipping(seed: int, ticks: int, zones: int = 1, windows: int = 3) -> Flags:
    random = np.random.default_rng(seed)
    return np.cumsum(random.random((windows, ticks, zones)) < 0.08, axis=1) % 2 == 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    start=st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.137, 0.3]),
    slack=st.floats(0.3, 4.0),
    ratio=st.floats(1.0, 8.0),
    zones=st.integers(1, 3),
)
def test_no_policy_is_cheaper(seed: int, start: float, slack: float, ratio: float, zones: int) -> None:
    """cost_vs_optimum >= 1, and the optimum is never above on-demand alone."""
    job = SpotJob(work_h=5.0, deadline_h=5.0 + slack, changeover_h=start, price_ratio=ratio)
    up = flipping(seed, job.ticks, zones)
    best = optimal_costs(job, up)
    assert (best <= job.on_demand_cost + 1e-9).all()
    for policy in (Greedy(), UniformProgress(), TonnagePolicy(packaged_model())):
        assert (replay(job, Recorded(up), policy).cost >= best - 1e-6).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), start=st.sampled_from([0.05, 0.1, 0.3]), ratio=st.floats(1.0, 8.0))
def test_more_time_never_costs_more(seed: int, start: float, ratio: float) -> None:
    """The optimum falls, or stays, as the deadline moves out."""
    up = flipping(seed, 300, windows=1)[0]
    costs = []
    for deadline in (150, 180, 240, 300):
        job = ticks_job(140, deadline, start / TICK_H, ratio)
        costs.append(optimal_cost(job, up[:deadline]))
    assert all(later <= sooner + 1e-9 for sooner, later in pairwise(costs))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_second_zone_never_costs_more(seed: int) -> None:
    job = SpotJob(work_h=6.0, deadline_h=8.0, changeover_h=0.1, price_ratio=3.0)
    up = flipping(seed, job.ticks, zones=2)
    assert (optimal_costs(job, up) <= optimal_costs(job, up[:, :, :1]) + 1e-9).all()
