"""Mixtures of experts over several devices: whole experts dealt out, attention on each device for itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.decoder_curves import DecoderCurves, lay_out_decoder
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_replicas import cache_room, decoder_rows, rows_memory
from tonnage.sizing.decoder_seen import DecoderLoad
from tonnage.sizing.devices import Machine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_memory import held_weights_bytes, kv_bytes_per_token, weights_bytes
from tonnage.sizing.inference_pass import pass_s, pass_work
from tonnage.sizing.mlp_operators import busiest, busy_experts
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters

ENGINES = calibrated_engines()

DEVICES = 8.0
LAYOUTS = [(1.0, 1.0), (8.0, 1.0), (1.0, 8.0), (8.0, 8.0), (2.0, 1.0), (8.0, 2.0)]  # ranks of experts, data ranks
MODELS = ["qwen3-235b-a22b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-120b"]
CHAT = Requests(input_tokens=Lengths(mean=1000, maximum=1000), output_tokens=Lengths(mean=1000, maximum=1000))


def eight(gpu: str = "H200") -> Machine:
    catalog = load_catalog()
    return Machine(
        accelerator=catalog.accelerator(gpu), count=8, intra=catalog.link("nvlink4"), network_gb_per_s=400.0,
        network_latency_us=10.0,
    )  # fmt: skip


def curves(
    model: str,
    experts: float,
    groups: float,
    *,
    engine: str = "sglang",
    gpu: str = "H200",
    asked: Requests = CHAT,
    most: float = np.nan,
) -> DecoderCurves:
    machine = eight(gpu)
    rows = decoder_rows(
        find_model(model), FORMATS["fp8"], SCHEDULERS[engine], serving_devices([machine], "fp8"),
        [machine.accelerator], [asked], tensor_parallel=np.array([DEVICES / groups]), concurrency=np.array([most]),
        data_ranks=np.array([groups]), expert_parallel=np.array([experts]),
    )  # fmt: skip
    figures = ENGINES["llm" if engine == "tensorrt-llm" else "llm-python"]
    return lay_out_decoder(rows, figures).under(figures)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("experts", "groups"), LAYOUTS)
def test_a_step_takes_at_least_what_each_device_must_read(model: str, experts: float, groups: float) -> None:
    """Weights that some token needs and the cache of its requests, over the card's whole bandwidth."""
    shape, served = find_model(model), FORMATS["fp8"]
    found = curves(model, experts, groups)
    bandwidth = float(found.rows.devices.bandwidth_bytes_per_s[0])
    context = float(found.rows.context[0])
    count = count_parameters(shape)
    for batch in (8.0, 64.0, 256.0):
        idle = 1.0 - float(busy_experts(shape.experts, shape.experts_per_token, batch)) / shape.experts
        weights = float(held_weights_bytes(shape, served, DEVICES / groups, groups))
        weights -= idle * count.experts * served.expert_bytes / DEVICES + 2.0 * count.embedding_total * groups / DEVICES
        cache = (
            batch
            / groups
            * float(np.max(kv_bytes_per_token(shape, DEVICES / groups)))
            * min(context, shape.sliding_window or context)
        )
        assert float(found.decode_s(np.array([batch]))[0]) >= (weights + cache) / bandwidth


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("experts", "groups"), LAYOUTS)
def test_no_layout_beats_the_products_of_all_devices(model: str, experts: float, groups: float) -> None:
    """Reading prompts takes at least their FLOP over what eight devices multiply."""
    shape = find_model(model)
    found = curves(model, experts, groups)
    active = count_parameters(shape).active - count_parameters(shape).embedding_total
    peak = DEVICES * float(found.rows.devices.peak_flop_per_s[0])
    for tokens in (1000.0, 8000.0):
        assert float(found.linear_s(np.array([tokens]))[0]) >= 2.0 * active * 0.9 * tokens / peak


