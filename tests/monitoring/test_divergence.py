"""Why a run is slower than predicted: what the alert's window shows, and nothing that it does not."""

from __future__ import annotations

import pytest

from tonnage.monitoring.alerts.windows import RecentFigures
from tonnage.monitoring.divergence import UNEXPLAINED, likely_reason
from tonnage.monitoring.figures import SeriesKey, series

RUN = {"run": "one"}
HEALTHY = {
    "run_step_seconds": 1.0, "run_data_wait_seconds": 0.01, "machine_cpu_ratio": 0.5, "run_cpu_ratio": 0.48,
    "machine_memory_available_bytes": 50e9, "machine_memory_total_bytes": 100e9,
}  # fmt: skip


def reason(changed: dict[str, float], *, more: dict[SeriesKey, tuple[int, float]] | None = None) -> str:
    """Of a minute of rounds, ten seconds apart; `more`: series that are there in so many of the last rounds."""
    recent = RecentFigures(keep_s=60.0, every_s=10.0)
    for number in range(7):
        figures = {series(f"tonnage_{name}", RUN): value for name, value in (HEALTHY | changed).items()}
        figures[series("tonnage_run_allocation_retries_total", RUN)] = changed.get("retries", 0.0) * number
        for key, (rounds, value) in (more or {}).items():
            if number >= 7 - rounds:
                figures[key] = value
        recent.add(number * 10.0, figures)
    return likely_reason("one", recent, 60.0, 60.0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"run_data_wait_seconds": 0.4}, "40 % of the step time was waiting for data"),
        ({"run_cpu_ratio": 0.1}, "other programs took 40 % of the processors"),
        ({"machine_memory_available_bytes": 2e9}, "2 % of the machine's memory was available"),
        ({"retries": 1.0}, "memory was short: the allocator gave back what it kept 6 times"),
        ({}, UNEXPLAINED),
    ],
)
def test_each_reason_is_named_alone_with_its_figure(changed: dict[str, float], words: str) -> None:
    """What is healthy is not named."""
    assert reason(changed) == words


def test_clocks_are_named_where_they_were_held_most_of_the_time_and_of_this_run() -> None:
    """A moment is none; another run's GPU is not this one's."""
    own = series("tonnage_gpu_throttled", {**RUN, "gpu": "0", "reason": "temperature"})
    other = series("tonnage_gpu_throttled", {"run": "two", "gpu": "0", "reason": "temperature"})
    assert reason({}, more={own: (7, 1.0)}) == "a GPU's clocks were held back (temperature)"
    assert reason({}, more={own: (1, 1.0)}) == UNEXPLAINED
    assert reason({}, more={other: (7, 1.0)}) == UNEXPLAINED


def test_several_reasons_are_all_named() -> None:
    """Which of them weighs most is not known."""
    found = reason({"run_data_wait_seconds": 0.2, "run_cpu_ratio": 0.2})
    assert found == "20 % of the step time was waiting for data; other programs took 30 % of the processors"
