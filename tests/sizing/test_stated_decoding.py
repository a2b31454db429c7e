"""What a job states of its decoding: prompts that the prefix cache holds, guesses that a step verifies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog import load_catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.batch_sizing import size_batch
from tonnage.planning.sized import Sized
from tonnage.sizing.decoder_curves import DecoderCurves, DecoderRows, lay_out_decoder
from tonnage.sizing.decoder_reading import capacity_per_s
from tonnage.sizing.decoder_replicas import cache_room, decoder_rows, request_bytes, rows_memory, shared_bytes
from tonnage.sizing.devices import Machine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_memory import weights_bytes
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.engine_limits import EngineLimits
from tonnage.workload.jobs import BatchJob, Constraints, Lengths, Requests, Speculation
from tonnage.workload.known import find_model

ENGINES = calibrated_engines()

CATALOG = load_catalog()
DEVICE = CATALOG.accelerator("H100-SXM")
H100 = Machine(accelerator=DEVICE, count=1, intra=None, network_gb_per_s=None, network_latency_us=0.0)
PROMPTS = Requests(input_tokens=Lengths(mean=4000, maximum=4000), output_tokens=Lengths(mean=100, maximum=100))
JOB = BatchJob(model=find_model("llama-3.1-8b"), requests=PROMPTS, items=10_000, weights="bf16")


def rows(model: str = "llama-3.1-8b", concurrency: float = np.nan, **stated: Any) -> DecoderRows:
    return decoder_rows(
        find_model(model), FORMATS["bf16"], SCHEDULERS["vllm"], serving_devices([H100], "bf16"), [DEVICE], [PROMPTS],
        tensor_parallel=np.ones(1), concurrency=np.array([concurrency]), **stated,
    )  # fmt: skip


def curves(of: DecoderRows) -> DecoderCurves:
    engine = ENGINES["llm-python"]
    return lay_out_decoder(of, engine).under(engine)


def sized(job: BatchJob) -> Sized:
    return size_batch(job, [H100], Constraints(max_nodes=1), CalibratedModel.packaged())


def slots(limits: EngineLimits, concurrency: float = np.nan) -> float:
    return float(rows(concurrency=concurrency, limits=[limits]).slots[0])


def test_what_the_engine_is_set_to_caps_requests_in_flight() -> None:
    """A request that decodes takes a token of each step; a layout's own figure replaces the default, not a limit."""
    small_steps, few_requests = EngineLimits(step_tokens=16.0), EngineLimits(requests=32.0)
    assert slots(small_steps) == 16.0
    assert slots(small_steps, concurrency=64.0) == 16.0
    assert slots(few_requests, concurrency=512.0) == 32.0
    assert slots(few_requests, concurrency=8.0) == 8.0


def test_attention_of_the_rest_looks_at_all_keys() -> None:
    """The last p of k tokens see p·(k - p/2) pairs: half of a prompt cached leaves 3/4 of its attention's FLOP, a
    quarter of it cached 15/16."""
    engine = ENGINES["llm-python"]

    def flop(cached: float) -> float:
        whole = lay_out_decoder(rows(cached=cached), engine).whole
        return sum(float(np.sum(op.flop)) for stage in whole.stages for op in stage.operators if op.kind == "attention")

    assert flop(0.5) / flop(0.0) == pytest.approx(3 / 4)
    assert flop(0.25) / flop(0.0) == pytest.approx(15 / 16)


def test_what_is_cached_is_not_read() -> None:
    """Long prompts and short answers: with 90 % cached a replica answers more, by less than ten times (answers are
    still written, and attention looks at all keys); with nothing cached, exactly what it does today."""
    at = np.array([32.0])
    now, none, most = (
        float(capacity_per_s(curves(rows(**stated)), at)[0]) for stated in ({}, {"cached": 0.0}, {"cached": 0.9})
    )
    assert none == now
    assert 1.5 * now < most < 10 * now


def test_the_shared_part_is_held_once() -> None:
    """Requests hold what is their own: all their bytes together are those of one whole request and others' own."""
    of, half = rows(), rows(cached=0.5)
    tokens = np.array([4100.0])
    whole, own = float(request_bytes(of, tokens)[0]), float(request_bytes(half, tokens)[0])
    assert own + float(shared_bytes(half)[0]) == pytest.approx(whole)
    assert own == pytest.approx(float(request_bytes(of, tokens - 2000)[0]))
    limit = np.array([1024.0])
    # 4,050 tokens on average, of which 2,000 are shared; the shared part takes the room of a single one.
    assert float(cache_room(half, limit)[0]) == pytest.approx((float(cache_room(of, limit)[0]) * 4050 - 2000) / 2050)


def test_a_plan_says_what_share_it_took() -> None:
    """The layout names a stated share, and its batch ends sooner; unstated, nothing is named."""
    plain, cached = sized(JOB), sized(replace(JOB, prefix_cache_fraction=0.8))
    assert cached.work_s[0] < plain.work_s[0]
    assert dict(cached.detail(0).layout_fields)["prefix_cache_fraction"] == "0.8"
    assert "prefix_cache_fraction" not in dict(plain.detail(0).layout_fields)


