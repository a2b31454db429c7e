"""Which scheduler an engine's name stands for."""

from __future__ import annotations

from tonnage.catalog import load_catalog
from tonnage.sizing.replica_model import usual_policy


def test_defaults_follow_engine_and_device() -> None:
    """vLLM: 1,024 requests and 8,192 tokens a step on H100, 256 and 2,048 on A100; TensorRT-LLM 2,048 and 8,192."""
    catalog = load_catalog()
    h100, a100 = catalog.accelerator("H100-SXM"), catalog.accelerator("A100-80GB-SXM")
    sizes = {
        (name, device.name): (policy.max_requests, policy.step_tokens)
        for name in ("vllm", "trtllm")
        for device in (h100, a100)
        for policy in (usual_policy(name, device, kv_tokens=1000),)
    }
    assert sizes["vllm", h100.name] == (1024, 8192)
    assert sizes["vllm", a100.name] == (256, 2048)
    assert sizes["trtllm", a100.name] == (2048, 8192)


def test_who_reads_prompts_first_whole_or_mixed() -> None:
    """vLLM mixes chunks into decode steps, SGLang stops decodes for prompts, TensorRT-LLM reads prompts whole."""
    device = load_catalog().accelerator("H100-SXM")
    vllm, sglang, trt = (usual_policy(name, device, kv_tokens=1000) for name in ("vLLM", "SGLang", "TensorRT-LLM"))
    assert (vllm.prompts_first, vllm.chunked, vllm.admission) == (False, True, "recompute")
    assert (sglang.prompts_first, sglang.chunked, sglang.admission) == (True, True, "recompute")
    assert (trt.prompts_first, trt.chunked, trt.admission) == (False, False, "reserve")
