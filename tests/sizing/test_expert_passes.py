"""Mixtures of experts when they serve: what a step must read, and the dense model of all experts, bound it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.whole_steps import prefill_s

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_memory import kv_bytes_per_token
from tonnage.sizing.inference_time import decode_step_s, fastest_step_s
from tonnage.sizing.mlp_operators import busy_experts, padded_rows
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model, known_models
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

ENGINES = calibrated_engines()

DECODERS = [shape for shape in known_models().values() if shape.architecture == "decoder"]
ROUTED = [shape for shape in DECODERS if shape.experts]
BATCHES = np.array([1.0, 2.0, 8.0, 32.0, 128.0, 512.0])
CONTEXT = 1024.0
SERVED = ("llm", "llm-python")


def devices(rows: int) -> Devices:
    machine = Machine(
        accelerator=load_catalog().accelerator("H100-SXM"),
        count=1,
        intra=None,
        network_gb_per_s=None,
        network_latency_us=40.0,
    )
    return serving_devices([machine] * rows, "bf16")


def must_read_bytes(shape: ModelShape, batch: float) -> float:
    """Weights of everything a step uses, of experts those that some token goes to, and the requests' cache."""
    count = count_parameters(shape)
    weights = float(count.total - count.embedding_total)
    if shape.experts:
        expert = (3 if shape.gated_mlp else 2) * shape.hidden * shape.ffn
        idle = shape.experts - float(busy_experts(shape.experts, shape.experts_per_token, batch))
        weights -= (shape.layers - shape.dense_layers) * idle * expert
    seen = min(CONTEXT, shape.sliding_window or CONTEXT)
    return 2.0 * weights + batch * seen * float(kv_bytes_per_token(shape))


def dense_twin(shape: ModelShape) -> ModelShape:
    """The model whose every layer is as wide as all experts together."""
    return replace(
        shape, experts=0, experts_per_token=0, shared_expert_ffn=0, dense_layers=0,
        ffn=shape.experts * shape.ffn + shape.shared_expert_ffn,
    )  # fmt: skip


@pytest.mark.parametrize("engine", SERVED)
@pytest.mark.parametrize("shape", DECODERS, ids=lambda shape: shape.name)
def test_a_decode_step_takes_at_least_what_it_must_read(shape: ModelShape, engine: str) -> None:
    """No step beats the bytes of its weights and cache over the card's whole bandwidth."""
    there = devices(len(BATCHES))
    step = decode_step_s(shape, there, batch=BATCHES, context_tokens=CONTEXT, weights="bf16", engine=ENGINES[engine])
    least = np.array([must_read_bytes(shape, batch) for batch in BATCHES]) / there.bandwidth_bytes_per_s
    assert np.all(step >= least)
    assert 0 < fastest_step_s(shape, there.bandwidth_bytes_per_s[0] / 1e9) <= least[0]
    narrow = decode_step_s(shape, there, batch=1.0, context_tokens=1.0, weights="int4", engine=ENGINES[engine])
    assert np.all(narrow >= fastest_step_s(shape, there.bandwidth_bytes_per_s[0] / 1e9))


@pytest.mark.parametrize("engine", SERVED)
@pytest.mark.parametrize("shape", ROUTED, ids=lambda shape: shape.name)
def test_routing_never_costs_more_than_all_experts_for_every_token(shape: ModelShape, engine: str) -> None:
    """Decode steps and prompts take at most what the dense model of all experts takes, and sorting the tokens."""
    there, figures = devices(len(BATCHES)), ENGINES[engine]
    common = {"weights": "bf16", "engine": figures}
    sorting_s = shape.layers * 10 * figures.kernel_floor_us * 1e-6  # router, ranking, two ways, a shared expert
    step = decode_step_s(shape, there, batch=BATCHES, context_tokens=CONTEXT, **common)  # type: ignore[arg-type]
    dense = decode_step_s(dense_twin(shape), there, batch=BATCHES, context_tokens=CONTEXT, **common)  # type: ignore[arg-type]
    assert np.all(step <= dense + sorting_s)
    read = prefill_s(shape, there, batch=BATCHES, input_tokens=CONTEXT, **common)  # type: ignore[arg-type]
    dense = prefill_s(dense_twin(shape), there, batch=BATCHES, input_tokens=CONTEXT, **common)  # type: ignore[arg-type]
    assert np.all(read <= dense + sorting_s)


@pytest.mark.parametrize("shape", ROUTED, ids=lambda shape: shape.name)
def test_more_requests_never_make_a_step_faster(shape: ModelShape) -> None:
    """Weights of more experts are read and more rows multiplied as a batch grows."""
    steps = decode_step_s(shape, devices(len(BATCHES)), batch=BATCHES, context_tokens=CONTEXT, weights="bf16",
                          engine=ENGINES["llm"])  # fmt: skip
    assert np.all(np.diff(steps) > 0)


def test_few_active_experts_serve_faster_than_a_dense_model_of_the_same_size() -> None:
    """Qwen3-30B-A3B decodes and reads prompts faster than Qwen3-32B on one H100, at every batch."""
    there = devices(len(BATCHES))
    for engine in SERVED:
        common = {"weights": "bf16", "engine": ENGINES[engine]}
        few, all_of_it = (
            decode_step_s(find_model(name), there, batch=BATCHES, context_tokens=CONTEXT, **common)  # type: ignore[arg-type]
            for name in ("qwen3-30b-a3b", "qwen3-32b")
        )
        assert np.all(few < all_of_it)
        few, all_of_it = (
            prefill_s(find_model(name), there, batch=1.0, input_tokens=2048.0, **common)  # type: ignore[arg-type]
            for name in ("qwen3-30b-a3b", "qwen3-32b")
        )
        assert np.all(few < 0.5 * all_of_it)


# TensorRT-LLM v1.0, docs/source/performance/perf-overview.md, Qwen3-235B-A22B, TP8: 14,898 output tokens/s at 1000/1000
# on 8 x H100, so 512 requests take 34 ms a step with their prompts. Attention was data-parallel there, which spares
# exchanges and cache.
def test_a_large_mixture_decodes_within_twice_of_published() -> None:
    """Qwen3-235B in fp8 on 8 x H100 takes 20 to 68 ms a step of 512."""
    machine = Machine(
        accelerator=load_catalog().accelerator("H100-SXM"),
        count=8,
        intra=load_catalog().link("nvlink4"),
        network_gb_per_s=None,
        network_latency_us=40.0,
    )
    step = decode_step_s(
        find_model("qwen3-235b-a22b"), serving_devices([machine], FORMATS["fp8"].compute), batch=512.0,
        context_tokens=1500.0, weights="fp8", tensor_parallel=np.array([8.0]), engine=ENGINES["llm"],
    )  # fmt: skip
    assert 0.020 < float(step[0]) < 0.068


def test_busy_experts_follow_from_even_routing() -> None:
    """One token uses k experts; a hundred times E tokens use all; 8 of 128 over 32 tokens: 128·(1 - (15/16)^32)."""
    assert float(busy_experts(128, 8, 1.0)) == pytest.approx(8.0)
    assert float(busy_experts(128, 8, 12800.0)) == pytest.approx(128.0)
    assert float(busy_experts(128, 8, 32.0)) == pytest.approx(128 * (1 - (15 / 16) ** 32))


def test_tiles_of_an_expert_are_half_empty_at_the_end() -> None:
    """A few rows fill half a tile of 16; a thousand waste 64."""
    assert float(padded_rows(1.0)) == pytest.approx(9.0)
    assert float(padded_rows(1000.0)) == pytest.approx(1064.0)
