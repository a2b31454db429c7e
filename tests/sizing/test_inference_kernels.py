"""Kernels of a pass of inference: how many are launched, and what launching and exchanging take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.calibrated_passes import ENGINES, on

from tonnage.sizing.engine_rates import (
    clock_share,
    host_launches,
    kernels_left,
)
from tonnage.sizing.engines import PRIORS, Engine, engine_class
from tonnage.sizing.inference_pass import pass_s, pass_work
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model


def test_eager_framework_is_bound_by_its_host() -> None:
    """Eager BERT-base takes about as long for 1 x 64 as for 4 x 64 tokens, several times a fused engine's time."""
    shape, devices = find_model("bert-base-uncased"), on("A100-40GB-SXM", "fp16")

    def seconds(engine: str, batch: float) -> float:
        work = pass_work(shape, devices, FORMATS["fp16"], ENGINES[engine], batch=batch, query=64.0, keys=64.0)
        return float(pass_s(work, ENGINES[engine])[0])

    assert seconds("eager", 4.0) == pytest.approx(seconds("eager", 1.0), rel=0.02)
    assert seconds("eager", 1.0) > 4 * seconds("fused", 1.0)


def test_kernels_of_images_are_counted_as_written() -> None:
    """ResNet-50 in eager PyTorch calls 53 convolutions, 53 norms, 49 rectifiers and 16 sums: 171. Conversions of
    layout are inside the library's call. Queries, keys and values of a vision transformer are one product."""
    engine, devices = ENGINES["eager"], on("A100-80GB-SXM", "fp16")

    def calls(model: str, *, channels_last: bool = True) -> float:
        work = pass_work(find_model(model), devices, FORMATS["fp16"], engine, batch=1.0, query=1.0, keys=1.0,
                         channels_last=channels_last)  # fmt: skip
        return sum(float(stage.repeats * np.max(host_launches(stage.operators, engine))) for stage in work.stages)

    assert calls("resnet50") == 171.0
    assert calls("resnet50", channels_last=False) - calls("resnet50") == pytest.approx(0.5 * 53)
    assert calls("vit-b16-224") / 12 < calls("bert-base") / 12 - 2.0


def test_norms_spelt_out_cost_an_eager_llama_more_than_an_mpt() -> None:
    """Bound by launches, a decode step of Llama-2-7B takes longer than one of MPT-7B, which has one kernel a norm and
    no rotary positions; a compiled engine sees little of it."""
    llama, mpt = find_model("llama-2-7b"), find_model("mpt-7b")
    devices = on("A100-80GB-SXM", "bf16")

    def ratio(name: str) -> float:
        engine = ENGINES[name]
        a, b = (
            float(
                pass_s(pass_work(shape, devices, FORMATS["bf16"], engine, batch=1.0, query=1.0, keys=512.0), engine)[0]
            )
            for shape in (llama, mpt)
        )
        return a / b

    assert ratio("eager") > 1.3
    assert ratio("llm") < 1.15


def test_kernels_of_a_program_are_counted_as_written() -> None:
    """A BERT layer in eager PyTorch launches 20 kernels: six products around the attention and the MLP, two of the
    scores, scale, mask and softmax, four copies into order, two sums, two norms, an activation. Fusion's share of the
    traffic changes none of them."""
    shape, engine = find_model("bert-base"), ENGINES["eager"]
    work = pass_work(shape, on("A100-80GB-SXM", "fp16"), FORMATS["fp16"], engine, batch=1.0, query=128.0, keys=128.0)
    layer = next(stage for stage in work.stages if stage.name == "layers")

    def kernels(engine: Engine) -> float:
        return sum(float(np.max(op.count * op.kernels * kernels_left(op, engine))) for op in layer.operators)

    assert kernels(engine) == pytest.approx(20.0)
    assert kernels(replace(engine, elementwise_left=4.0)) == pytest.approx(20.0)


def test_a_host_takes_less_for_what_a_module_chains() -> None:
    """BERT's nine modules a layer are whole launches, the eleven operations between them 0.6 of one. A layer of LLaMA
    has 50 kernels, MPT's 23: one more than twice as many, and 1.75 times the time (mosaicml/llm-foundry@8c8dd48f,
    batch 1 on an A100: 26.8 and 15.4 ms a token); our own eager steps lie nearer to their kernels."""
    engine, devices = ENGINES["eager"], on("A100-80GB-SXM", "bf16")

    def launches(name: str, query: float) -> float:
        work = pass_work(find_model(name), devices, FORMATS["bf16"], engine, batch=1.0, query=query, keys=512.0)
        return float(host_launches(next(one for one in work.stages if one.name == "layers").operators, engine))

    assert launches("bert-base", 512.0) == pytest.approx(9 + 11 * 0.6)
    assert 26.8 / 15.4 < launches("llama-7b", 1.0) / launches("mpt-7b", 1.0) < 50 / 23


