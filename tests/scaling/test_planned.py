"""The fleet of a plan under the control law: what it saves, when it must not, and that the fluid is no fiction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.scaling.one_fleet import fleet_by_the_law

from tonnage.scaling.fleet import simulate_fleet
from tonnage.scaling.law import control_law
from tonnage.scaling.load import KINDS, Load
from tonnage.scaling.planned import FleetNeed, fleet_place, long_enough, scaled_fleet, scaled_fleets
from tonnage.scaling.service import ScaledService
from tonnage.workload.file.traffic_checks import daily_wave
from tonnage.workload.jobs import Traffic

NEED = FleetNeed(busy_per_s=100.0, carries_per_s=29.0, used=0.7, machines=5, spare=0, start_up_s=300.0)


def test_a_daily_wave_takes_fewer_machine_hours_and_keeps_the_promise() -> None:
    found = scaled_fleet(daily_wave(10.0), NEED)
    needed = daily_wave(10.0).mean * 100.0 / 29.0 / 0.7 * 24.0  # machines as full as planned, no room for starting
    assert found.keeps
    assert needed < found.machine_hours_per_day < 0.8 * 120.0
    assert (found.least, found.most) == (1, 5)


@pytest.mark.parametrize("need", [NEED, replace(NEED, carries_per_s=11.0, machines=13)])
def test_a_law_that_is_asked_less_often_takes_no_more_machine_hours(
    need: FleetNeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = scaled_fleet(daily_wave(10.0), need)
    monkeypatch.setattr("tonnage.scaling.planned.DAY_DECISIONS", 1200)
    fleet_place.cache_clear()
    often = scaled_fleet(daily_wave(10.0), need)
    fleet_place.cache_clear()
    assert quick.machine_hours_per_day == pytest.approx(often.machine_hours_per_day, rel=0.02)


def test_the_same_input_gives_the_same_figures() -> None:
    first = scaled_fleet(daily_wave(3.0), NEED)
    fleet_place.cache_clear()
    assert scaled_fleet(daily_wave(3.0), NEED) == first


COURSES = {
    "wave": daily_wave(10.0),
    "half a day without a request": Traffic(shares=(0.0, 1.0) * 12, step_s=3600.0, repeats=True, source="gaps"),
    "bursts of a trace": Traffic(
        shares=tuple(4.0 if at % 300 < 30 else 0.4 for at in range(9000)), step_s=0.7, repeats=False, source="bursts"
    ),
}


@pytest.mark.parametrize("course", COURSES)
def test_fleets_that_are_simulated_at_once_are_those_of_the_law(course: str) -> None:
    """Bit for bit, whatever lies beside a fleet: small and large ones, with spare machines, quick and slow to start."""
    needs = [
        FleetNeed(busy_per_s=busy, carries_per_s=busy / used / working * 1.01, used=used, machines=working + spare,
                  spare=spare, start_up_s=start_up_s)
        for busy, used, working, spare, start_up_s in (
            (100.0, 0.7, 2, 0, 300.0), (100.0, 0.7, 5, 1, 300.0), (3.0, 0.83, 3, 0, 300.0), (100.0, 0.5, 19, 0, 300.0),
            (777.7, 0.7, 90, 2, 300.0), (100.0, 0.7, 5, 0, 60.0), (100.0, 0.83, 7, 0, 1800.0),
        )
    ]  # fmt: skip
    fleet_place.cache_clear()
    together = scaled_fleets(COURSES[course], needs)
    assert list(together) == [fleet_by_the_law(COURSES[course], need) for need in needs]
    assert len({fleet.machine_hours_per_day for fleet in together}) > 4


def test_a_fleet_that_is_known_is_not_simulated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slider that leaves the rate alone asks for the same fleets."""
    known = scaled_fleet(daily_wave(4.0), NEED)
    monkeypatch.setattr("tonnage.scaling.planned.run_fleets", None)
    assert scaled_fleets(daily_wave(4.0), (NEED, NEED)) == (known, known)


def test_spare_machines_are_held_all_day() -> None:
    found = scaled_fleet(daily_wave(10.0), replace(NEED, machines=6, spare=1))
    alone = scaled_fleet(daily_wave(10.0), NEED)
    assert found.machine_hours_per_day == alone.machine_hours_per_day + 24.0
    assert (found.least, found.most) == (alone.least + 1, alone.most + 1)


def test_bursts_shorter_than_a_start_are_not_chased() -> None:
    shares = tuple(4.0 if second % 300 < 30 else 0.4 for second in range(3600))
    found = scaled_fleet(Traffic(shares=shares, step_s=1.0, repeats=False, source="bursts"), NEED)
    assert not found.keeps or found.machine_hours_per_day >= 0.99 * 120.0


def test_large_fleets_come_and_go_in_groups() -> None:
    found = scaled_fleet(daily_wave(10.0), replace(NEED, carries_per_s=1.0, machines=143))
    assert found.keeps
    assert 0.5 * 143 * 24 < found.machine_hours_per_day < 143 * 24
    assert found.most <= 143


def test_a_trace_of_a_few_starts_says_nothing() -> None:
    trace = Traffic(shares=(1.0,) * 600, step_s=1.0, repeats=False, source="trace")
    assert not long_enough(trace, 300.0)
    assert long_enough(trace, 30.0)
    assert long_enough(daily_wave(2.0), 3600.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["waves", "daily", "ramps", "steady"])
def test_the_fluid_takes_the_machine_hours_of_single_requests(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.scaling.planned.TRACE_DECISIONS", 7200)
    random, seconds = np.random.default_rng(3), np.arange(4 * 3600.0)
    shares = KINDS[kind](seconds, random)
    need = FleetNeed(busy_per_s=24.0, carries_per_s=4.0, used=0.8, machines=8, spare=0, start_up_s=60.0)
    fluid = scaled_fleet(Traffic(shares=tuple(shares.tolist()), step_s=1.0, repeats=False, source=kind), need)
    counts = random.poisson(shares * need.busy_per_s)
    at_s = np.sort(np.repeat(seconds, counts) + random.random(counts.sum()))
    slots, held_s = 24, 6.0  # as the fluid has them: a tenth of a start-up
    load = Load(name=kind, at_s=at_s, service_s=np.full(len(at_s), held_s), span_s=4 * 3600.0)
    told = ScaledService(slots=19, start_up_s=60.0, promise_s=held_s * 0.25, least=1, most=8)
    of = ScaledService(slots=slots, start_up_s=60.0, promise_s=0.0, least=1, most=8)
    run = simulate_fleet(load, of, control_law(told), initial=8, judged_from_s=7200.0)
    assert fluid.machine_hours_per_day == pytest.approx(run.replica_hours * 12.0, rel=0.06)
    assert fluid.kept_fraction == pytest.approx(run.kept_fraction, abs=2e-3)
