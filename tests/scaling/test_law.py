"""The control law: within its range, never fewer for more work, holding where bursts are short, from and to zero."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.scaling.fleet import simulate_fleet
from tonnage.scaling.law import LawState, control_law
from tonnage.scaling.load import generated
from tonnage.scaling.reasons import HoldsFloor, Idle, Scheduled
from tonnage.scaling.rivals import Fixed
from tonnage.scaling.service import Hours, Observation, ScaledService, WeekSchedule

SMALL = ScaledService(slots=4, start_up_s=20.0, promise_s=1.0, least=1, most=6)
QUIET = Observation(arrived=0, finished=0, finished_work_s=0.0, waiting=0, running=0, ready=1, starting=0)
counts = st.integers(min_value=0, max_value=500)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    finished = draw(counts)
    return Observation(
        arrived=draw(counts), finished=finished, finished_work_s=finished * draw(st.floats(0.01, 30.0)),
        waiting=draw(counts), running=draw(counts), ready=draw(st.integers(0, 6)), starting=draw(st.integers(0, 6)),
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(observations(), min_size=1, max_size=40))
def test_the_number_stays_in_its_range(seen: list[Observation]) -> None:
    """Never fewer than the least, never more than the most, whatever is seen."""
    law = control_law(SMALL)
    state = law.begin()
    for place, one in enumerate(seen):
        state, wanted, _ = law.decide(state, one, place * law.interval_s)
        assert SMALL.least <= wanted <= SMALL.most


@settings(max_examples=30, deadline=None)
@given(st.lists(observations(), max_size=20), observations(), st.integers(1, 200))
def test_more_waiting_never_wants_fewer(past: list[Observation], now: Observation, more: int) -> None:
    """The same past, the same moment, a longer queue: at least as many replicas."""
    law = control_law(SMALL)
    state = law.begin()
    for place, one in enumerate(past):
        state, _, _ = law.decide(state, one, place * law.interval_s)
    at_s = len(past) * law.interval_s
    _, few, _ = law.decide(state, now, at_s)
    _, many, _ = law.decide(state, replace(now, waiting=now.waiting + more), at_s)
    assert many >= few


def test_a_decision_leaves_the_state_as_it_was() -> None:
    """`decide` is pure: the same state and the same sight give the same answer twice."""
    law = control_law(SMALL)
    busy = replace(QUIET, arrived=30, finished=10, finished_work_s=20.0, waiting=9, running=4)
    state, _, _ = law.decide(law.begin(), busy, 0.0)
    first, second = law.decide(state, busy, 1.0), law.decide(state, busy, 1.0)
    assert first[1:] == second[1:]
    assert isinstance(first[0], LawState)


def test_it_goes_to_zero_and_comes_back() -> None:
    """Silence for as long as stated stops all replicas, one waiting request starts some."""
    law = control_law(replace(SMALL, least=0, to_zero_after_s=60.0))
    state, wanted = law.begin(), 1
    busy = replace(QUIET, arrived=8, finished=8, finished_work_s=8.0, running=4)
    for place in range(60):
        state, wanted, _ = law.decide(state, busy, place * law.interval_s)
    assert wanted >= 2
    for place in range(60, 160):
        state, wanted, why = law.decide(state, replace(QUIET, ready=wanted), place * law.interval_s)
    assert wanted == 0
    assert isinstance(why, Idle)
    _, wanted, reason = law.decide(state, replace(QUIET, arrived=1, waiting=1, ready=0), 161 * law.interval_s)
    assert wanted >= 1
    assert not isinstance(reason, Idle)


def test_a_schedule_raises_the_least() -> None:
    """During its hours at least so many replicas run, and the reason says so."""
    law = control_law(SMALL, WeekSchedule(hours=(Hours(begin_h=0, end_h=1, least=3),)))
    state, wanted, reason = law.decide(law.begin(), QUIET, 0.0)
    assert (wanted, reason) == (3, Scheduled(least=3, most=6))
    assert law.decide(state, QUIET, 3600.0)[1] == 1


def test_bursts_shorter_than_a_start_up_are_held_for() -> None:
    """Spikes of 10 to 30 s, replicas that take 60 s: the law holds as many as the best fixed number, or one more."""
    service = ScaledService(slots=4, most=10)
    load = generated("spikes", peak_slots=24, hours=1.5, seed=5)
    run = simulate_fleet(load, service, control_law(service), initial=6, judged_from_s=2700.0)
    fixed = simulate_fleet(load, service, Fixed(service=service, count=7), initial=7, judged_from_s=2700.0)
    fewer = simulate_fleet(load, service, Fixed(service=service, count=6), initial=6, judged_from_s=2700.0)
    assert run.kept_fraction >= 0.99
    assert run.replica_hours < fixed.replica_hours + 0.75  # the judged part is three quarters of an hour
    assert fewer.kept_fraction < 0.99  # seven is the least fixed number
    assert any(isinstance(change.reason, HoldsFloor) for change in run.changes)


def test_a_service_says_what_is_wrong_with_it() -> None:
    """Ranges that are none are refused."""
    for wrong in ({"least": 3, "most": 2}, {"most": 0}, {"slots": 0}, {"promise_s": -1.0}, {"promised_fraction": 1.0}):
        with pytest.raises(InputError):
            ScaledService(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="below 0"):
        replace(QUIET, waiting=-1)


def test_a_service_started_under_load_lets_go_when_the_load_does() -> None:
    """25 replicas' load from the first second, an hour later a tenth of it: what was late while the first replicas
    started is no rule's fault, so rules that follow the load are not refused for hours."""
    service = ScaledService(slots=16, start_up_s=60.0, promise_s=2.0, least=1, most=40)
    law, request_s = control_law(service), 10.0
    state, ready, inside, now, wanted = law.begin(), 1, 0.0, 0.0, 1
    starting: list[float] = []
    while now < 5400.0:
        now += law.interval_s
        while starting and starting[0] <= now:
            starting.pop(0)
            ready += 1
        arrived = (40.0 if now < 3600.0 else 4.0) * law.interval_s
        finished = min(inside, ready * service.slots) * law.interval_s / request_s
        inside += arrived - finished
        waiting = max(inside - ready * service.slots, 0.0)
        seen = Observation(
            arrived=round(arrived), finished=round(finished), finished_work_s=round(finished) * request_s,
            waiting=round(waiting), running=round(inside - waiting), ready=ready, starting=len(starting),
            late=round(arrived) if waiting else 0,
        )  # fmt: skip
        state, wanted, _ = law.decide(state, seen, now)
        starting += [now + service.start_up_s] * (wanted - ready - len(starting))
        while wanted < ready + len(starting):
            if starting:
                starting.pop()
            else:
                ready -= 1
    assert wanted <= 4
