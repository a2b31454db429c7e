"""Inference: KV cache, published latencies and decode rates, replicas under load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.whole_steps import prefill_s

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.decoder_replicas import decoder_rows
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.encoder_replicas import encoder_replicas
from tonnage.sizing.engines import PRIORS
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_memory import (
    ServingMemory,
    activation_bytes,
    attending,
    attends_today,
    estimate_serving_memory,
    held_tokens,
    kv_bytes_per_token,
)
from tonnage.sizing.inference_time import decode_step_s, forward_s
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.units import to_gib
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model
from tonnage.workload.shapes import ModelShape

ONE = np.ones(1)
FUSED, SERVED = calibrated_engines()["fused"], calibrated_engines()["llm-python"]  # what plans serve with


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-2-7b", 2 * 32 * 4096 * 2),  # every head has its own keys and values
        ("llama-3.1-70b", 2 * 80 * 8 * 128 * 2),  # eight key-value heads
        ("falcon-7b", 2 * 32 * 64 * 2),  # one
        ("deepseek-v3", 61 * (512 + 64) * 2),  # compressed: arXiv:2412.19437, section 2.1.1
        ("bert-base-uncased", 0),
    ],
)
def test_kv_cache_bytes_per_token(model: str, expected: int) -> None:
    """2 (keys, values) x layers x kv heads x head width x 2 bytes; an encoder keeps none."""
    assert kv_bytes_per_token(find_model(model)) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("mistral-7b-v0.1", 4096.0),  # a window in all layers
        ("gpt-oss-20b", (8192 + 128) / 2),  # in every second layer
        ("gemma-3-1b", (4 * 8192 + 22 * 512) / 26),
        ("llama-2-7b", 8192.0),
    ],
)
def test_tokens_the_mean_layer_holds(model: str, expected: float) -> None:
    """Of a request of 8,192 tokens, a layer behind a window keeps the window, the others all."""
    assert held_tokens(find_model(model), 8192.0) == pytest.approx(expected)


def test_latent_keys_are_whole_on_every_rank() -> None:
    """The compressed keys and values of DeepSeek do not divide over a tensor-parallel group."""
    shape = find_model("deepseek-v3")
    assert kv_bytes_per_token(shape, 8.0) == kv_bytes_per_token(shape)


def one_pass(model: str, weights: str) -> ServingMemory:
    """A pass over one token on one device."""
    return estimate_serving_memory(
        find_model(model), served=FORMATS[weights], tensor_parallel=ONE, batch=1.0, tokens=1.0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "engine", "batch", "tokens", "measured_mib"),
    [
        ("bert-base-uncased", "captured", 64.0, 512.0, 957.0),
        ("bert-base-uncased", "eager", 64.0, 512.0, 2100.0),  # scores in DRAM, before and after their softmax
        ("llama-7b", "captured", 64.0, 128.0, 1414.0),
        ("llama-7b", "captured", 64.0, 512.0, 5678.0),
        ("tinyllama-1.1b", "eager", 8.0, 2048.0, 9006.0),
    ],
)
def test_activations_of_a_pass_are_those_measured(
    model: str, engine: str, batch: float, tokens: float, measured_mib: float
) -> None:
    """Peaks that PyTorch allocated on an H100 in fp32 (benchmarks/results/gpu_grid_inference_h100*), less the weights
    and what its process kept of earlier points: within 5 %. Layers of one width peak alike, however many there are."""
    found = activation_bytes(
        find_model(model), FORMATS["fp32"], calibrated_engines()[engine], batch=batch, tokens=tokens,
        tensor_parallel=1.0,
    )  # fmt: skip
    assert float(found) / 2**20 == pytest.approx(measured_mib, rel=0.05)


def test_activations_divide_over_a_tensor_parallel_group_but_for_what_each_keeps() -> None:
    """Heads and MLP divide; the residual and the layer's input do not."""
    llama = find_model("llama-7b")
    one, eight = (
        float(activation_bytes(llama, FORMATS["fp16"], None, batch=1.0, tokens=1.0, tensor_parallel=t))
        for t in (1.0, 8.0)
    )
    assert one == 2 * (3 * 4096 + 3 * 11008)
    assert eight == 2 * (3 * 4096 + 3 * 11008 / 8)


def test_llama_7b_weights_in_fp16() -> None:
    """Llama-7B's weights take 12.6 GiB in fp16 (6.74e9 x 2 bytes)."""
    memory = estimate_serving_memory(
        find_model("llama-7b"), served=FORMATS["fp16"], tensor_parallel=ONE, batch=1.0, tokens=1.0
    )
    assert to_gib(float(memory.weights_bytes[0])) == pytest.approx(12.55, abs=0.05)


