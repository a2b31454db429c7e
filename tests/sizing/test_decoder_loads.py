"""Closed forms of loads on a decoder replica, against the event simulation over the same steps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog import load_catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.arrivals import Arrivals, ClosedLoop, Deterministic, FixedLengths, Poisson, Process, SpreadLengths
from tonnage.sizing.decoder_curves import L2_OVER_MEMORY, lay_out_decoder
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_reading import capacity_per_s, states_of
from tonnage.sizing.decoder_replicas import decoder_rows
from tonnage.sizing.decoder_run import settle
from tonnage.sizing.decoder_seen import DecoderLoad, SeenLoad
from tonnage.sizing.decoder_waits import token_points
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_pass import pass_s, pass_work
from tonnage.sizing.length_points import length_points
from tonnage.sizing.percentiles import ServingPercentiles
from tonnage.sizing.replica_model import ReplicaModel, usual_policy
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.sizing.simulation import simulate
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model

ENGINES = calibrated_engines()

CHAT = Requests(input_tokens=Lengths(mean=1155, maximum=4000), output_tokens=Lengths(mean=211, maximum=1000))
LONG_ANSWERS = Requests(input_tokens=Lengths(mean=128, maximum=128), output_tokens=Lengths(mean=512, maximum=512))
LONG_PROMPTS = Requests(input_tokens=Lengths(mean=4000, maximum=4000), output_tokens=Lengths(mean=50, maximum=50))
DEVICE = load_catalog().accelerator("H100-SXM")
MODEL = find_model("llama-3.1-8b")


def machines(count: int = 1) -> Devices:
    one = Machine(accelerator=DEVICE, count=1, intra=None, network_gb_per_s=None, network_latency_us=0.0)
    return serving_devices([one] * count, "bf16")


def closed_form(
    requests: Requests, *, slots: float = 256, count: float = math.inf, rate: float = math.inf, users: float = math.inf
) -> SeenLoad:
    devices: list[Accelerator] = [DEVICE]
    rows = decoder_rows(
        MODEL, FORMATS["bf16"], SCHEDULERS["vllm"], machines(), devices, [requests],
        tensor_parallel=np.ones(1), concurrency=np.array([float(slots)]),
    )  # fmt: skip
    engine = ENGINES["llm-python"]
    load = DecoderLoad(requests=np.array([float(count)]), rate_per_s=np.array([rate]), users=np.array([users]))
    return serve_load(lay_out_decoder(rows, engine).under(engine), load)


def simulated(
    requests: Requests, process: Process, *, count: int, slots: int = 256, seed: int = 0
) -> ServingPercentiles:
    engine = ENGINES["llm-python"]
    policy = usual_policy("vllm", DEVICE, kv_tokens=400_000)
    policy = replace(policy, max_requests=slots, front_s=engine.request_us * 1e-6, reply_s=engine.reply_us * 1e-6)
    replica = ReplicaModel.from_sizing(MODEL, machines(), requests, weights="bf16", policy=policy, engine=engine)
    answer = requests.output_tokens
    assert answer is not None
    spread = requests.input_tokens.maximum > requests.input_tokens.mean
    lengths = (
        SpreadLengths(requests=requests)
        if spread
        else FixedLengths(input_tokens=requests.input_tokens.maximum, output_tokens=answer.maximum)
    )
    traffic = Arrivals(process=process, lengths=lengths, requests=count)
    return simulate(replica, traffic, seed=seed, warm_up_fraction=0.0)


@pytest.mark.parametrize(
    ("requests", "share"),
    [(CHAT, 0.3), (CHAT, 0.7), (LONG_ANSWERS, 0.3), (LONG_ANSWERS, 0.7), (LONG_PROMPTS, 0.3), (LONG_PROMPTS, 0.5)],
)
def test_offered_load_is_what_the_simulation_sees(requests: Requests, share: float) -> None:
    """Poisson arrivals at a share of capacity: means within 15 %, p95 within 25 %; within 35 % where prompts take
    most of the time, whose queue is first come, first served, and not shared as the closed form has it."""
    wide = 0.2 if requests is LONG_PROMPTS else 0.0
    rate = share * float(closed_form(requests).capacity_per_s[0])
    found = closed_form(requests, rate=rate)
    seen = simulated(requests, Poisson(rate_per_s=rate), count=4000)
    assert seen.tpot_s is not None
    assert float(found.tpot.mean[0]) == pytest.approx(seen.tpot_s.mean, rel=0.15 + wide)
    assert float(found.latency.mean[0]) == pytest.approx(seen.latency_s.mean, rel=0.15 + wide)
    assert float(found.latency.at["p95"][0]) == pytest.approx(seen.latency_s.p95, rel=0.25 + wide)
    assert float(found.ttft.mean[0]) == pytest.approx(seen.ttft_s.mean, rel=0.25 + wide)
    assert float(found.ttft.at["p95"][0]) == pytest.approx(seen.ttft_s.p95, rel=0.35)


@pytest.mark.parametrize("requests", [CHAT, LONG_ANSWERS, LONG_PROMPTS], ids=["chat", "answers", "prompts"])
@pytest.mark.parametrize("count", [100, 1000])
def test_all_at_once_takes_as_long_as_simulated(requests: Requests, count: int) -> None:
    """Fewer and more requests than there are slots, queued together: requests a second within 8 %, or 15 %
    where one long answer among few decides."""
    found = closed_form(requests, count=count)
    seen = simulated(requests, Deterministic(rate_per_s=math.inf), count=count)
    few = requests is CHAT and count == 100
    assert float(found.requests_per_s[0]) == pytest.approx(seen.requests_per_s, rel=0.15 if few else 0.08)
    assert float(found.ttft.mean[0]) == pytest.approx(seen.ttft_s.mean, rel=0.25)


def test_states_at_hand_give_the_same_figures() -> None:
    """Digit for digit, where the states of a row were taken from a table that several rows share."""
    rows = decoder_rows(
        MODEL, FORMATS["bf16"], SCHEDULERS["vllm"], machines(2), [DEVICE] * 2, [CHAT] * 2,
        tensor_parallel=np.ones(2), concurrency=np.array([64.0, 256.0]),
    )  # fmt: skip
    curves = lay_out_decoder(rows, ENGINES["llm-python"]).under(ENGINES["llm-python"])
    several = np.array([0, 0, 1, 1, 1], dtype=np.intp)
    load = DecoderLoad(requests=np.array([10.0, 1e4, 10.0, 1e3, 1e6]), rate_per_s=np.full(5, math.inf),
                       users=np.full(5, math.inf))  # fmt: skip
    alone = serve_load(curves.take(several), load)
    assert repr(serve_load(curves.take(several), load, states_of(curves).take(several))) == repr(alone)


@pytest.mark.parametrize("requests", [CHAT, LONG_ANSWERS, LONG_PROMPTS], ids=["chat", "answers", "prompts"])
@pytest.mark.parametrize("count", [5, 28, 80])
def test_a_short_run_waits_no_longer_than_it_lasts(requests: Requests, count: int) -> None:
    """A few requests at a rate below the capacity: the latest first token as simulated (mean of 20 draws, within 60 %)
    and a rate within 15 %; nobody stands behind the last request."""
    rate = 0.3 * float(closed_form(requests).capacity_per_s[0])
    found = closed_form(requests, count=count, rate=rate)
    seen = [simulated(requests, Poisson(rate_per_s=rate), count=count, seed=seed) for seed in range(20)]
    assert float(found.ttft.at["p99"][0]) == pytest.approx(float(np.mean([one.ttft_s.p99 for one in seen])), rel=0.6)
    assert float(found.ttft.mean[0]) == pytest.approx(float(np.mean([one.ttft_s.mean for one in seen])), rel=0.25)
    assert float(found.requests_per_s[0]) == pytest.approx(
        float(np.mean([one.requests_per_s for one in seen])), rel=0.2
    )
    assert float(found.ttft.at["p99"][0]) < float(found.makespan_s[0])


@pytest.mark.parametrize("users", [1, 7, 48])
def test_users_who_wait_for_answers(users: int) -> None:
    """A closed loop of any number of users: rate and time per token within 8 %."""
    found = closed_form(CHAT, users=users, count=1000)
    seen = simulated(CHAT, ClosedLoop(users=users), count=1000)
    assert seen.tpot_s is not None
    assert float(found.requests_per_s[0]) == pytest.approx(seen.requests_per_s, rel=0.08)
    assert float(found.tpot.mean[0]) == pytest.approx(seen.tpot_s.mean, rel=0.08)


def test_more_load_is_never_faster_and_never_beyond_capacity() -> None:
    """Rate offered up: latency up at every percentile, rate answered up to the capacity and no further."""
    top = float(closed_form(CHAT).capacity_per_s[0])
    seen = [closed_form(CHAT, rate=share * top) for share in (0.01, 0.2, 0.5, 0.8, 0.95, 1.5)]
    for figure in ("p50", "p95", "p99"):
        values = [float(one.latency.at[figure][0]) for one in seen]
        assert values == sorted(values)
    assert max(float(one.requests_per_s[0]) for one in seen) <= top * (1 + 1e-9)


def test_any_number_in_flight_lies_between_its_neighbours() -> None:
    """Capacity rises with each request in flight, powers of two or not."""
    engine = ENGINES["llm-python"]
    rows = decoder_rows(
        MODEL, FORMATS["bf16"], SCHEDULERS["vllm"], machines(), [DEVICE], [CHAT], tensor_parallel=np.ones(1),
        concurrency=np.array([300.0]),
    )  # fmt: skip
    curves = lay_out_decoder(rows, engine).under(engine)
    rates = capacity_per_s(curves, np.arange(1.0, 257.0)[None, :])[0]
    assert (np.diff(rates) > 0).all()


def test_a_stated_mixture_is_used_as_stated() -> None:
    """Half 1,000 and half 90,000 tokens: the 95th percentile of the first token waits for a long prompt, whose reading
    alone takes longer than that of a log-normal's 95th."""
    lengths = Lengths(mean=45_500, maximum=90_000, points=((1000.0, 0.5), (90_000.0, 0.5)))
    mixed = Requests(input_tokens=lengths, output_tokens=Lengths(mean=100, maximum=100))
    all_long = Requests(input_tokens=Lengths(mean=90_000, maximum=90_000), output_tokens=mixed.output_tokens)
    found, long = closed_form(mixed, rate=1e-6, slots=4), closed_form(all_long, rate=1e-6, slots=4)
    assert float(found.ttft.at["p95"][0]) == pytest.approx(float(long.ttft.at["p95"][0]), rel=0.02)
    assert float(found.ttft.at["p50"][0]) < 0.7 * float(found.ttft.at["p95"][0])


