"""Arrivals and lengths: means, spreads, seeds, traces and their errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tonnage.errors import InputError, WorkloadError
from tonnage.sizing.arrivals import (
    Arrivals,
    Bursty,
    ClosedLoop,
    Deterministic,
    FixedLengths,
    Poisson,
    Process,
    SpreadLengths,
    TraceLengths,
    TraceReplay,
)
from tonnage.sizing.traces import load_trace, parse_trace
from tonnage.workload.jobs import Lengths, Requests

SAMPLE = Path(__file__).parent.parent / "data" / "request_trace.csv"
HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"
ALIKE = FixedLengths(input_tokens=100, output_tokens=10)


@pytest.mark.parametrize(
    ("process", "variation"),
    [(Poisson(rate_per_s=4.0), 1.0), (Bursty(rate_per_s=4.0, variation=3.0), 3.0), (Deterministic(rate_per_s=4.0), 0.0),
     (Bursty(rate_per_s=4.0, variation=0.5), 0.5)],
)  # fmt: skip
def test_rate_and_spread_are_those_asked_for(process: Process, variation: float) -> None:
    """Mean rate within 5 % and coefficient of variation of the gaps within 5 % of what was asked, over 40,000 gaps."""
    gaps = np.diff(Arrivals(process=process, lengths=ALIKE, requests=40_000).draw(1).at_s)
    assert 1.0 / gaps.mean() == pytest.approx(4.0, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-9)


def test_same_seed_same_requests_another_seed_others() -> None:
    """A stream is a function of its seed."""
    traffic = Arrivals(process=Poisson(rate_per_s=2.0), lengths=ALIKE, requests=50)
    assert (traffic.draw(3).at_s == traffic.draw(3).at_s).all()
    assert (traffic.draw(3).at_s != traffic.draw(4).at_s).all()


def test_loads_compared_under_one_seed_see_the_same_requests() -> None:
    """At twice the rate the same lengths arrive in the same order, twice as fast."""
    requests = Requests(input_tokens=Lengths(mean=100, maximum=900), output_tokens=Lengths(mean=50, maximum=300))
    slow, fast = (
        Arrivals(process=Poisson(rate_per_s=rate), lengths=SpreadLengths(requests=requests), requests=200).draw(5)
        for rate in (1.0, 2.0)
    )
    assert slow.at_s == pytest.approx(2.0 * fast.at_s)
    assert (slow.input_tokens == fast.input_tokens).all()
    assert (slow.output_tokens == fast.output_tokens).all()


@pytest.mark.parametrize(("mean", "maximum"), [(100, 100), (200, 400), (512, 4096), (211, 1000)])
def test_spread_lengths_keep_mean_and_maximum(mean: int, maximum: int) -> None:
    """Mean within 3 % of the stated one, nothing above the maximum, 0.03 to 0.5 % at it (where the two differ)."""
    requests = Requests(input_tokens=Lengths(mean=mean, maximum=maximum), output_tokens=None)
    drawn = Arrivals(process=Poisson(rate_per_s=1), lengths=SpreadLengths(requests=requests), requests=40_000).draw(0)
    assert drawn.input_tokens.mean() == pytest.approx(mean, rel=0.03)
    assert drawn.input_tokens.max() == maximum
    assert (drawn.output_tokens == 0).all()
    if maximum > mean:
        assert 0.0003 < (drawn.input_tokens == maximum).mean() < 0.005


def test_a_trace_is_replayed_as_it_was_and_scaled() -> None:
    """Arrivals and lengths are the file's; at speed 2 the gaps halve."""
    trace = load_trace(SAMPLE)
    once, twice = (Arrivals(process=TraceReplay(trace=trace, speed=speed)).draw(0) for speed in (1.0, 2.0))
    assert len(once) == len(trace) == 200
    assert once.at_s[0] == 0.0
    assert once.at_s == pytest.approx(2.0 * twice.at_s)
    assert (once.input_tokens == trace.input_tokens).all()


def test_lengths_drawn_from_a_trace_stay_pairs() -> None:
    """Every drawn (prompt, answer) pair stands in the trace."""
    trace = load_trace(SAMPLE)
    drawn = Arrivals(process=Poisson(rate_per_s=1), lengths=TraceLengths(trace=trace), requests=300).draw(2)
    known = set(zip(trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert set(zip(drawn.input_tokens.tolist(), drawn.output_tokens.tolist(), strict=True)) <= known


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a,b", "1,2"], "no column arrived_at, num_prefill_tokens, num_decode_tokens"),
        ([HEADER], "no requests"),
        ([HEADER, "0,5,1", "1,x,1"], "t.csv:3: `num_prefill_tokens`: 'x' is not a number of at least 1"),
        ([HEADER, "0,5,-1"], "t.csv:2: `num_decode_tokens`: '-1' is not"),
        ([HEADER, "0,5,1", "nan,5,1"], "t.csv:3: `arrived_at`"),
        ([HEADER, "3,5,1", "2,5,1"], "request 2 arrives before the one above it"),
        ([HEADER, "0,5"], "t.csv:2: `num_decode_tokens`: None is not"),
    ],
)
def test_a_malformed_trace_is_named(lines: list[str], said: str) -> None:
    """File, line and column of the first thing wrong."""
    with pytest.raises(WorkloadError) as raised:
        parse_trace(lines, name="t.csv")
    assert said in str(raised.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    """A path without a file is an input error, not a traceback."""
    with pytest.raises(WorkloadError, match="cannot be read"):
        load_trace(tmp_path / "none.csv")


@pytest.mark.parametrize(
    "traffic",
    [
        Arrivals(process=Poisson(rate_per_s=0.0), lengths=ALIKE, requests=5),
        Arrivals(process=Poisson(rate_per_s=float("nan")), lengths=ALIKE, requests=5),
        Arrivals(process=Bursty(rate_per_s=1.0, variation=-1.0), lengths=ALIKE, requests=5),
        Arrivals(process=Poisson(rate_per_s=1.0), lengths=ALIKE),
        Arrivals(process=Poisson(rate_per_s=1.0), requests=5),
        Arrivals(process=Poisson(rate_per_s=1.0), lengths=ALIKE, requests=0),
        Arrivals(process=ClosedLoop(users=0), lengths=ALIKE, requests=5),
        Arrivals(process=TraceReplay(trace=load_trace(SAMPLE)), requests=201),
        Arrivals(process=TraceReplay(trace=load_trace(SAMPLE), speed=0.0)),
    ],
)
def test_traffic_that_means_nothing_is_refused(traffic: Arrivals) -> None:
    """No rate, no count, no lengths, no users, more requests than the trace has: an input error."""
    with pytest.raises(InputError):
        traffic.draw(0)
