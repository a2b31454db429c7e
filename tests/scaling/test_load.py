"""Loads: scaled and generated as stated; schedules; bad input."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.scaling.load import KINDS, Load, ServiceTimes, generated, load_of_trace, scaled, with_wave
from tonnage.scaling.service import Hours, WeekSchedule, parse_hours
from tonnage.sizing.traces import parse_trace

TRACE = parse_trace(["arrived_at,num_prefill_tokens,num_decode_tokens", "0,1000,10", "5,2000,0", "9,500,100"])


def test_service_times_come_from_tokens() -> None:
    """Prompt tokens over their rate plus the time of each answer token."""
    load = load_of_trace(TRACE, ServiceTimes(prefill_tokens_per_s=1000, decode_s_per_token=0.1))
    assert load.service_s.tolist() == pytest.approx([2.0, 2.0, 10.5])
    assert load.span_s == 9.0


def test_scaling_keeps_course_and_work() -> None:
    """Eight times the requests, the same mean service time, each at most the jitter later; 1 changes nothing."""
    load = load_of_trace(TRACE, ServiceTimes())
    more = scaled(load, 8, seed=0, jitter_s=0.5)
    assert len(more) == 24
    assert more.service_s.mean() == pytest.approx(load.service_s.mean())
    assert np.all(np.diff(more.at_s) >= 0)
    assert scaled(load, 1, seed=0) is load
    assert len(scaled(more, 0.5, seed=1)) < 24


def test_a_wave_thins_its_troughs() -> None:
    """Troughs at whole periods keep (1 - depth) / (1 + depth) of what crests keep."""
    flat = generated("steady", hours=4, seed=0)
    wave = with_wave(flat, seed=0, period_s=1200.0, depth=0.5)
    phase = wave.at_s % 1200.0
    trough, crest = np.sum((phase < 100) | (phase > 1100)), np.sum(np.abs(phase - 600) < 100)
    assert trough / crest == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_loads_are_as_stated(kind: str) -> None:
    """In order, inside the span, with the stated mean service time; the same seed gives the same load."""
    load = generated(kind, peak_slots=64, hours=2, service_s=3.0, seed=1)
    again = generated(kind, peak_slots=64, hours=2, service_s=3.0, seed=1)
    assert np.array_equal(load.at_s, again.at_s)
    assert np.all(np.diff(load.at_s) >= 0)
    assert load.at_s[-1] <= load.span_s == 7200.0
    assert load.service_s.mean() == pytest.approx(3.0, rel=0.05)
    assert 0 < load.mean_slots <= 64


def test_what_is_no_load_is_refused() -> None:
    """Unknown kinds, empty and endless loads, factors below 0."""
    for wrong in (
        lambda: generated("storm", seed=0),
        lambda: generated("steady", peak_slots=1e7, hours=48, seed=0),
        lambda: generated("steady", hours=float("nan"), seed=0),
        lambda: Load(name="none", at_s=np.array([]), service_s=np.array([]), span_s=1.0),
        lambda: scaled(load_of_trace(TRACE, ServiceTimes()), -1, seed=0),
        lambda: ServiceTimes(decode_s_per_token=0.0),
        lambda: with_wave(load_of_trace(TRACE, ServiceTimes()), seed=0, depth=2.0),
    ):
        with pytest.raises(InputError):
            wrong()


def test_hours_of_the_week() -> None:
    """Hours over midnight belong to the day on which they begin; of several the highest counts."""
    nights = parse_hours("mon-fri:22-6=1")
    schedule = WeekSchedule(hours=(nights, Hours(begin_h=8, end_h=20, least=4), parse_hours("sat:9-10=7")))
    hour = 3600.0
    assert schedule.least_at(23 * hour, 0) == 1  # Monday night
    assert schedule.least_at(29 * hour, 0) == 1  # Tuesday, 5:00
    assert schedule.least_at(5 * hour, 0) == 0  # Monday, 5:00: Sunday's night is not named
    assert schedule.least_at((5 * 24 + 9.5) * hour, 0) == 7
    assert schedule.least_at(21 * hour, 2) == 2


@pytest.mark.parametrize("text", ["", "8-20", "20=4", "mon-xyz:8-20=1", "8-25=1", "8-8=1", "1.2.3-4=1"])
def test_what_are_no_hours_is_refused(text: str) -> None:
    """The hint shows how they are written."""
    with pytest.raises(InputError):
        parse_hours(text)