def test_points_keep_the_stated_mean_and_maximum() -> None:
    """Log-normal strata average to the mean and stay below the longest."""
    points = length_points(Lengths(mean=1155, maximum=4000))
    assert points.mean == pytest.approx(1155, rel=1e-4)
    assert points.tokens.max() <= 4000


def test_hypotheses_of_a_request_share_the_reading_of_its_prompt() -> None:
    """The cache of a prompt comes from memory once for two of them, and no faster than the L2 cache gives it to many;
    of an answer each reads its own."""
    one, two, many = (
        decoder_rows(
            MODEL, FORMATS["bf16"], SCHEDULERS["static"], machines(), [DEVICE], [LONG_ANSWERS],
            tensor_parallel=np.ones(1), concurrency=np.ones(1), beams=np.array([beams]),
        ).from_memory[0]
        for beams in (1.0, 2.0, 64.0)
    )  # fmt: skip
    prompt, answer = 128.0, 256.0
    assert one == 1.0
    assert two == pytest.approx((prompt / 2.0 + answer) / (prompt + answer))
    assert many == pytest.approx((prompt / L2_OVER_MEMORY + answer) / (prompt + answer))


@pytest.mark.parametrize(("batch", "beams"), [(1, 1), (1, 4), (2, 1), (24, 1), (24, 3)])
def test_a_fixed_batch_takes_what_its_passes_take(batch: int, beams: int) -> None:
    """No grid lies between a batch that runs from start to end and its passes: all prompts at once, then the steps."""
    rows = decoder_rows(
        MODEL, FORMATS["bf16"], SCHEDULERS["static"], machines(), [DEVICE], [LONG_ANSWERS],
        tensor_parallel=np.ones(1), concurrency=np.array([float(batch)]), beams=np.array([float(beams)]),
    )  # fmt: skip
    engine = ENGINES["static-llm"]
    endless = DecoderLoad(requests=np.array([math.inf]), rate_per_s=np.array([math.inf]), users=np.array([math.inf]))
    found = serve_load(lay_out_decoder(rows, engine).under(engine), endless)
    several, one = np.array([float(batch * beams)]), np.ones(1)

    def seconds(count: np.ndarray, query: np.ndarray, keys: np.ndarray, logits: np.ndarray) -> float:
        work = pass_work(MODEL, rows.devices, rows.served, engine, batch=count, query=query, keys=keys,
                         logit_tokens=logits, host_factor=rows.host_factor)  # fmt: skip
        return float(pass_s(work, engine)[0])

    least = seconds(several, one, rows.context * rows.from_memory, several)  # several hypotheses look at one prompt
    most = seconds(several, one, rows.context, several)
    assert least * (1 - 1e-3) <= float(found.tpot.mean[0]) <= most * (1 + 1e-9)  # queries are read as ever
    assert beams > 1 or float(found.tpot.mean[0]) == pytest.approx(most)
    together = np.array([batch * 128.0])
    alone = seconds(one, one * 128, one * 128, one) - seconds(one, one * 128, one, one)
    read = seconds(one, together, one, one) + batch * alone
    assert float(found.ttft.mean[0]) == pytest.approx(read)


