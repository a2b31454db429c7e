"""Engine classes, what they cost, and continuous batching."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.calibrated_passes import ENGINES, on

from tonnage.catalog.loading import load_catalog
from tonnage.errors import UnknownName
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import peak_tflops
from tonnage.sizing.engine_rates import (
    engine_operator_s,
    kernels_left,
    tiles_to_half,
)
from tonnage.sizing.engines import PRIORS, engine_class
from tonnage.sizing.inference_devices import TF32_SHARE, sustained_tflops
from tonnage.sizing.inference_pass import PassWork, pass_s, pass_work
from tonnage.sizing.operators import Kind, Operator
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model


@pytest.mark.parametrize(
    ("name", "generates", "expected"),
    [
        ("pytorch", False, "eager"),
        ("pytorch-cudagraph", False, "captured"),
        ("pytorch-cudagraph", True, "captured"),
        ("tf", False, "graph"),
        ("tf-xla", False, "compiled"),
        ("torch.compile", False, "inductor"),
        ("pytorch-xla", False, "compiled"),
        ("onnxruntime", False, "optimised"),
        ("triton+onnxruntime-trt", False, "converted"),
        ("triton+onnxruntime", False, "traced"),
        ("TensorRT", False, "fused"),
        ("aitemplate", False, "fused"),
        ("fastertransformer", False, "library"),
        ("fastertransformer", True, "static-llm"),
        ("trtllm", True, "llm"),
        ("deepspeed", False, "optimised"),
        ("deepspeed", True, "eager"),
        ("tensorrt-llm", True, "llm"),
        ("vLLM", True, "llm-python"),
    ],
)
def test_engine_names_have_a_class(name: str, generates: bool, expected: str) -> None:
    """An engine is its class, by a word of its name; one that decodes with captured kernels is a static LLM engine."""
    assert engine_class(name, generates=generates) == expected
    assert engine_class(expected, generates=generates) == expected


@pytest.mark.parametrize(("gpu", "share"), [("A100-80GB-SXM", 0.85), ("H100-SXM", 0.63)])
def test_only_products_whose_weights_are_expanded_run_below_the_rate(gpu: str, share: float) -> None:
    """Experts in mxfp4 take 1 / share of the work that the same in 16 bits do; attention's products and the head, which
    stay at 16 bits, take as much as ever."""
    model, devices, one = find_model("gpt-oss-20b"), on(gpu, "bf16"), np.ones(1)
    works = (
        pass_work(
            model, devices, FORMATS[name], PRIORS["llm"], batch=one, query=one * 512, keys=one * 512, logit_tokens=one
        )
        for name in ("bf16", "mxfp4")
    )
    whole, packed = ([op for stage in work.stages for op in stage.operators if op.kind == "gemm"] for work in works)
    more = {op.name: float(np.ravel(other.flop / op.flop)[0]) for op, other in zip(whole, packed, strict=True)}
    assert more.pop("mlp up") == pytest.approx(1.0 / share)
    assert more.pop("mlp down") == pytest.approx(1.0 / share)
    assert set(more) >= {"qkv", "vocabulary", "router"}
    assert set(more.values()) == {1.0}


def test_inputs_of_8_bit_products_are_quantised_by_engines_that_scale_each_step() -> None:
    """A kernel before each product of a layer, that reads 2 bytes of a value and writes 1; none before the head, and
    none where scales are fixed (TensorRT-LLM)."""
    model, devices, one = find_model("llama-3.1-8b"), on("H100-SXM", "fp8"), np.ones(1)
    found = {}
    for name in ("llm-python", "llm"):
        work = pass_work(
            model, devices, FORMATS["fp8"], PRIORS[name], batch=one * 4, query=one, keys=one * 64, logit_tokens=one
        )
        found[name] = [
            float(np.ravel(stage.repeats * op.count * op.moved_bytes)[0])
            for stage in work.stages for op in stage.operators if op.name == "quantising"
        ]  # fmt: skip
    inputs = 4 * (model.hidden + model.heads * model.head_dim + 2 * model.hidden + model.ffn)
    assert sum(found["llm-python"]) == 3.0 * model.layers * inputs
    assert found["llm"] == []


def quantised_pass(quantised: bool | None) -> PassWork:
    """One pass of 32 x 384 tokens of BERT-base in 8 bits under FasterTransformer, on a T4."""
    one = np.ones(1)
    return pass_work(find_model("bert-base"), on("T4", "int8"), FORMATS["int8"], PRIORS["library"], batch=one * 32,
                     query=one * 384, keys=one * 384, quantised_residual=quantised)  # fmt: skip


def test_sums_of_32_bits_cost_what_they_move() -> None:
    """384 tokens of BERT-base, 32 at once, take 88.7 ms on a T4 where 8-bit products give 32-bit sums, 59.0 where they
    give 8-bit values (NVIDIA/FasterTransformer, bert_guide): 29.7 ms, those of 6 bytes a value and of a residual stream
    of 2 bytes in place of 1. Unstated, it is between."""
    sums, unstated, values = (
        float(pass_s(quantised_pass(known), PRIORS["library"])[0]) for known in (False, None, True)
    )
    assert sums - values == pytest.approx(29.7e-3, rel=0.2)
    assert values < unstated < sums


def test_products_that_give_8_bits_are_filled_by_more_tiles() -> None:
    """The ramp is of cycles, so that it is of twice the tiles at twice the rate; products of fp8 that give 16 bits
    split their inner length instead."""
    shape, one = find_model("bert-base"), np.ones(1)

    def ramps(precision: str, engine: str) -> set[float]:
        work = pass_work(shape, on("H100-SXM", precision), FORMATS[precision], PRIORS[engine], batch=one, query=one * 8,
                         keys=one * 8)  # fmt: skip
        products = (op for stage in work.stages for op in stage.operators if op.kind == "gemm" and np.any(op.flop))
        return {float(np.max(op.ramp)) for op in products}

    assert ramps("int8", "fused") == {2.0}
    assert ramps("fp8", "llm") == ramps("fp16", "fused") == {1.0}
    product = Operator(name="mlp up", kind="gemm", flop=1e9, rows=128.0, columns=1024.0)
    devices = on("A100-80GB-SXM", "int8")
    slow, fast = (engine_operator_s(replace(product, ramp=ramp), devices, PRIORS["fused"]) for ramp in (2.0, 1.0))
    floor = engine_operator_s(replace(product, flop=0.0), devices, PRIORS["fused"])
    half = PRIORS["fused"].tiles_to_half
    assert float(np.max((slow - floor) / (fast - floor))) == pytest.approx((8.0 + 2 * half) / (8.0 + half), rel=1e-3)


def test_a_network_written_for_transformers_has_a_kernel_a_norm() -> None:
    """A layer of BERT under TensorRT or AITemplate runs seven kernels: four products, one attention, two norms with the
    sum before them; the activation is inside its product. What fusion leaves is of traffic alone."""
    one = np.ones(1)
    work = pass_work(find_model("bert-base"), on("A100-80GB-SXM", "fp16"), FORMATS["fp16"], PRIORS["fused"], batch=one,
                     query=one * 128, keys=one * 128)  # fmt: skip
    layer = [op for stage in work.stages if stage.repeats == 12 for op in stage.operators]
    for left in (0.1, 0.5):
        engine = PRIORS["fused"].with_figures({"elementwise_left": left})
        assert sum(float(np.max(op.count * op.kernels * kernels_left(op, engine))) for op in layer) == 7.0
    image = Operator(name="norm and activation", kind="elementwise", kernels=3.0)
    assert kernels_left(image, PRIORS["fused"]) == PRIORS["fused"].convolution_elementwise_left


def test_products_of_32_bit_operands_reach_less_of_their_rate() -> None:
    """tf32 sustains a smaller share of what is printed than 16 bit does."""
    device = load_catalog().accelerator("A100-80GB-SXM")
    share = {
        name: sustained_tflops(device, name, Assumptions()) / peak_tflops(device, name) for name in ("tf32", "fp16")
    }
    assert share["tf32"] == pytest.approx(TF32_SHARE * share["fp16"])


def test_unknown_engine_is_an_error_that_lists_the_known() -> None:
    """A name without a known word is never taken for another engine."""
    with pytest.raises(UnknownName, match="vllm"):
        engine_class("quux-serve")


# Source tables: engine class, device, precision, model, batch, tokens, milliseconds.
PUBLISHED = [
    # NVIDIA/TensorRT demo/BERT@5094c1de (TensorRT 7.2.3.4)
    ("fused", "A100-40GB-SXM", "fp16", "bert-base-uncased", 32.0, 128.0, 4.67),
    ("fused", "A100-40GB-SXM", "fp16", "bert-large-uncased", 32.0, 128.0, 15.25),
    ("fused", "V100-16GB", "fp16", "bert-base-uncased", 64.0, 128.0, 22.47),
    ("fused", "T4", "fp16", "bert-large-uncased", 32.0, 128.0, 112.32),
    # NVIDIA/DeepLearningExamples@729963dd PyTorch BERT triton/large, client latency at 384 tokens
    ("traced", "A100-80GB-SXM", "fp16", "bert-large-uncased", 16.0, 384.0, 56.4),
    ("converted", "A100-80GB-SXM", "fp16", "bert-large-uncased", 16.0, 384.0, 29.4),
    ("traced", "T4", "fp16", "bert-large-uncased", 16.0, 384.0, 290.5),
]


@pytest.mark.parametrize(("engine", "gpu", "precision", "model", "batch", "tokens", "milliseconds"), PUBLISHED)
def test_published_latencies(
    engine: str, gpu: str, precision: str, model: str, batch: float, tokens: float, milliseconds: float
) -> None:
    """Within 25 %: the 90th percentile that encoder latency is held to."""
    work = pass_work(find_model(model), on(gpu, precision), FORMATS[precision], ENGINES[engine], batch=batch,
                     query=tokens, keys=tokens)  # fmt: skip
    assert pass_s(work, ENGINES[engine])[0] * 1e3 == pytest.approx(milliseconds, rel=0.25)


def test_tensor_parallel_over_pcie_loses_to_nvlink() -> None:
    """The same prefill on 8 cards takes much longer where they talk over PCIe."""
    shape, engine = find_model("llama-2-70b"), ENGINES["llm"]
    times = {
        link: float(pass_s(pass_work(shape, on("A100-80GB-SXM", "fp16", count=8, link=link), FORMATS["fp16"], engine,
                                     batch=4.0, query=2048.0, keys=2048.0, tensor_parallel=8.0), engine)[0])
        for link in ("nvlink3", "pcie4")
    }  # fmt: skip
    assert times["pcie4"] > 1.5 * times["nvlink3"]


def test_weight_only_formats_pay_at_large_batches() -> None:
    """int4 weights stream faster at batch 1, between 1.2 and 2 times; a large batch of products is slower than fp16."""
    shape, engine, devices = find_model("llama-3.1-8b"), ENGINES["llm"], on("A100-80GB-SXM", "fp16")

    def step(weights: str, batch: float) -> float:
        return float(
            pass_s(pass_work(shape, devices, FORMATS[weights], engine, batch=batch, query=1.0, keys=16.0), engine)[0]
        )

    assert 1.2 < step("fp16", 1.0) / step("int4", 1.0) < 2.0
    assert step("int4", 2048.0) > step("fp16", 2048.0)


def test_few_multiprocessors_are_filled_by_few_tiles() -> None:
    """T4 has 40 multiprocessors and A100 108: a product reaches half its rate with that share of the tiles."""
    engine = ENGINES["fused"]
    t4, a100 = (float(np.ravel(tiles_to_half(on(name, "fp16"), engine))[0]) for name in ("T4", "A100-80GB-SXM"))
    assert a100 == pytest.approx(engine.tiles_to_half, rel=0.01)
    assert t4 / a100 == pytest.approx(40 / 108, rel=0.02)


def test_a_convolution_of_few_tiles_fills_less_of_a_device_than_a_product() -> None:
    """A product of few tiles splits its inner length over idle multiprocessors; a convolution does not, so that a small
    batch takes longer than the same FLOP do as a product, and a large one as long."""
    engine, device = replace(ENGINES["fused"], gemm_fraction=1.0, convolution_fraction=1.0), on("A100-80GB-SXM", "tf32")

    def seconds(kind: Kind, rows: float) -> float:
        flop = 2.0 * rows * 512 * 4608
        one = Operator(name=kind, kind=kind, flop=flop, moved_bytes=1.0, rows=rows, columns=512.0, kernels=0.0)
        return float(np.ravel(engine_operator_s(one, device, engine))[0])

    assert seconds("convolution", 196.0) > 1.5 * seconds("gemm", 196.0)
    assert seconds("convolution", 1e6) == pytest.approx(seconds("gemm", 1e6), rel=0.01)


# class, precision, stated -> whether convolutions convert the layout of their images
LAYOUTS: list[tuple[str, str, bool | None, bool]] = [
    ("eager", "tf32", None, True),
    ("eager", "fp16", None, True),
    ("eager", "fp32", None, False),  # outside the tensor cores: libraries have kernels for channels first
    ("eager", "fp16", True, False),
    ("graph", "fp16", None, False),
    ("graph", "fp16", False, True),
    ("compiled", "tf32", None, True),
    ("compiled", "fp16", None, False),
    ("fused", "fp16", None, False),
    ("optimised", "int8", None, False),
]


@pytest.mark.parametrize(("name", "precision", "stated", "turned"), LAYOUTS)
def test_convolutions_on_tensor_cores_convert_images_that_are_laid_out_channels_first(
    name: str, precision: str, stated: bool | None, turned: bool
) -> None:
    """Each convolution then moves its input and its output three times instead of once."""
    shape, devices = find_model("resnet50"), on("A100-80GB-SXM", precision)
    work = pass_work(shape, devices, FORMATS[precision], ENGINES[name], batch=64.0, query=1.0, keys=1.0,
                     channels_last=stated)  # fmt: skip
    moved = {"convolution": 0.0, "layout": 0.0}
    for stage in work.stages:
        for op in stage.operators:
            key = "convolution" if op.kind == "convolution" else op.name
            if key in moved:
                moved[key] += float(np.sum(op.count * op.moved_bytes))
    assert moved["layout"] == pytest.approx(2.0 * moved["convolution"] if turned else 0.0)


# NVIDIA/FasterTransformer@df4a7534, bert_guide: BERT-base on an A100 in int8 (mode 2), ms of one text of 32 and of 384.
SHORT_AND_LONG = (1.53, 1.70)


def test_a_library_is_bound_by_the_host_that_calls_its_kernels() -> None:
    """FasterTransformer replays no graph: what its host takes for a layer's calls is what one short text takes, and
    one of twelve times as many tokens takes hardly longer."""

    def seconds(tokens: float) -> float:
        one = np.ones(1)
        work = pass_work(find_model("bert-base"), on("A100-80GB-SXM", "int8"), FORMATS["int8"], PRIORS["library"],
                         batch=one, query=one * tokens, keys=one * tokens, quantised_residual=True)  # fmt: skip
        return float(pass_s(work, PRIORS["library"])[0])

    assert seconds(32.0) / seconds(384.0) == pytest.approx(SHORT_AND_LONG[0] / SHORT_AND_LONG[1], rel=0.12)
    assert seconds(32.0) == pytest.approx(seconds(128.0), rel=0.01)
