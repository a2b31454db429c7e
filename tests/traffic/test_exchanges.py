"""The figures of a run: percentiles, goodput, faults, lateness that voids it; the search for capacity."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.calibration.columns import INFERENCE_COLUMNS
from tonnage.traffic.bench import CapacitySearch
from tonnage.traffic.exchanges import Exchange, LatencyPromise, LoadResult, summarise
from tonnage.traffic.measured_rows import MeasuredService, inference_rows
from tonnage.workload.known import find_model

SERVICE = MeasuredService(
    model="llama3.1-8b", shape=find_model("llama3.1-8b"), generates=True, gpu="H100-SXM", gpus=1, tensor_parallel=1,
    engine="vllm", precision="bf16", weights="",
)  # fmt: skip


def steady(count: int = 100, *, latency_s: float = 0.2, late_s: float = 0.0, faults: int = 0) -> list[Exchange]:
    """One request every 0.1 s; the first `faults` of them without an answer."""
    return [
        Exchange(
            due_s=0.1 * number, late_s=late_s, latency_s=latency_s, fault="timeout" if number < faults else "",
            ttft_s=0.05, tpot_s=0.01, input_tokens=100, output_tokens=16,
        )
        for number in range(count)
    ]  # fmt: skip


def summed(exchanges: list[Exchange], promise: LatencyPromise | None = None, warm_up_s: float = 0.0) -> LoadResult:
    return summarise(exchanges, promise or LatencyPromise(), sending_s=10.0, warm_up_s=warm_up_s)


def test_rates_count_what_was_answered_in_the_window() -> None:
    """10 requests a second of 16 tokens, of which the last two end after the window; warm-up is left out."""
    found = summed(steady(), warm_up_s=5.0)
    assert (found.sent_in_all, found.sent) == (100, 50)
    assert found.offered_per_s == pytest.approx(10.0)
    assert found.requests_per_s == pytest.approx(10.0)  # two of the warm-up end inside, two of the window after it
    assert found.output_tokens_per_s == pytest.approx(160.0)
    assert found.in_flight == pytest.approx(2.0)  # Little: 10 a second, 0.2 s each


@pytest.mark.parametrize(("faults", "holds"), [(0, True), (4, True), (6, False)])
def test_what_got_no_answer_breaks_the_promise(faults: int, holds: bool) -> None:
    """Over 5 % without an answer and the 95th percentile is infinite, however fast the others are."""
    found = summed(steady(faults=faults), LatencyPromise(latency_s=0.3))
    assert found.holds is holds
    assert found.kept_fraction == pytest.approx(1.0 - faults / 100)
    assert found.faults == ((("timeout", faults),) if faults else ())


def test_a_limit_that_is_exceeded_is_named() -> None:
    """Only the figure over its limit; goodput counts the requests that kept all."""
    slow = [replace(one, ttft_s=0.5) for one in steady()[:10]] + steady()[10:]
    found = summed(slow, LatencyPromise(ttft_s=0.1, tpot_s=0.02, latency_s=1.0))
    assert found.broken == ("ttft_s",)
    assert found.goodput_per_s == pytest.approx(9.0)


def test_a_late_client_voids_its_run() -> None:
    """Lateness of a twentieth of the requests over 10 ms (or a tenth of the median latency) is the client's fault."""
    assert summed(steady(late_s=0.001)).void == ""
    assert "21.0 ms late" in summed(steady(late_s=0.021)).void
    assert summed(steady(latency_s=2.0, late_s=0.021)).void == ""
    tail = [replace(one, late_s=0.1) for one in steady()[:3]] + steady()[3:]
    assert (summed(tail).void, summed(tail).tail_is_late) == ("", True)
    with pytest.raises(ValueError, match="after the warm-up"):
        summed(steady(), warm_up_s=100.0)


def test_rows_are_read_back_as_predictions_read_them(tmp_path: Path) -> None:
    """The note's rate and the lengths are what the reader of measured rows takes; shapes come along."""
    from tonnage.api import load_catalog
    from tonnage.calibration.inference_reading import InferenceCase, read_case
    from tonnage.calibration.kinds import kind_named, rows_to_fit
    from tonnage.reports.plain import dump_csv

    rows = inference_rows(summed(steady()), SERVICE, datetime(2026, 11, 23, tzinfo=UTC))
    assert {row["metric"] for row in rows} >= {"ttft_ms", "tpot_ms", "latency_ms_p95", "output_tokens_per_s"}
    file = tmp_path / "rows.csv"
    file.write_text(dump_csv(INFERENCE_COLUMNS, [[row[name] for name in INFERENCE_COLUMNS] for row in rows]))
    catalog = load_catalog()
    cases = [read_case(row, catalog) for row in rows_to_fit(kind_named("inference"), file, catalog)[0]]
    first = cases[0]
    assert isinstance(first, InferenceCase)
    assert (first.load, first.rate_per_s, first.prompts, first.input_tokens) == ("served", 10.0, 100, 100.0)


def test_a_void_run_gives_no_rows() -> None:
    """Nor does one without answers; where only the tail was late, 99th percentiles are left out."""
    when = datetime(2026, 11, 23, tzinfo=UTC)
    assert inference_rows(summed(steady(late_s=0.5)), SERVICE, when) == []
    assert inference_rows(summed(steady(faults=100)), SERVICE, when) == []
    tail = [replace(one, late_s=0.1) for one in steady()[:3]] + steady()[3:]
    assert not [row for row in inference_rows(summed(tail), SERVICE, when) if row["metric"].endswith("p99")]


@pytest.mark.parametrize("limit", [0.3, 7.0, 63.0, 900.0])
def test_the_search_ends_within_five_percent_of_the_limit(limit: float) -> None:
    """A service that holds below a rate and breaks above it, from a first guess far off."""
    search = CapacitySearch(10.0)
    held = summed(steady(), LatencyPromise(latency_s=1.0))
    broken = summed(steady(), LatencyPromise(latency_s=0.1))
    while (rate := search.next_rate()) is not None:
        search.note(rate, held if rate <= limit else broken)
    found = search.found()
    assert found.held_per_s is not None
    assert found.held_per_s <= limit < found.held_per_s * 1.06
    assert not found.client_bound


def test_a_client_that_cannot_offer_more_ends_the_search() -> None:
    """Void trials bound the search from above, and it says so."""
    search = CapacitySearch(10.0)
    while (rate := search.next_rate()) is not None:
        search.note(rate, summed(steady(late_s=0.0 if rate < 100 else 0.5), LatencyPromise(latency_s=1.0)))
    assert search.found().client_bound


def test_a_promise_that_was_never_measured_is_not_kept() -> None:
    """Without a stream the first token is seen at the end; without counted tokens nobody knows the time per token."""
    unseen = [replace(one, ttft_s=None, tpot_s=None, latency_s=5.0, output_tokens=None) for one in steady()]
    assert summed(unseen, LatencyPromise(ttft_s=0.1)).broken == ("ttft_s",)
    assert summed(unseen, LatencyPromise(tpot_s=0.1)).broken == ("tpot_s",)
    one_token = [replace(one, tpot_s=None, output_tokens=1) for one in steady()]
    assert summed(one_token, LatencyPromise(tpot_s=0.1)).holds is True