@pytest.mark.parametrize(("requests", "rate"), [(LONG_PROMPTS, 4.0), (LONG_ANSWERS, 8.0)])
def test_the_last_of_a_run_meets_no_newcomers(requests: Requests, rate: float) -> None:
    """Requests of one length that come at a rate: after the last has come, the run takes less than a mean answer, which
    prompts delay all along, but half of it at least."""
    seen = closed_form(requests, count=300, rate=rate)
    after = float(seen.makespan_s[0]) - 299 / rate
    mean = float(seen.latency.mean[0])
    assert 0.5 * mean < after < mean


@pytest.mark.parametrize("process", [Deterministic, Poisson])
@pytest.mark.parametrize(("requests", "rate"), [(LONG_PROMPTS, 4.0), (CHAT, 4.0), (CHAT, 15.0)])
def test_runs_at_a_rate_end_when_the_simulation_ends(
    requests: Requests, rate: float, process: type[Deterministic] | type[Poisson]
) -> None:
    """The rate of a run of 300 requests within a tenth of the event simulation's: of answers that vary the last to end
    is a long one that came before the last."""
    seen = closed_form(requests, count=300, rate=rate)
    found = simulated(requests, process(rate_per_s=rate), count=300)
    assert float(seen.requests_per_s[0]) == pytest.approx(found.requests_per_s, rel=0.1)