# NVIDIA/TensorRT demo/BERT@5094c1de (TensorRT 7.2.3.4), fp16, 128 tokens: batch, milliseconds (mean). V100's rows of
# batch 32 lie a quarter above the line through 24 and 64.
TENSORRT = [
    ("A100-40GB-SXM", "bert-base-uncased", 32.0, 4.67),
    ("A100-40GB-SXM", "bert-large-uncased", 32.0, 15.25),
    ("V100-16GB", "bert-base-uncased", 24.0, 8.6),
    ("T4", "bert-base-uncased", 32.0, 33.83),
    ("T4", "bert-large-uncased", 32.0, 112.32),
]


@pytest.mark.parametrize(("name", "model", "batch", "measured_ms"), TENSORRT)
def test_published_encoder_latency(name: str, model: str, batch: float, measured_ms: float) -> None:
    """Within 25 % of TensorRT's own figures (the 90th percentile that encoder latency is held to)."""
    machine = Machine(
        accelerator=load_catalog().accelerator(name),
        count=1,
        intra=None,
        network_gb_per_s=None,
        network_latency_us=40.0,
    )
    device = serving_devices([machine], "fp16")
    seconds = forward_s(find_model(model), device, batch=batch, query=128.0, keys=128.0, weights="fp16", engine=FUSED)[
        0
    ]
    assert seconds * 1e3 == pytest.approx(measured_ms, rel=0.25)


@pytest.mark.parametrize("batch", [1.0, 8.0, 64.0])
def test_encoder_latency_grows_with_batch(batch: float, devices: Callable[..., Devices]) -> None:
    """A larger batch never answers sooner, and never at a lower rate."""
    device = devices("A100-40GB-SXM", precision="fp16")
    shape = find_model("bert-base-uncased")
    one = forward_s(shape, device, batch=batch, query=128.0, keys=128.0, weights="fp16", engine=FUSED)[0]
    two = forward_s(shape, device, batch=2 * batch, query=128.0, keys=128.0, weights="fp16", engine=FUSED)[0]
    assert one <= two <= 2 * one


def test_decode_is_bound_by_weights_at_batch_one(devices: Callable[..., Devices]) -> None:
    """One request of Llama-2-7B in fp16 on an A100 runs at 0.5 to 0.8 of bandwidth (good engines reach 0.64-0.73)."""
    step = decode_step_s(find_model("llama-2-7b"), devices("A100-80GB-SXM"), batch=1.0, context_tokens=256.0,
                         weights="fp16", engine=SERVED)[0]  # fmt: skip
    streamed = 6.738e9 * 2 / step / 2039e9
    assert 0.5 < streamed < 0.8


def test_prefill_costs_compute_and_decode_costs_memory(devices: Callable[..., Devices]) -> None:
    """Doubling the prompt about doubles prefill; doubling the batch barely changes a decode step."""
    device, shape = devices("A100-80GB-SXM"), find_model("llama-2-7b")
    short, long = (
        prefill_s(shape, device, batch=1.0, input_tokens=n, weights="fp16", engine=SERVED)[0] for n in (1024.0, 2048.0)
    )
    one, two = (
        decode_step_s(shape, device, batch=b, context_tokens=128.0, weights="fp16", engine=SERVED)[0]
        for b in (1.0, 2.0)
    )
    assert 1.8 < long / short < 2.3
    assert two / one < 1.05


def test_fewer_bits_decode_faster_and_need_less(devices: Callable[..., Devices]) -> None:
    """fp16, int8, int4: each smaller format streams less and holds less."""
    device, shape = devices("A100-80GB-SXM"), find_model("llama-2-7b")
    steps = [
        decode_step_s(shape, device, batch=1.0, context_tokens=128.0, weights=w, engine=SERVED)[0]
        for w in ("fp16", "int8", "int4")
    ]
    sizes = [float(one_pass(shape.name, w).weights_bytes[0]) for w in ("fp16", "int8", "int4")]
    assert steps == sorted(steps, reverse=True)
    assert sizes == sorted(sizes, reverse=True)


def test_encoder_p95_follows_the_longest_requests(devices: Callable[..., Devices]) -> None:
    """A spread of lengths raises the p95 above that of equal lengths, and the rate falls as batches are padded."""
    shape, device = find_model("bert-large-uncased"), devices("T4", precision="fp16")
    same, spread = (
        encoder_replicas(
            shape,
            Requests(input_tokens=Lengths(mean=128, maximum=longest), output_tokens=None),
            device,
            "fp16",
            ONE,
            ONE * 4,
            Assumptions(),
            FUSED,
        )
        for longest in (128, 512)
    )
    alone = forward_s(shape, device, batch=ONE * 4, query=512.0, keys=512.0, weights="fp16", engine=FUSED)
    assert spread.latency_p95_s[0] > alone[0] > same.latency_p95_s[0] / 2
    assert spread.requests_per_s[0] < same.requests_per_s[0]