def test_exchanges_take_longer_among_more_ranks() -> None:
    """What an all-reduce takes before its bytes is that of four ranks in proportion: a ring has 2(n - 1) steps, and
    all wait for the slowest. A framework's host, which launches each, takes longer than either."""
    shape = find_model("llama-2-7b")

    def start_s(engine: Engine, ranks: int) -> float:
        devices = on("H100-SXM", "bf16", count=8, link="nvlink4")
        work = pass_work(
            shape, devices, FORMATS["bf16"], engine, batch=1.0, query=1.0, keys=512.0, tensor_parallel=float(ranks)
        )
        free = replace(engine, exchange_us=0.0)
        return float((pass_s(work, engine) - pass_s(work, free))[0])

    own, launched = ENGINES["llm"], ENGINES["eager"]
    assert start_s(own, 8) / start_s(own, 2) == pytest.approx(4.0)
    assert start_s(launched, 8) / start_s(launched, 2) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("precision", "batch", "keys", "measured_ms"),
    [("fp16", 1.0, 128.0, 1.048), ("fp16", 1.0, 2048.0, 1.096), ("tf32", 8.0, 512.0, 2.083)],
)
def test_captured_decode_steps_are_near_what_was_measured(
    precision: str, batch: float, keys: float, measured_ms: float
) -> None:
    """Four layers of Llama-7B, replayed from a CUDA graph on an H100 (benchmarks/results/gpu_grid_inference_*, in no
    fit): within 35 %, where counting what fusion leaves once more for each kernel gave 1.2 to 1.5 times as long."""
    shape = replace(find_model("llama-7b"), layers=4)
    engine = ENGINES["captured"]
    work = pass_work(
        shape, on("H100-SXM", precision), FORMATS[precision], engine, batch=batch, query=1.0, keys=keys,
        logit_tokens=batch,
    )  # fmt: skip
    assert float(pass_s(work, engine)[0]) * 1e3 == pytest.approx(measured_ms, rel=0.35)


def test_a_framework_pays_the_ring_for_small_all_reduces() -> None:
    """Engines with kernels of their own send small messages in one shot; launched kernels call the ring."""
    shape, devices = find_model("llama-2-7b"), on("A100-80GB-SXM", "bf16", count=2, link="nvlink3")
    own = replace(ENGINES["llm"], host_us_per_kernel=0.0)
    launched = replace(own, host_us_per_kernel=0.001)
    work = pass_work(shape, devices, FORMATS["bf16"], own, batch=1.0, query=1.0, keys=16.0, tensor_parallel=2.0)
    assert pass_s(work, launched)[0] > pass_s(work, own)[0]


def test_a_faster_clock_shortens_the_smallest_kernel() -> None:
    """A kernel's floor is so many cycles: H100's is 1.41 / 1.98 of A100's; where no clock is known, A100's."""
    a100, h100, unknown = (on(name, "fp16") for name in ("A100-80GB-SXM", "H100-SXM", "MI250X"))
    shares = [np.ravel(clock_share(device))[0] for device in (a100, h100, unknown)]
    assert shares == pytest.approx([1.0, 1.41 / 1.98, 1.0])


# benchmarks/results/gpu_grid_inference_h100-80gb-sxm_2026-11-22.csv, CUDA graph rows, fp16, which no fit has seen:
# model, batch, tokens, milliseconds. Eager figures without the host take 2 to 3 times as long.
CAPTURED = [
    ("bert-base-uncased", 8.0, 512.0, 2.193),
    ("bert-base-uncased", 8.0, 128.0, 0.900),
    ("bert-base-uncased", 64.0, 512.0, 15.845),
    ("bert-large-uncased", 8.0, 512.0, 6.254),
]


@pytest.mark.parametrize(("model", "batch", "tokens", "milliseconds"), CAPTURED)
def test_a_captured_framework_replays_its_kernels(model: str, batch: float, tokens: float, milliseconds: float) -> None:
    """Within a factor of 1.5 of passes measured on an H100, before any row of the class is fitted."""
    engine = PRIORS["captured"]
    work = pass_work(find_model(model), on("H100-SXM", "fp16"), FORMATS["fp16"], engine, batch=batch, query=tokens,
                     keys=tokens)  # fmt: skip
    assert 1 / 1.5 < pass_s(work, engine)[0] * 1e3 / milliseconds < 1.5


def test_torchscript_decodes_without_an_interpreter() -> None:
    """A traced model is launched by its own class where it generates too: GPT-2 at batch 1 on a V100 takes 5.8 ms a
    token (microsoft/onnxruntime, transformers README, TorchScript 1.5.1), within a third of it before any fit; the
    interpreter's launches would take half as long again."""
    assert engine_class("pytorch-torchscript", generates=True) == "traced"
    devices = on("V100-PCIe-16GB", "fp32")
    times = []
    for name in ("traced", "eager"):
        work = pass_work(find_model("gpt2"), devices, FORMATS["fp32"], ENGINES[name], batch=1.0, query=1.0, keys=128.0,
                         logit_tokens=1.0)  # fmt: skip
        times.append(float(pass_s(work, ENGINES[name])[0]) * 1e3)
    assert 5.8 / 1.33 < times[0] < 5.8 * 1.33
    assert times[1] > 1.3 * times[0]


def test_a_graph_runs_what_stands_behind_a_convolution_in_one_kernel() -> None:
    """Before any fit TensorFlow's norm, activation and residual sum move half of what kernels move one by one, so that
    a batch of photographs takes it less time."""
    devices, shape = on("V100-16GB", "fp32"), find_model("resnet-50")
    seconds: dict[str, float] = {}
    for name in ("graph", "traced"):
        work = pass_work(shape, devices, FORMATS["fp32"], PRIORS[name], batch=64.0, query=1.0, keys=1.0)
        seconds[name] = float(pass_s(work, PRIORS[name])[0])
    assert PRIORS["graph"].convolution_elementwise_left == PRIORS["traced"].convolution_elementwise_left / 2
    assert seconds["graph"] < 0.9 * seconds["traced"]