def test_long_answers_meet_fewer_others_where_all_come_at_once() -> None:
    """All at once with a slot each: the mean over tokens lies below the mean over requests, since long answers end
    among few; of one length both are the same."""
    varied, alike = (closed_form(one, count=200, slots=256) for one in (CHAT, LONG_ANSWERS))
    assert float(varied.between_tokens_s[0]) < 0.95 * float(varied.tpot.mean[0])
    assert float(alike.between_tokens_s[0]) == pytest.approx(float(alike.tpot.mean[0]))


def test_most_tokens_meet_no_prompt_where_answers_are_long() -> None:
    """32 users with prompts of 4,000 tokens: the median over tokens is a step alone where a prompt comes every
    sixteenth step (512 tokens of an answer), the mean step where more than half of the steps read one (50 tokens)."""
    written = Requests(input_tokens=LONG_PROMPTS.input_tokens, output_tokens=LONG_ANSWERS.output_tokens)
    rare, often = (closed_form(one, users=32) for one in (written, LONG_PROMPTS))
    assert float(rare.median_between_tokens_s[0]) < 0.8 * float(rare.between_tokens_s[0])
    assert float(often.median_between_tokens_s[0]) == float(often.between_tokens_s[0])


def test_the_median_over_tokens_counts_long_answers_more() -> None:
    """200 requests at once: prompts are in six of ten steps of the mean answer, but short ones write few tokens; of all
    steps that write one, fewer than four of ten read a prompt."""
    few = Requests(input_tokens=CHAT.input_tokens, output_tokens=Lengths(mean=30, maximum=400))
    seen = closed_form(few, count=200)
    assert float(seen.median_between_tokens_s[0]) < 0.5 * float(seen.between_tokens_s[0])


def test_the_filling_of_slots_counts_only_in_a_queue() -> None:
    """A time of filling that is not finite reaches no load without a queue."""
    rows = decoder_rows(
        MODEL, FORMATS["bf16"], SCHEDULERS["vllm"], machines(), [DEVICE], [CHAT],
        tensor_parallel=np.ones(1), concurrency=np.array([256.0]),
    )  # fmt: skip
    load = DecoderLoad(requests=np.array([np.inf]), rate_per_s=np.array([np.inf]), users=np.array([32.0]))
    run = settle(lay_out_decoder(rows, ENGINES["llm-python"]).under(ENGINES["llm-python"]), load)
    endless = replace(run, filling=replace(run.filling, mean_s=np.array([np.inf])))
    assert np.array_equal(token_points(endless)[0], token_points(run)[0])


def lengths_of(requests: Requests) -> Array:
    assert requests.output_tokens is not None
    return length_points(requests.output_tokens).tokens
