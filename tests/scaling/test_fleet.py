"""The simulated fleet: by hand on small loads, none lost on drains, and the clairvoyant below every policy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.scaling.clairvoyant import clairvoyant_hours
from tonnage.scaling.fleet import FleetRun, StartUp, simulate_fleet
from tonnage.scaling.load import Load, generated
from tonnage.scaling.reasons import RivalRule
from tonnage.scaling.rivals import Fixed
from tonnage.scaling.service import Observation, ScaledService
from tonnage.values import dataclass

ONE = ScaledService(slots=1, start_up_s=10.0, promise_s=2.0, least=0, most=5)


def load_of(*requests: tuple[float, float], span_s: float = 100.0) -> Load:
    at_s, service_s = zip(*requests, strict=True)
    return Load(name="by hand", at_s=np.array(at_s), service_s=np.array(service_s), span_s=span_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Replicas by the number of the decision; the last stays."""

    counts: tuple[int, ...]
    name: str = "wishes"
    interval_s: float = 5.0

    def begin(self) -> int:
        return 0

    def decide(self, state: int, seen: Observation, at_s: float) -> tuple[int, int, RivalRule]:
        del seen
        wanted = self.counts[min(state, len(self.counts) - 1)]
        return state + 1, wanted, RivalRule(policy=self.name, measured=at_s, target=1.0)


def test_three_requests_and_one_slot() -> None:
    """They wait 0, 2 and 4 s: one of three is late, and the replica is paid to the end."""
    run = simulate_fleet(load_of((0, 3), (1, 3), (2, 3)), ONE, Fixed(service=ONE, count=1), initial=1)
    assert (run.requests, run.late, run.lost) == (3, 1, 0)
    assert run.replica_hours == pytest.approx(100 / 3600)
    assert run.wait_p50_s == pytest.approx(2.0)


def test_a_new_replica_takes_its_start_up() -> None:
    """Asked for at 5 s, ready at 15 s: a request that came at 6 s waits 9 s, and the start-up is paid."""
    run = simulate_fleet(load_of((6, 1), span_s=25.0), ONE, Wishes(counts=(1,)), initial=0)
    assert run.late == 1
    assert run.wait_p50_s == pytest.approx(9.0)
    assert run.replica_hours == pytest.approx(20 / 3600)


def test_a_drained_replica_finishes_its_request() -> None:
    """Told to go at 5 s, it answers until 30 s, is paid until then, and takes nothing new."""
    run = simulate_fleet(load_of((1, 29), (7, 1), span_s=40.0), ONE, Wishes(counts=(0, 0, 0, 0, 0, 0, 1)), initial=1)
    assert run.lost == 0
    assert run.replica_hours == pytest.approx((30 + 5) / 3600)
    assert run.late == 1  # the second waits for a replica asked for at 35 s


def test_a_warm_pool_starts_fast_once() -> None:
    """The first start is from the pool, the second before the pool is full again is cold."""
    warm = StartUp(mean_s=10.0, warm=1, warm_s=1.0)
    run = simulate_fleet(load_of((5.5, 30), (5.6, 30), span_s=60.0), ONE, Wishes(counts=(2,)), initial=0, start_up=warm)
    assert run.late == 1
    assert run.warm_hours == pytest.approx(60 / 3600)


def test_start_ups_vary_around_their_mean() -> None:
    """The drawn start-ups have the stated mean and variation."""
    start_up, random = StartUp(mean_s=60.0, variation=0.5), np.random.default_rng(0)
    drawn = np.array([start_up.draw(random) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(60.0, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(0.5, rel=0.08)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 90), st.floats(0.01, 20)), min_size=1, max_size=60),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.integers(1, 3),
)
def test_no_request_is_lost_however_it_is_scaled(
    requests: list[tuple[float, float]], wishes: list[int], slots: int
) -> None:
    """Whatever is started and drained, each request is answered once replicas stay; hours never exceed the range's."""
    service = ScaledService(slots=slots, start_up_s=7.0, promise_s=2.0, most=5)
    run = simulate_fleet(load_of(*sorted(requests)), service, Wishes(counts=(*wishes, 1)), initial=1)
    assert run.lost == 0
    assert run.replica_hours <= 2 * 5 * 100 / 3600 + 1e-9  # draining ones are paid beside the new


@pytest.mark.parametrize("kind", ["waves", "spikes", "silent-nights"])
def test_the_clairvoyant_costs_no_more_than_a_number_that_keeps_all(kind: str) -> None:
    """The least fixed number without a late request costs at least as much."""
    service = ScaledService(slots=4, most=40)
    load = generated(kind, peak_slots=24, hours=1, seed=2)
    runs = (simulate_fleet(load, service, Fixed(service=service, count=n), initial=n) for n in range(3, 40))
    least: FleetRun = next(run for run in runs if run.late == 0)
    assert clairvoyant_hours(load, service) <= least.replica_hours


def test_the_clairvoyant_by_hand() -> None:
    """Two requests far apart: each pays its start-up; close together the replica stays."""
    assert clairvoyant_hours(load_of((20, 5), (80, 5)), ONE) == pytest.approx((10 + 5 + 10 + 5) / 3600)
    assert clairvoyant_hours(load_of((20, 5), (30, 5)), ONE) == pytest.approx((10 + 15) / 3600)
