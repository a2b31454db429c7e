"""N items on k spot machines: the closed form against the queue simulated event by event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.planning.service.batch_queue import QueueJob, expected_queue, simulate_queue

TOLERANCE = 0.10
JOB = QueueJob(
    items=10_000, items_per_s=2.0, machines=4, usd_per_machine_hour=1.5, chunk_items=100, interruptions_per_hour=0.5
)


def random_job(seed: int) -> QueueJob:
    random = np.random.default_rng(seed)
    rate, machines = float(random.lognormal(0, 1)), int(random.integers(1, 33))
    items = int(rate * 3600 * machines * random.uniform(1, 10)) + 50 * machines
    return QueueJob(
        items=items, items_per_s=rate, machines=machines, usd_per_machine_hour=float(random.uniform(0.1, 30)),
        chunk_items=max(1, min(round(rate * random.uniform(60, 1200)), items // (8 * machines))),
        interruptions_per_hour=float(random.uniform(0, 1.5)), startup_s=float(random.uniform(30, 900)),
        item_failure=float(random.choice([0.0, 0.01, 0.1])),
    )  # fmt: skip


def test_closed_form_is_the_mean_of_simulated_queues() -> None:
    """On 60 random queues, finish and cost are within 10 % of the mean of 12 simulated runs; the median within 2 %."""
    errors = []
    for seed in range(60):
        job = random_job(seed)
        expected = expected_queue(job)
        runs = [simulate_queue(job, seed=100 * seed + number) for number in range(12)]
        errors.append(expected.finish_s.value / np.mean([run.finish_s.value for run in runs]) - 1.0)
        assert expected.usd.value / np.mean([run.usd.value for run in runs]) - 1.0 == pytest.approx(errors[-1])
    assert np.max(np.abs(errors)) <= TOLERANCE
    assert abs(float(np.median(errors))) <= 0.02


def test_the_interval_holds_most_runs() -> None:
    """About eight in ten simulated ends lie in the interval of interruptions."""
    job = replace(JOB, items=40_000)
    expected = expected_queue(job).finish_s
    inside = [expected.low <= simulate_queue(job, seed=s).finish_s.value <= expected.high for s in range(200)]
    assert 0.65 <= np.mean(inside) <= 0.92


def test_without_loss_or_failure_it_is_arithmetic() -> None:
    """No interruptions: start-up and the chunks, exactly, where they share evenly."""
    job = replace(JOB, interruptions_per_hour=0.0, machines=1)
    assert expected_queue(job).finish_s.value == pytest.approx(300.0 + 5_000.0)
    assert simulate_queue(job, seed=0).finish_s.value == pytest.approx(300.0 + 5_000.0)


def test_more_machines_end_sooner_and_cost_no_less() -> None:
    """Each start-up is paid: halving the time never halves the bill."""
    found = [expected_queue(replace(JOB, machines=count)) for count in (1, 2, 4, 8)]
    assert [one.finish_s.value for one in found] == sorted((one.finish_s.value for one in found), reverse=True)
    assert [one.usd.value for one in found] == sorted(one.usd.value for one in found)


def test_a_queue_that_never_ends_is_refused() -> None:
    """A chunk of days on machines lost by the minute is an error with a hint, not a number."""
    with pytest.raises(InputError) as raised:
        expected_queue(replace(JOB, chunk_items=10_000, items_per_s=0.001, interruptions_per_hour=30.0))
    assert "smaller chunks" in (raised.value.hint or "")
    for changes in ({"items": 0}, {"item_failure": 1.0}, {"items_per_s": float("nan")}):
        with pytest.raises(InputError):
            replace(JOB, **changes)  # type: ignore[arg-type]