@pytest.mark.parametrize("model", MODELS)
def test_degrees_of_one_change_nothing(model: str) -> None:
    """Experts on one rank and one data rank are the plain layout, to the last digit."""
    machine, figures = eight(), ENGINES["llm"]
    devices = serving_devices([machine], "fp8")
    common = {"batch": 64.0, "query": 1.0, "keys": 1000.0, "tensor_parallel": 8.0, "logit_tokens": 64.0}
    plain = pass_work(find_model(model), devices, FORMATS["fp8"], figures, **common)  # type: ignore[arg-type]
    same = pass_work(
        find_model(model),
        devices,
        FORMATS["fp8"],
        figures,
        **common,
        data_ranks=1.0,
        expert_parallel=1.0,  # type: ignore[arg-type]
    )
    assert float(pass_s(plain, figures)[0]) == float(pass_s(same, figures)[0])


def test_the_busiest_of_one_rank_has_all_and_of_several_more_than_its_share() -> None:
    """One rank has the mean; eight have a busiest above it, never above all there is."""
    assert float(busiest(64.0, 1.0, 64.0)) == 64.0
    for mean, ranks in product((0.5, 8.0, 1000.0), (2.0, 8.0)):
        assert mean < float(busiest(mean, ranks, mean * ranks)) <= mean * ranks
    assert float(busiest(1000.0, 8.0, 8000.0)) < 1100.0


def test_each_data_rank_keeps_the_cache_of_its_own_requests() -> None:
    """DeepSeek-V3's compressed cache stands whole on every device: eight data ranks hold more than four times as many
    requests; its other weights are there eight times."""
    one, each = (curves("deepseek-v3", 8.0, groups).rows for groups in (1.0, 8.0))
    limit = np.array([4096.0])
    assert float(cache_room(each, limit)[0]) > 4.0 * float(cache_room(one, limit)[0])
    shape, served = find_model("deepseek-v3"), FORMATS["fp8"]
    plain, replicated = (float(rows_memory(rows, limit).weights_bytes[0]) for rows in (one, each))
    experts = count_parameters(shape).experts * served.expert_bytes
    rest = float(weights_bytes(shape, served)) - experts
    assert replicated - plain == pytest.approx(rest * (1.0 - 1.0 / 8.0))


# TensorRT-LLM v1.0, tensor parallel 8, expert parallel 8, attention data-parallel, in fp8, output tokens a second:
# docs/source/blogs/Best_perf_practice_on_DeepSeek-R1_in_TensorRT-LLM.md (5,120 requests of 1,024/2,048, 1,024 at a
# time; R1 has the shape of V3) and docs/source/performance/perf-overview.md (1,000/1,000).
PUBLISHED = [
    ("deepseek-v3", "H200", 1024, 2048, 5120.0, 1024.0, 11_489.0),
    ("qwen3-235b-a22b", "H100-SXM", 1000, 1000, 3000.0, np.nan, 14_898.0),
]


@pytest.mark.parametrize(("model", "gpu", "prompt", "answer", "requests", "most", "published"), PUBLISHED)
def test_published_rates_with_data_parallel_attention(
    model: str, gpu: str, prompt: int, answer: int, requests: float, most: float, published: float
) -> None:
    """Within 0.6 and 1.7 of published (no such row is in any fit), and far above what plain tensor parallel answers."""
    asked = Requests(
        input_tokens=Lengths(mean=prompt, maximum=prompt), output_tokens=Lengths(mean=answer, maximum=answer)
    )
    queued = DecoderLoad(requests=np.array([requests]), rate_per_s=np.array([np.inf]), users=np.array([np.inf]))

    def rate(experts: float, groups: float) -> float:
        found = curves(model, experts, groups, engine="tensorrt-llm", gpu=gpu, asked=asked, most=most)
        return requests * answer / float(serve_load(found, queued).makespan_s[0])

    spread = rate(8.0, 8.0)
    assert 0.6 < spread / published < 1.7
    assert spread > 1.4 * rate(1.0, 1.0)
