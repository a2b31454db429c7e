"""Two rates of one run: in steps, and by the clock."""

from __future__ import annotations

import pytest

from tonnage.recipes import timing
from tonnage.recipes.timing import StepTimes


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timing, "time", found)
    return found


class Event:
    """As `torch.cuda.Event`, on the test's clock."""

    def __init__(self, clock: Clock) -> None:
        self.at = clock.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return 1000 * (end.at - self.at)


def take(times: StepTimes, clock: Clock, *, wait_s: float, step_s: float) -> None:
    clock.now += wait_s
    times.begin()
    clock.now += step_s
    times.end(data_wait_s=wait_s, samples=8, tokens=0)


def test_a_save_between_steps_is_in_one_rate_and_not_in_the_other(clock: Clock) -> None:
    """Steps of 1 s with 8 samples; each waits 1 s for data, and one save takes 4 s: 8 a second, and 32 in 12 s."""
    times = StepTimes(on_gpu=False)
    take(times, clock, wait_s=1.0, step_s=5.0)  # warm-up
    times.close_window()
    for number in range(4):
        take(times, clock, wait_s=1.0, step_s=1.0)
        clock.now += 4.0 if number == 1 else 0.0
    times.close_window()
    figures = times.figures()
    assert figures["samples_per_s"] == pytest.approx(8.0)
    assert figures["clock_samples_per_s"] == pytest.approx(32 / 12)
    assert figures["data_wait_fraction"] == pytest.approx(1.0)


def test_on_a_gpu_a_step_lasts_to_the_end_of_the_next(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device waits 1 s for its host between steps of 1 s: a step takes 2 s; a checkpoint of 50 s is no step."""
    times = StepTimes(on_gpu=True)
    monkeypatch.setattr(times, "_now", lambda: Event(clock))
    for _ in range(3):
        take(times, clock, wait_s=1.0, step_s=1.0)
    clock.now += 50.0
    times.interrupt()
    take(times, clock, wait_s=1.0, step_s=1.0)
    times.close_window()
    assert [step[0] for step in times.done] == pytest.approx([2.0, 2.0, 1.0])