@pytest.mark.parametrize(
    ("acceptance", "guesses", "published"),
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86), (1.0, 3, 4.0)],
)
def test_tokens_of_a_step_are_the_published_ones(acceptance: float, guesses: int, published: float) -> None:
    """Leviathan et al. 2023, table 1 (guesses that cost nothing); all right: every guess and one more."""
    assert Speculation(tokens=guesses, acceptance=acceptance).tokens_per_step == pytest.approx(published, abs=0.006)


def token_s(of: DecoderRows, in_flight: float) -> float:
    return float(curves(of).decode_s(np.array([in_flight]))[0]) / of.step_gives


def test_guesses_pay_where_weights_bound_a_step() -> None:
    """One request: a step of four guesses takes about as long as one of none, so tokens come 3.36 times as fast, never
    faster; of 256 requests, whose keys and products bound it, they gain less."""
    guessing = rows(speculation=Speculation(tokens=4, acceptance=0.8))
    alone, crowded = (token_s(rows(), at) / token_s(guessing, at) for at in (1.0, 256.0))
    assert 3.0 < alone <= 3.3616
    assert crowded < alone


def test_a_step_takes_at_least_its_bytes_and_no_token_more_than_it_gives() -> None:
    """Weights and the keys of all requests cross the memory once a step, however many guesses; wrong guesses only
    cost."""
    for guesses in (1, 4, 16):
        of = rows(speculation=Speculation(tokens=guesses, acceptance=0.0))
        found = curves(of)
        keys = found.batches * float(request_bytes(of, of.context)[0])
        least = (weights_bytes(of.shape, of.served) * 0.9 + keys) / of.devices.bandwidth_bytes_per_s[0]
        assert (found.decode_grid_s >= least).all()
        assert (found.decode_grid_s >= curves(rows()).decode_s(found.batches) * 0.999).all()
        assert token_s(of, 8.0) >= token_s(rows(), 8.0)


def test_no_guess_is_what_it_is_today() -> None:
    """Nothing guessed, nothing accepted: the same curves to the last bit."""
    now, none = curves(rows()), curves(rows(speculation=Speculation(tokens=0, acceptance=0.0)))
    assert (now.decode_grid_s == none.decode_grid_s).all()
    assert (now.linear_grid_s == none.linear_grid_s).all()
    plain, stated = sized(JOB), sized(replace(JOB, speculative=Speculation(tokens=0, acceptance=0.0)))
    assert plain.work_s.tolist() == stated.work_s.tolist()


def test_a_draft_model_takes_time_and_memory() -> None:
    """Its weights come off the pool and its keys are kept beside the target's; four steps of it make a step longer; a
    draft as large as the target gains nothing."""
    small, same = (find_model(name) for name in ("llama-3.2-1b", "llama-3.1-8b"))
    free, drafted, large = (
        rows(speculation=Speculation(tokens=4, acceptance=0.8, draft=draft)) for draft in (None, small, same)
    )
    assert token_s(free, 8.0) < token_s(drafted, 8.0) < token_s(rows(), 8.0) < token_s(large, 8.0)
    limit, tokens = np.array([256.0]), np.array([1000.0])
    lost = float(rows_memory(free, limit).pool_bytes[0] - rows_memory(drafted, limit).pool_bytes[0])
    assert lost == pytest.approx(weights_bytes(small, FORMATS["bf16"]))
    # 2 x 16 layers x 8 heads x 64 x 2 bytes beside 2 x 32 x 8 x 128 x 2
    assert float(request_bytes(drafted, tokens)[0] / request_bytes(free, tokens)[0]) == pytest.approx(1.25)


def test_a_plan_counts_tokens_not_steps() -> None:
    """Long answers with good guesses end sooner, and so does each token; output tokens a second are those of the
    answers, whatever a step gives; the layout says what was stated."""
    answers = Requests(input_tokens=Lengths(mean=100, maximum=100), output_tokens=Lengths(mean=1000, maximum=1000))
    job = replace(JOB, requests=answers, items=64)
    guesses = Speculation(tokens=4, acceptance=0.8)
    plain, fast = sized(job), sized(replace(job, speculative=guesses))
    assert 1.5 < plain.work_s[0] / fast.work_s[0] <= guesses.tokens_per_step
    slow, quick = (dict(dict(one.detail(0).percentiles)["tpot"])["mean"] for one in (plain, fast))
    assert 1.5 < slow / quick <= guesses.tokens_per_step
    rates = dict(fast.detail(0).rates)
    assert rates["output_tokens_per_s"].value == pytest.approx(1000 * rates["requests_per_s"].value)
    assert dict(fast.detail(0).layout_fields)["speculative"] == "4 guesses, 0.8 of them right"
