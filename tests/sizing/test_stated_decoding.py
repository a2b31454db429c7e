"""What a job states of its decoding: prompts that the prefix cache holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.catalog import load_catalog
from tonnage.planning.batch_sizing import size_batch
from tonnage.planning.grounds import Grounds
from tonnage.planning.sized import Sized
from tonnage.sizing.decoder_curves import DecoderCurves, DecoderRows, lay_out_decoder
from tonnage.sizing.decoder_reading import capacity_per_s
from tonnage.sizing.decoder_replicas import cache_room, decoder_rows, request_bytes, shared_bytes
from tonnage.sizing.devices import Machine
from tonnage.sizing.engines import ENGINES
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_pass import FORMATS
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.workload.jobs import BatchJob, Constraints, Lengths, Requests
from tonnage.workload.known import find_model

CATALOG = load_catalog()
DEVICE = CATALOG.accelerator("H100-SXM")
H100 = Machine(accelerator=DEVICE, count=1, intra=None, network_gb_per_s=None, network_latency_us=0.0)
PROMPTS = Requests(input_tokens=Lengths(mean=4000, maximum=4000), output_tokens=Lengths(mean=100, maximum=100))
JOB = BatchJob(model=find_model("llama-3.1-8b"), requests=PROMPTS, items=10_000, weights="bf16")


def rows(model: str = "llama-3.1-8b", **stated: float) -> DecoderRows:
    return decoder_rows(
        find_model(model), FORMATS["bf16"], SCHEDULERS["vllm"], serving_devices([H100], "bf16"), [DEVICE], [PROMPTS],
        tensor_parallel=np.ones(1), concurrency=np.array([np.nan]), **stated,
    )  # fmt: skip


def curves(of: DecoderRows) -> DecoderCurves:
    engine = ENGINES["llm-python"]
    return lay_out_decoder(of, engine).under(engine)


def sized(job: BatchJob) -> Sized:
    return size_batch(job, [H100], Constraints(max_nodes=1), Grounds.packaged())


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
