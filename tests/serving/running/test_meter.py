"""What a service costs: dollars by machine-hours, set against what was answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.serving.running.meter import CostMeter, ReplicaCounts, ServiceCounts


def counted(requests: float | None = None, inputs: float | None = None, outputs: float | None = None) -> ServiceCounts:
    return ServiceCounts(requests=requests, input_tokens=inputs, output_tokens=outputs)


def test_an_hour_of_two_machines_at_a_known_price() -> None:
    """3 replicas, two on a machine, at $3 an hour: $6 an hour; 12,000 requests of 100 tokens: $0.50 per 1,000, $5 per
    million tokens."""
    meter = CostMeter(usd_per_machine_hour=3.0, replicas_per_machine=2)
    meter.tick(0.0, replicas=3, counts=counted(0, 0, 0))
    meter.tick(3600.0, replicas=3, counts=counted(12_000, 900_000, 300_000))
    assert (meter.machines, meter.usd_per_hour) == (2, 6.0)
    whole = meter.whole
    assert whole is not None
    assert (whole.usd, whole.usd_per_1000_requests, whole.usd_per_million_tokens) == (6.0, 0.5, 5.0)


def test_replicas_of_one_machine_share_its_price() -> None:
    """An hour with 3 replicas and one with none, of a machine at $2: it is held, and paid for, in both."""
    meter = CostMeter(usd_per_machine_hour=2.0, replicas_per_machine=None)
    meter.tick(0.0, replicas=3, counts=counted(0))
    assert (meter.machines, meter.usd_per_hour) == (1, 2.0)
    meter.tick(3600.0, replicas=0, counts=counted(8))
    meter.tick(7200.0, replicas=0, counts=counted(8))
    assert meter.whole is not None
    assert (meter.whole.usd, meter.whole.usd_per_1000_requests) == (4.0, 500.0)


def test_now_is_the_last_minute() -> None:
    """An idle hour makes the whole dear; the last minute is what it is."""
    meter = CostMeter(usd_per_machine_hour=6.0)
    for second in range(0, 3660, 10):
        meter.tick(float(second), replicas=1, counts=counted(max(second - 3590, 0)))
    now, whole = meter.now, meter.whole
    assert now is not None
    assert whole is not None
    assert now.seconds == 60.0
    assert now.requests == 60.0
    assert now.usd_per_1000_requests == pytest.approx(0.1 / 60.0 * 1000.0)
    assert whole.usd_per_1000_requests == pytest.approx(6.0 * 3650 / 3600 / 60.0 * 1000.0)


def test_a_machine_is_paid_until_it_is_given_back() -> None:
    """Two for an hour, then none for an hour: two machine-hours."""
    meter = CostMeter(usd_per_machine_hour=1.0)
    meter.tick(0.0, replicas=2, counts=counted(0))
    meter.tick(3600.0, replicas=0, counts=counted(0))
    meter.tick(7200.0, replicas=0, counts=counted(0))
    assert meter.whole is not None
    assert meter.whole.usd == 2.0
    assert meter.whole.usd_per_1000_requests is None  # nothing was answered: no price is one per request


def test_an_unknown_price_is_not_zero() -> None:
    """Requests are counted; dollars are None everywhere."""
    meter = CostMeter(usd_per_machine_hour=None)
    meter.tick(0.0, replicas=1, counts=counted(0))
    meter.tick(10.0, replicas=1, counts=counted(5))
    found = meter.document()
    assert found["usd_per_hour"] is None
    assert found["now"]["usd"] is None
    assert found["now"]["requests_per_s"] == 0.5
    assert {name for name, _, _ in meter.metrics()} == {"tonnage_service_machines"}


def test_tokens_that_an_engine_does_not_count_are_not_known() -> None:
    """A server of encoders counts no tokens: no price per million of them."""
    meter = CostMeter(usd_per_machine_hour=1.0)
    meter.tick(0.0, replicas=1, counts=counted(0))
    meter.tick(10.0, replicas=1, counts=counted(5))
    assert meter.now is not None
    assert meter.now.usd_per_million_tokens is None
    assert meter.now.usd_per_1000_requests is not None


def test_what_a_replica_counted_stays_when_it_goes() -> None:
    """r1 answered 10 and went; r2 answers 5: fifteen. One whose engine does not count makes the sum unknown."""
    counts = ReplicaCounts()
    counts.see("r1", counted(10, 100, 20))
    counts.see("r2", counted(4, 40, 8))
    counts.see("r2", counted(5, 50, 10))
    assert counts.total() == counted(15, 150, 30)
    assert counts.total(requests=17.0).requests == 17.0
    counts.see("r3", counted(1, None, None))
    assert counts.total() == counted(16, None, None)


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.integers(0, 5)), min_size=1, max_size=30))
def test_dollars_never_fall_and_are_those_of_machine_hours(steps: list[tuple[float, int]]) -> None:
    """Whatever comes and goes: the sum over spans of machines times hours."""
    meter, at, spent, before = CostMeter(usd_per_machine_hour=3600.0), 0.0, 0.0, 1
    meter.tick(0.0, replicas=1, counts=counted(0))
    for seconds, replicas in steps:
        at, spent = at + seconds, spent + before * seconds
        meter.tick(at, replicas=replicas, counts=counted(0))
        before = replicas
        assert meter.whole is not None
        assert meter.whole.usd == pytest.approx(spent)