# benchmarks/results/gpu_grid_inference_h200: BERT under PyTorch, peak allocated: model, precision, batch, tokens,
# whether attention is one kernel, GiB.
ALLOCATED = [("bert-base", "fp16", 64, 512, True, 0.684), ("bert-base", "fp32", 64, 512, False, 2.500),
             ("bert-base", "fp32", 64, 512, True, 1.373), ("bert-large", "fp16", 1, 128, True, 0.657)]  # fmt: skip


@pytest.mark.parametrize(("model", "precision", "batch", "tokens", "fused", "gib"), ALLOCATED)
def test_allocated_peaks_of_encoders(
    model: str, precision: str, batch: int, tokens: int, fused: bool, gib: float
) -> None:
    """Within 6 % of what PyTorch allocated on an H200: weights, the widest instant, scores where they are written, and
    cuBLAS's workspace."""
    memory = estimate_serving_memory(
        find_model(model), served=FORMATS[precision], tensor_parallel=np.ones(1), batch=float(batch),
        tokens=float(tokens), engine=attending(PRIORS["eager"], fused),
    )  # fmt: skip
    assert to_gib(float(memory.allocated_bytes[0])) == pytest.approx(gib, rel=0.06)


def test_pytorch_attends_in_one_kernel_where_transformers_has_one() -> None:
    """T5 has, DeBERTa, BLOOM and a shape of no known family have not; other engines are as their class has it."""
    eager, library = PRIORS["eager"], PRIORS["library"]
    assert {name: attends_today(eager, find_model(name)) for name in ("bert-base", "t5-base", "deberta-v3-base")} == {
        "bert-base": True, "t5-base": True, "deberta-v3-base": False,
    }  # fmt: skip
    bare = ModelShape(name="own", architecture="encoder", layers=2, hidden=64, heads=4, kv_heads=4, head_dim=16,
                      ffn=128, vocab=300)  # fmt: skip
    assert attends_today(eager, bare) is False
    assert attends_today(library, find_model("bert-base")) is None


@pytest.mark.parametrize("model", ["bloom-7b1", "mpt-7b"])
def test_scores_of_a_family_without_one_kernel_are_in_memory(model: str) -> None:
    """8 x 2,048 tokens under PyTorch: 32 heads' scores, before and after their softmax, of 16 bits, are 4 GiB."""
    shape, eager = find_model(model), PRIORS["eager"]
    held = [
        activation_bytes(shape, FORMATS["fp16"], engine, batch=8.0, tokens=2048.0, tensor_parallel=1.0)
        for engine in (attending(eager, attends_today(eager, shape)), attending(eager, True))
    ]
    assert shape.heads == 32
    assert to_gib(float(held[0])) > 4.0 > 1.5 > to_gib(float(held[1]))


def test_convolutions_keep_the_workspace_that_is_assumed() -> None:
    """The 32 MiB that PyTorch sets are cuBLAS's, of encoders; a convolution's, cuDNN's, follow the assumption."""

    def workspace(model: str, gib: float) -> float:
        memory = estimate_serving_memory(
            find_model(model), served=FORMATS["fp16"], tensor_parallel=np.ones(1), batch=1.0, tokens=1.0,
            engine=PRIORS["eager"], assumed=replace(Assumptions(), library_workspace_gib=gib),
        )  # fmt: skip
        return to_gib(float(memory.workspace_bytes[0]))

    assert [workspace("resnet-50", gib) for gib in (0.15, 4.0)] == [0.15, 4.0]
    assert [workspace("bert-base", gib) for gib in (0.15, 4.0)] == [2**-5, 2**-5]


def test_prompts_of_a_fixed_batch_are_read_by_one_kernel_unless_stated() -> None:
    """Llama 2 7B under PyTorch, 2,048 tokens: scores of 32 heads, before and after their softmax, are 2 x 32 x 2,048^2
    elements of 16 bits where attention is stated to be eager, and nothing where it is not."""
    shape, accelerator = find_model("llama-2-7b"), load_catalog().accelerator("H100-SXM")
    machine = Machine(accelerator=accelerator, count=1, intra=None, network_gb_per_s=None, network_latency_us=0.0)
    request = Requests(input_tokens=Lengths(mean=2048, maximum=2048), output_tokens=Lengths(mean=128, maximum=128))

    def read(fused: bool | None) -> float:
        rows = decoder_rows(
            shape, FORMATS["fp16"], SCHEDULERS["static"], serving_devices([machine], "fp16"), [accelerator], [request],
            tensor_parallel=ONE, concurrency=ONE, engine=PRIORS["eager"], fused_attention=fused,
        )  # fmt: skip
        return float(np.ravel(rows.read_bytes)[0])

    assert read(None) == read(True) < read(False)
    assert read(False) > 2 * 32 * 2048**2 * 2
