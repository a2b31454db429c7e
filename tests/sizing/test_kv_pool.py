"""What engines keep for keys and values, against what they report."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.catalog import load_catalog
from tonnage.sizing.devices import Machine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.kv_pool import engine_memory, windowed
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.units import to_gib
from tonnage.workload.known import find_model

# GiB of cache a device that vLLM logs on H100, 0.90 of memory: llm-d/llm-d-benchmark, config_explorer/
# empirical-vllm-memory-results.md. Model, weights, tensor parallel, GiB.
REPORTED = [("llama-3.1-8b", "bf16", 1, 51.38), ("llama-3.3-70b", "fp8", 2, 32.0), ("qwen3-0.6b", "bf16", 1, 64.45)]


def pool(engine: str, model: str, weights: str, ranks: int, gpu: str = "H100-SXM") -> float:
    device = load_catalog().accelerator(gpu)
    machine = Machine(accelerator=device, count=8, intra=None, network_gb_per_s=None, network_latency_us=0.0)
    scheduler, served = SCHEDULERS[engine], FORMATS[weights]
    found = engine_memory(
        scheduler, find_model(model), served, serving_devices([machine], served.compute),
        tensor_parallel=np.array([float(ranks)]), requests=float(scheduler.most_requests(device)),
        step_tokens=float(scheduler.most_step_tokens(device)),
    )  # fmt: skip
    return to_gib(float(found.pool_bytes[0]))


@pytest.mark.parametrize(("model", "weights", "ranks", "gib"), REPORTED)
def test_vllm_keeps_what_it_reports(model: str, weights: str, ranks: int, gib: float) -> None:
    """Within 4 %: the embeddings of an fp8 checkpoint and the catalog's memory of the device differ a little."""
    assert pool("vllm", model, weights, ranks) == pytest.approx(gib, rel=0.04)


def test_each_engine_has_its_own_rule() -> None:
    """TensorRT-LLM takes 0.90 of what is free, LMDeploy 0.80, TGI 0.95; vLLM counts the sampler's logits."""
    found = {name: pool(name, "llama-3.1-8b", "bf16", 1) for name in ("vllm", "tensorrt-llm", "lmdeploy", "tgi")}
    assert found["lmdeploy"] < found["vllm"] < found["tensorrt-llm"] < found["tgi"]


def test_an_engine_built_for_many_requests_keeps_less_for_their_cache() -> None:
    """28 bytes a logit on every rank of a built engine: 2,048 requests of Llama 3 take 6.2 GiB of each of two devices
    more than 256 do, whatever the degree; 0.90 of it is missing in the cache."""
    machine = Machine(
        accelerator=load_catalog().accelerator("A100-80GB-SXM"), count=8, intra=None, network_gb_per_s=None,
        network_latency_us=0.0,
    )  # fmt: skip
    devices = serving_devices([machine], "fp16")

    def built(requests: float, ranks: float) -> float:
        found = engine_memory(
            SCHEDULERS["tensorrt-llm"], find_model("llama-3.1-70b"), FORMATS["fp16"], devices,
            tensor_parallel=np.array([ranks]), requests=requests, step_tokens=1024.0, cache_fraction=0.90, built=1.0,
        )  # fmt: skip
        return to_gib(float(found.pool_bytes[0]))

    for ranks in (2.0, 8.0):
        assert built(256, ranks) - built(2048, ranks) == pytest.approx(0.90 * 1792 * 128256 * 28 / 2**30, rel=1e-6)


def test_weights_that_do_not_fit_leave_less_than_nothing() -> None:
    """70 B at 16 bit on one 80 GB device: no pool, not a small one."""
    assert pool("vllm", "llama-3.1-70b", "bf16", 1) < 0


def test_a_window_counts_only_where_the_engine_applies_it() -> None:
    """Mistral's 4,096 tokens: vLLM frees what slides out, TensorRT-LLM keeps all."""
    mistral = find_model("mistral-7b-v0.1")
    assert windowed(mistral, SCHEDULERS["vllm"]).sliding_window == 4096
    assert windowed(mistral, SCHEDULERS["tensorrt-llm"]).sliding_window == 0
