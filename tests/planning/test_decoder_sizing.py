"""Services and batches of generating models: promises, forced layouts, the load that replicas really get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.catalog import load_catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.batch_sizing import size_batch
from tonnage.planning.layouts.serve_sizing import size_service
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import SetField
from tonnage.planning.reasons.misses import ConcurrencyMiss, ReplicasMiss
from tonnage.planning.reasons.notes import LoadNote
from tonnage.planning.reasons.risks import LatencyRisk
from tonnage.planning.risks import _promise_risks
from tonnage.planning.sized import Sized
from tonnage.sizing.devices import Machine
from tonnage.workload.jobs import NO_LIMIT, BatchJob, Constraints, Lengths, Requests, ServeJob
from tonnage.workload.known import find_model

from .conftest import serve

CATALOG, CALIBRATED = load_catalog(), CalibratedModel.packaged()
H100 = Machine(
    accelerator=CATALOG.accelerator("H100-SXM"), count=1, intra=None, network_gb_per_s=None, network_latency_us=40.0
)
CHAT = Requests(input_tokens=Lengths(mean=500, maximum=2000), output_tokens=Lengths(mean=200, maximum=800))
SERVICE = ServeJob(model=find_model("llama-3.1-8b"), requests=CHAT, rate_per_s=40.0, weights="bf16")
BATCH = BatchJob(model=find_model("llama-3.1-8b"), requests=CHAT, items=10_000, weights="bf16")


def served(job: ServeJob) -> Sized:
    return size_service(job, [H100], Constraints(max_nodes=NO_LIMIT), CALIBRATED)


def shown(job: ServeJob) -> RunDetail:
    return served(job).detail(0)


def percentile(run: RunDetail, of: str, name: str) -> float:
    return dict(dict(run.percentiles)[of])[name]


@pytest.mark.parametrize(
    ("promise", "of", "seconds"),
    [
        ({"p95_ttft_s": 0.12}, "ttft", 0.12),
        ({"p95_tpot_s": 0.02}, "tpot", 0.02),
        ({"p95_latency_s": 5.0}, "latency", 5.0),
    ],
)
def test_each_promise_holds_alone_and_is_shown(promise: dict[str, float], of: str, seconds: float) -> None:
    """The promised 95th percentile is kept at the load each replica gets, p50 below it, p99 not below; more replicas
    than without a promise."""
    run = shown(replace(SERVICE, **promise))  # type: ignore[arg-type]
    assert percentile(run, of, "p50") < percentile(run, of, "p95") <= seconds
    assert percentile(run, of, "p95") <= percentile(run, of, "p99")
    assert served(replace(SERVICE, **promise)).nodes[0] >= served(SERVICE).nodes[0]  # type: ignore[arg-type]


def test_promises_hold_together() -> None:
    """Three promises at once need at least the fleet of the strictest, and all hold."""
    job = replace(SERVICE, p95_ttft_s=0.2, p95_tpot_s=0.02, p95_latency_s=8.0)
    run = shown(job)
    assert percentile(run, "ttft", "p95") <= 0.2
    assert percentile(run, "tpot", "p95") <= 0.02
    assert percentile(run, "latency", "p95") <= 8.0
    assert served(job).nodes[0] >= served(replace(SERVICE, p95_tpot_s=0.02)).nodes[0]


def test_an_idle_service_is_not_charged_for_requests_that_never_come() -> None:
    """At one request an hour a replica shows the latency of a request alone, whatever it could carry."""
    idle, busy = shown(replace(SERVICE, rate_per_s=1 / 3600)), shown(SERVICE)
    assert percentile(idle, "tpot", "p95") < percentile(busy, "tpot", "p95")
    assert percentile(idle, "tpot", "p99") == pytest.approx(percentile(idle, "tpot", "p50"), rel=0.05)


def test_headroom_is_beside_the_capacity() -> None:
    """What a fleet can carry is shown whole; the fleet is planned to 0.8 of it, and the note says so."""
    run, sized = shown(SERVICE), served(SERVICE)
    capacity = dict(run.rates)["requests_per_s"].value
    assert SERVICE.rate_per_s <= 0.8 * capacity
    assert SERVICE.rate_per_s > 0.8 * capacity * (sized.nodes[0] - 1) / sized.nodes[0]
    [load] = [note for note in run.notes if isinstance(note, LoadNote)]
    assert (load.planned_fraction, load.promised) == (0.8, False)
    assert load.load_fraction == pytest.approx(SERVICE.rate_per_s / capacity)


def test_a_forced_concurrency_is_what_is_planned_and_one_over_the_cache_says_so() -> None:
    """61 in flight is 61, not a power of two; 100,000 is refused with what the cache holds."""
    fixed = size_batch(replace(BATCH, concurrency=61), [H100], Constraints(), CALIBRATED)
    assert dict(fixed.detail(0).layout_fields)["concurrency"] == 61
    miss = size_batch(replace(BATCH, concurrency=100_000), [H100], Constraints(), CALIBRATED).misses[0]
    assert isinstance(miss, ConcurrencyMiss)
    assert (miss.binding, miss.asked_requests) == ("layout", 100_000)
    assert miss.lifted_by == (SetField(key="concurrency", value=int(miss.held_requests)),)


def test_too_few_forced_replicas_say_how_many() -> None:
    """One replica for 1,000 requests a second: refused, and the number that carries them is proposed."""
    miss = served(replace(SERVICE, rate_per_s=1000.0, replicas=1)).misses[0]
    assert isinstance(miss, ReplicasMiss)
    needed = miss.needed_replicas
    assert len(served(replace(SERVICE, rate_per_s=1000.0, replicas=needed)).machine) == 1


def test_an_fp8_cache_holds_twice_the_requests() -> None:
    """`kv_cache: fp8` doubles what fits where the cache is the limit; TensorRT-LLM takes it by itself under fp8."""
    long = replace(
        BATCH, requests=Requests(input_tokens=Lengths(mean=8000, maximum=8000), output_tokens=CHAT.output_tokens)
    )

    def in_flight(job: BatchJob) -> int:
        fields = dict(size_batch(job, [H100], Constraints(), CALIBRATED).detail(0).layout_fields)
        return int(fields["concurrency"])

    assert in_flight(replace(long, kv_cache="fp8")) == pytest.approx(2 * in_flight(long), abs=1)
    trt = replace(long, engine="tensorrt-llm", weights="fp8")
    assert in_flight(trt) == in_flight(replace(trt, kv_cache="fp8"))
    assert in_flight(trt) == pytest.approx(2 * in_flight(replace(trt, kv_cache="fp16")), abs=1)


def test_a_batch_keeps_its_machines_busy_to_the_end() -> None:
    """Twice the machines take half the time and the drain of the last requests; never less than half."""
    sized = size_batch(replace(BATCH, items=100_000), [H100], Constraints(max_nodes=2), CALIBRATED)
    one, two = (float(sized.work_s[sized.nodes == nodes][0]) for nodes in (1, 2))
    assert 0.5 * one < two < 0.6 * one


def test_a_promise_that_its_interval_passes_is_a_risk() -> None:
    """Sized to the expected figure, each promise whose 80 % interval reaches beyond it is named."""
    job = replace(SERVICE, p95_ttft_s=0.12, p95_tpot_s=0.02)
    run = shown(job)
    assert run.ttft_p95_s is not None
    assert run.tpot_p95_s is not None
    promised = serve("llama-3.1-8b", p95_latency_s=None, p95_ttft_s=0.12, p95_tpot_s=0.02)
    told = {risk.promise for risk in _promise_risks(promised, run, None) if isinstance(risk, LatencyRisk)}
    assert ("ttft" in told) == (run.ttft_p95_s.high > 0.12)
    assert ("tpot" in told) == (run.tpot_p95_s.high > 0.02)
    assert told
