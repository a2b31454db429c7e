"""Replicas built by sizing, under load: tables against formulas, published offered loads, what must always hold."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.sizing.whole_steps import prefill_s, prefill_step_s

from tonnage.calibration.store import calibrated_engines
from tonnage.errors import InputError, UnsizedHardware
from tonnage.sizing.arrivals import (
    Arrivals,
    ClosedLoop,
    FixedLengths,
    Poisson,
    SpreadLengths,
    TraceLengths,
    TraceReplay,
)
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.devices import Devices
from tonnage.sizing.dynamic_batching import DynamicBatching
from tonnage.sizing.inference_time import decode_step_s, forward_s
from tonnage.sizing.replica_model import ReplicaModel, kv_tokens_of
from tonnage.sizing.simulation import largest_rate, serve, simulate
from tonnage.sizing.step_times import DecoderTimes, EncoderTimes
from tonnage.sizing.traces import load_trace
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model

DATA = Path(__file__).parent.parent / "data"
CHAT = Requests(input_tokens=Lengths(mean=400, maximum=4000), output_tokens=Lengths(mean=150, maximum=900))
SENTENCES = Requests(input_tokens=Lengths(mean=60, maximum=256), output_tokens=None)
Build = Callable[..., Devices]
FUSED, SERVED = calibrated_engines()["fused"], calibrated_engines()["llm-python"]  # what plans serve with


@pytest.fixture(scope="module")
def decoder(devices: Build) -> ReplicaModel:
    return ReplicaModel.from_sizing(
        find_model("llama-3.1-8b"), devices("H100-SXM"), CHAT, weights="bf16", engine=SERVED
    )


@pytest.fixture(scope="module")
def encoder(devices: Build) -> ReplicaModel:
    return ReplicaModel.from_sizing(
        find_model("bert-base-uncased"),
        devices("A100-40GB-SXM", precision="fp16"),
        SENTENCES,
        weights="fp16",
        engine=FUSED,
    )


def chat(rate: float, requests: int = 1500) -> Arrivals:
    return Arrivals(process=Poisson(rate_per_s=rate), lengths=SpreadLengths(requests=CHAT), requests=requests)


@pytest.mark.parametrize(("batch", "context"), [(1, 700), (5, 1), (23, 3000), (100, 333), (256, 4900)])
def test_decode_table_is_the_formula(decoder: ReplicaModel, devices: Build, batch: int, context: int) -> None:
    """Between its grid points the table errs by less than 2 %."""
    assert isinstance(decoder.times, DecoderTimes)
    exact = decode_step_s(
        find_model("llama-3.1-8b"), devices("H100-SXM"), batch=float(batch), context_tokens=float(context),
        weights="bf16", engine=SERVED,
    )[0]  # fmt: skip
    assert decoder.times.decode_step_s(batch, context) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("tokens", [1, 37, 200, 467, 1500, 2048])
def test_prefill_table_is_the_formula(decoder: ReplicaModel, devices: Build, tokens: int) -> None:
    """A whole prompt in one step takes `prefill_s`, within 2 %."""
    assert isinstance(decoder.times, DecoderTimes)
    exact = prefill_s(
        find_model("llama-3.1-8b"),
        devices("H100-SXM"),
        batch=1.0,
        input_tokens=float(tokens),
        weights="bf16",
        engine=SERVED,
    )[0]
    assert prefill_step_s(decoder.times, tokens) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("batch", "length"), [(1, 17), (3, 60), (11, 200), (32, 256)])
def test_encoder_table_is_the_formula(encoder: ReplicaModel, devices: Build, batch: int, length: int) -> None:
    """Between its grid points the table errs by less than 2 %."""
    assert isinstance(encoder.times, EncoderTimes)
    exact = forward_s(
        find_model("bert-base-uncased"), devices("A100-40GB-SXM", precision="fp16"), batch=float(batch),
        query=float(length), keys=float(length), weights="fp16", engine=FUSED,
    )[0]  # fmt: skip
    assert encoder.times.service_s(batch, length) == pytest.approx(exact, rel=0.02)


def test_one_request_alone(decoder: ReplicaModel) -> None:
    """Its latency is its prefill and its decode steps, to 1e-9."""
    assert isinstance(decoder.times, DecoderTimes)
    assert isinstance(decoder.policy, ContinuousBatching)
    traffic = Arrivals(
        process=Poisson(rate_per_s=1.0), lengths=FixedLengths(input_tokens=700, output_tokens=300), requests=1
    )
    seen = simulate(decoder, traffic, seed=0)
    steps = sum(decoder.times.decode_step_s(1, 701 + done) for done in range(299))
    front_s = decoder.policy.front_s + decoder.policy.shared_s + decoder.policy.reply_s
    assert seen.ttft_s.mean == pytest.approx(front_s + prefill_step_s(decoder.times, 700))
    assert seen.latency_s.mean == pytest.approx(front_s + prefill_step_s(decoder.times, 700) + steps, rel=1e-9)


@pytest.mark.parametrize("rate", [1.0, 8.0, 60.0])
@pytest.mark.parametrize("dispatch", ["round_robin", "least_loaded"])
@pytest.mark.parametrize("kv_tokens", [6_000, 200_000])
def test_every_request_is_answered_once(decoder: ReplicaModel, rate: float, dispatch: str, kv_tokens: int) -> None:
    """No request is lost, answered before its first token, or given more cache than there is."""
    assert isinstance(decoder.policy, ContinuousBatching)
    small = decoder.with_policy(replace(decoder.policy, kv_tokens=kv_tokens))
    stream = chat(rate, 600).draw(1)
    served = serve(small, stream, replicas=2, dispatch=dispatch)  # type: ignore[arg-type]
    assert np.isfinite(served.finish_s).all()
    assert (served.arrival_s < served.first_token_s).all()
    assert (served.first_token_s <= served.finish_s).all()
    assert (served.first_token_s[served.output_tokens == 1] == served.finish_s[served.output_tokens == 1]).all()
    assert (served.first_token_s[served.output_tokens > 1] < served.finish_s[served.output_tokens > 1]).all()
    assert served.peak_kv_tokens <= kv_tokens
    assert served.busy_s <= 2 * served.span_s * (1 + 1e-9)
    assert sorted(served.arrival_s) == sorted(stream.at_s)


def test_more_load_is_never_faster(decoder: ReplicaModel, encoder: ReplicaModel) -> None:
    """With the same unit draws p95 latency and TTFT rise with the rate (2 % for the luck of step boundaries)."""
    for replica, rates, requests in (
        (decoder, (0.5, 1, 2, 4, 8, 16, 32), CHAT),
        (encoder, (500, 2000, 8000), SENTENCES),
    ):
        seen = [
            simulate(replica, Arrivals(process=Poisson(rate_per_s=rate), lengths=SpreadLengths(requests=requests),
                                      requests=2000), seed=7)
            for rate in rates
        ]  # fmt: skip
        for slower, faster in pairwise(seen):
            assert faster.latency_s.p95 > 0.98 * slower.latency_s.p95
            assert faster.ttft_s.p95 > 0.98 * slower.ttft_s.p95
        assert seen[-1].latency_s.p95 > 1.5 * seen[0].latency_s.p95


def test_same_seed_same_figures(decoder: ReplicaModel) -> None:
    """Equal to the last bit; another seed is another service."""
    assert simulate(decoder, chat(5.0), seed=3) == simulate(decoder, chat(5.0), seed=3)
    assert simulate(decoder, chat(5.0), seed=3) != simulate(decoder, chat(5.0), seed=4)


def test_percentiles_are_in_order_and_the_warm_up_is_left_out(decoder: ReplicaModel) -> None:
    """p50 <= p90 <= p95 <= p99 <= maximum; the first tenth of the arrivals is not counted."""
    seen = simulate(decoder, chat(8.0, 1000), seed=0)
    assert seen.tpot_s is not None
    for of in (seen.latency_s, seen.ttft_s, seen.tpot_s):
        assert 0 < of.p50 <= of.p90 <= of.p95 <= of.p99 <= of.maximum
    assert (seen.requests, seen.warm_up_requests) == (900, 100)


def test_a_recorded_trace_runs(decoder: ReplicaModel) -> None:
    """The sample trace, as it was and ten times as fast: every request answered, later at speed."""
    trace = load_trace(DATA / "request_trace.csv")
    slow, fast = (
        simulate(decoder, Arrivals(process=TraceReplay(trace=trace, speed=speed)), seed=0) for speed in (1.0, 10.0)
    )
    assert slow.requests == fast.requests == 180
    assert fast.latency_s.p95 > slow.latency_s.p95


def test_closed_loop_over_two_replicas(decoder: ReplicaModel) -> None:
    """Eight users, no think time: never more than eight in the service, and about four in each."""
    traffic = Arrivals(process=ClosedLoop(users=8), lengths=SpreadLengths(requests=CHAT), requests=400)
    served = serve(decoder, traffic.draw(0), replicas=2)
    begun = np.searchsorted(np.sort(served.finish_s), served.arrival_s, side="right")
    inside = np.arange(1, 401) - begun  # after each arrival
    assert inside.max() == 8
    with pytest.raises(InputError, match="stay with their replica"):
        serve(decoder, traffic.draw(0), replicas=2, dispatch="least_loaded")
    with pytest.raises(InputError, match="cannot keep 9 replicas apart"):
        serve(decoder, traffic.draw(0), replicas=9)


def test_largest_rate_keeps_the_promise_and_a_little_more_breaks_it(decoder: ReplicaModel) -> None:
    """p95 holds at the rate found; at 5 % more it does not, and a stricter promise allows less."""
    lengths = SpreadLengths(requests=CHAT)
    found = largest_rate(decoder, lengths, p95_latency_s=6.0)
    assert found is not None
    assert found.seen.latency_s.p95 <= 6.0
    count = found.seen.requests + found.seen.warm_up_requests
    more = Arrivals(process=Poisson(rate_per_s=1.05 * found.rate_per_s), lengths=lengths, requests=count)
    assert simulate(decoder, more, seed=0).latency_s.p95 > 6.0
    stricter = largest_rate(decoder, lengths, p95_latency_s=6.0, p95_ttft_s=0.1)
    assert stricter is not None
    assert stricter.rate_per_s < found.rate_per_s
    assert largest_rate(decoder, lengths, p95_latency_s=0.05) is None


def test_two_replicas_carry_at_least_twice_the_load(encoder: ReplicaModel) -> None:
    """Pooling two replicas behind the shorter queue never carries less than twice one (3 % for the bisection)."""
    one, two = (
        largest_rate(encoder, SpreadLengths(requests=SENTENCES), p95_latency_s=0.02, replicas=count,
                     dispatch="least_loaded")
        for count in (1, 2)
    )  # fmt: skip
    assert one is not None
    assert two is not None
    assert two.rate_per_s > 1.97 * one.rate_per_s


def published() -> list[tuple[str, int, int, float, dict[str, float]]]:
    """(model, input, output, rate, metric -> value) of the sample in the measured-facts columns."""
    found: dict[tuple[str, int, int, float], dict[str, float]] = {}
    with (DATA / "offered_load.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            stated = re.search(r"request_rate_qps=([\d.]+)", row["note"])
            assert stated is not None
            key = (row["model"], int(row["input_len"]), int(row["output_len"]), float(stated[1]))
            found.setdefault(key, {})[row["metric"]] = float(row["value"])
    return [(*key, values) for key, values in found.items()]


def test_a_prefix_cache_shortens_prompts_and_holds_less(decoder: ReplicaModel) -> None:
    """Of 1,000 prompt tokens 800 are cached: the first token comes a fifth sooner, and the peak of the cache is
    lower by what is not held for each request; nothing cached is the replica as it was."""
    assert isinstance(decoder.policy, ContinuousBatching)
    load = Arrivals(
        process=Poisson(rate_per_s=2.0), lengths=FixedLengths(input_tokens=1000, output_tokens=50), requests=400
    )
    plain = serve(decoder, load.draw(3))
    cached = serve(decoder.with_policy(replace(decoder.policy, cached_fraction=0.8)), load.draw(3))
    none = serve(decoder.with_policy(replace(decoder.policy, cached_fraction=0.0)), load.draw(3))
    assert none.finish_s.tolist() == plain.finish_s.tolist()
    first = [float(np.mean(one.first_token_s - one.arrival_s)) for one in (plain, cached)]
    assert first[1] < 0.8 * first[0]
    assert cached.peak_kv_tokens < plain.peak_kv_tokens


@pytest.mark.parametrize(("model", "prompt", "output", "rate", "measured"), published())
def test_published_offered_load(
    model: str, prompt: int, output: int, rate: float, measured: dict[str, float], devices: Build
) -> None:
    """500 requests at a stated Poisson rate (TensorRT-LLM 0.14, H100): tokens/s within 30 %, TTFT within a factor 2.2.

    The printed rates carry the luck of 500 arrivals (4 %). The rest is the step times' own error, before a calibration:
    decode attention is overestimated at long contexts (docs/decisions/serving-simulation.md).
    """
    shape = find_model(model.replace("llama3.1", "llama-3.1"))
    device, tensor = devices("H100-SXM", count=8, link="nvlink4"), 4 if "70b" in model else 1
    tokens = kv_tokens_of(shape, device, weights="bf16", tensor_parallel=tensor, step_tokens=8192)
    policy = ContinuousBatching(kv_tokens=tokens, max_requests=512, step_tokens=8192)
    lengths = Requests(
        input_tokens=Lengths(mean=prompt, maximum=prompt), output_tokens=Lengths(mean=output, maximum=output)
    )
    replica = ReplicaModel.from_sizing(
        shape, device, lengths, weights="bf16", engine=SERVED, tensor_parallel=tensor, policy=policy
    )
    traffic = Arrivals(process=Poisson(rate_per_s=rate), lengths=SpreadLengths(requests=lengths), requests=500)
    seen = simulate(replica, traffic, seed=1, warm_up_fraction=0.0)
    assert seen.output_tokens_per_s == pytest.approx(measured["output_tokens_per_s"], rel=0.30)
    assert 1 / 2.2 < seen.ttft_s.mean * 1e3 / measured["ttft_ms"] < 2.2


def test_what_cannot_be_served_is_said(decoder: ReplicaModel, encoder: ReplicaModel, devices: Build) -> None:
    """Requests beyond the sizes, models beyond the memory, policies of the other kind: input errors."""
    assert isinstance(decoder.policy, ContinuousBatching)
    tiny = decoder.with_policy(replace(decoder.policy, kv_tokens=100))
    with pytest.raises(InputError, match="of KV cache; the replica has 100"):
        simulate(tiny, chat(1.0, 50), seed=0)
    with pytest.raises(InputError, match="is sized for 4,900"):
        simulate(decoder, replace(chat(1.0, 50), lengths=FixedLengths(input_tokens=5000, output_tokens=1)), seed=0)
    with pytest.raises(InputError, match="is sized for 256"):
        simulate(encoder, replace(chat(1.0, 50), lengths=FixedLengths(input_tokens=257)), seed=0)
    with pytest.raises(InputError, match="writes no token"):
        simulate(decoder, replace(chat(1.0, 50), lengths=FixedLengths(input_tokens=5)), seed=0)
    with pytest.raises(InputError, match="leaves no memory for a KV cache"):
        ReplicaModel.from_sizing(find_model("llama-3.1-70b"), devices("H100-SXM"), CHAT, weights="bf16", engine=SERVED)
    with pytest.raises(InputError, match="continuous batching"):
        decoder.with_policy(DynamicBatching())
    with pytest.raises(InputError, match="leave none for prompts"):
        decoder.with_policy(replace(decoder.policy, step_tokens=256))
    two_kinds = devices("H100-SXM").take(np.zeros(2, dtype=np.intp))
    with pytest.raises(InputError, match="2 rows are given"):
        ReplicaModel.from_sizing(find_model("llama-3.1-8b"), two_kinds, CHAT, weights="bf16", engine=SERVED)
    unknown = replace(devices("H100-SXM", count=8, link="nvlink4"), intra_bytes_per_s=np.array([np.nan]))
    with pytest.raises(UnsizedHardware, match="over 4 devices: the rate of the link"):
        ReplicaModel.from_sizing(
            find_model("llama-3.1-70b"), unknown, CHAT, weights="bf16", engine=SERVED, tensor_parallel=4
        )
    with pytest.raises(InputError, match="no promise"):
        largest_rate(decoder, TraceLengths(trace=load_trace(DATA / "request_trace.csv")))
