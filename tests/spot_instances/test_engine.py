"""The replay engine: bills by hand, and no deadline missed whatever the world and the policy do."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.spot_instances import (
    Greedy,
    HazardModel,
    Moment,
    OnDemand,
    Recorded,
    ReplayOutcome,
    SpotJob,
    SpotPolicy,
    TimeSliced,
    TonnagePolicy,
    UniformProgress,
    packaged_model,
    replay,
)
from tonnage.spot_instances.engine import IDLE, ON_DEMAND, Flags, Places
from tonnage.spot_instances.job import TICK_H

EXAMPLES = int(os.environ.get("TONNAGE_EXAMPLES", "6"))  # `make test-slow` tries more
POLICIES: list[Callable[[], SpotPolicy]] = [
    Greedy, UniformProgress, OnDemand, lambda: TimeSliced(4), lambda: TonnagePolicy(packaged_model()),
]  # fmt: skip


def ups(*text: str) -> Flags:
    """Windows of one zone: «1100» is up for two ticks."""
    return np.array([[[char == "1"] for char in one] for one in text])


def ticks_job(work: float, deadline: float, start: float, ratio: float = 3.0) -> SpotJob:
    return SpotJob(work_h=work * TICK_H, deadline_h=deadline * TICK_H, changeover_h=start * TICK_H, price_ratio=ratio)


@pytest.mark.parametrize(
    ("policy", "up", "work", "deadline", "start", "cost", "finished"),
    [
        # spot all the way: one tick of start-up, four of work
        (Greedy(), "1111111111", 4, 10, 1, 5, 5),
        # never up: slack 6 falls to the guard of 2, then on-demand: start-up and work at 3
        (Greedy(), "0000000000", 4, 10, 1, 15, 10),
        # lost after two ticks (one of them start-up), up again at 4: relaunch
        (Greedy(), "1100111111", 4, 10, 1, 2 + 4, 8),
        # behind the line at once: on-demand at tick 1 and to the end
        (UniformProgress(), "0000000000", 8, 12, 1, 27, 10),
        # work that ends within a tick is billed to the moment
        (Greedy(), "1111111111", 3.5, 10, 0.25, 3.75, 3.75),
        (OnDemand(), "1111111111", 4, 10, 2, 18, 6),
    ],
)
def test_bills_by_hand(
    policy: SpotPolicy, up: str, work: float, deadline: float, start: float, cost: float, finished: float
) -> None:
    """Cost and finish in ticks, worked out on paper."""
    found = replay(ticks_job(work, deadline, start), Recorded(ups(up)), policy)
    assert found.cost[0] / TICK_H == pytest.approx(cost)
    assert found.finished_h[0] / TICK_H == pytest.approx(finished)


def test_uniform_progress_needs_a_lead_to_return_to_spot() -> None:
    """On demand it goes back only when ahead of the line two changeovers from now; without a lead it stays."""
    job = ticks_job(20, 25, 2)
    found = replay(job, Recorded(ups("00" + "1" * 23)), UniformProgress())
    assert found.launches[0] == 1
    assert found.cost[0] / TICK_H == pytest.approx(3 * 22)


def test_uniform_progress_waits_for_spot_while_there_is_much_slack() -> None:
    """Work / time of 0.5: nothing but spot or waiting until work is 0.7 of the time left."""
    job = ticks_job(10, 20, 0)
    found = replay(job, Recorded(ups("0" * 5 + "1" * 15)), UniformProgress())
    assert found.cost[0] / TICK_H == pytest.approx(10)


class Adversary:
    """Takes spot away as soon as the job is on it (after `patience` ticks), and offers it again otherwise."""

    def __init__(self, windows: int, zones: int, patience: int) -> None:
        self.shape, self.patience = (windows, zones), patience
        self.held = np.zeros(windows, np.int64)

    def up(self, tick: int, moment: Moment | None) -> Flags:
        del tick
        up = np.ones(self.shape, np.bool_)
        if moment is None:
            return up
        on_spot = moment.place >= 0
        self.held = np.where(on_spot, self.held + 1, 0)
        takes = on_spot & (self.held > self.patience)
        up[takes] = False
        return up


class WhenOnDemand:
    """Spot is there only while the job is on demand or, `tick` odd, while it waits."""

    def __init__(self, windows: int) -> None:
        self.windows = windows

    def up(self, tick: int, moment: Moment | None) -> Flags:
        if moment is None:
            return np.ones((self.windows, 1), np.bool_)
        tempting = (moment.place == ON_DEMAND) | ((moment.place == IDLE) & bool(tick % 2))
        return tempting[:, None]


class Reckless:
    """A policy that asks for anything at all, at random."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def start(self, job: SpotJob, windows: int, zones: int) -> None:
        del job, windows
        self.zones = zones

    def choose(self, moment: Moment) -> Places:
        return self.random.integers(IDLE, self.zones, len(moment.place)).astype(np.int16)


def assert_kept(found: ReplayOutcome, job: SpotJob) -> None:
    assert not found.missed.any()
    assert (found.finished_h <= job.deadline_h + 1e-6).all()
    assert (found.cost >= job.work_h - 1e-9).all()


jobs = st.builds(
    lambda work, slack, start, ratio: SpotJob(
        work_h=work, deadline_h=work + start + slack, changeover_h=start, price_ratio=ratio
    ),
    work=st.floats(0.05, 6.0),
    slack=st.floats(0.0, 6.0),
    start=st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.137, 0.2, 0.5]),
    ratio=st.floats(1.0, 10.0),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(job=jobs, seed=st.integers(0, 10_000), zones=st.integers(1, 3), flips=st.floats(0.01, 0.9))
def test_no_policy_misses_on_random_worlds(job: SpotJob, seed: int, zones: int, flips: float) -> None:
    """Every policy, even a reckless one, is done by the deadline on random spot."""
    random = np.random.default_rng(seed)
    up = np.cumsum(random.random((6, job.ticks, zones)) < flips, axis=1) % 2 == 1
    for policy in (Reckless(seed), *(make() for make in POLICIES)):
        assert_kept(replay(job, Recorded(up), policy), job)


@settings(max_examples=EXAMPLES, deadline=None)
@given(job=jobs, patience=st.integers(0, 20), zones=st.integers(1, 2))
def test_no_policy_misses_against_an_adversary(job: SpotJob, patience: int, zones: int) -> None:
    """The same against worlds that watch the job and take spot at the worst moment."""
    for policy in (Reckless(patience), *(make() for make in POLICIES)):
        assert_kept(replay(job, Adversary(2, zones, patience), policy), job)
        assert_kept(replay(job, WhenOnDemand(2), policy), job)


def test_with_no_room_at_all_every_policy_is_on_demand(model: HazardModel) -> None:
    """Deadline = work + one start-up: the only plan there is."""
    job = SpotJob(work_h=2.0, deadline_h=2.1, changeover_h=0.1, price_ratio=4.0)
    up = np.ones((1, job.ticks, 1), np.bool_)
    for policy in (Greedy(), UniformProgress(), TimeSliced(8), TonnagePolicy(model)):
        assert replay(job, Recorded(up), policy).cost[0] == pytest.approx(job.on_demand_cost)
