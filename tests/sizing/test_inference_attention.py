"""Attention in a pass of inference: what it moves of keys, values and scores, by engine and device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.calibrated_passes import ENGINES, machine, on

from tonnage.sizing.engine_rates import (
    engine_operator_s,
    fused_share,
)
from tonnage.sizing.engines import PRIORS
from tonnage.sizing.inference_attention import cache_traffic, repeated_heads, stores_scores
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_pass import pass_s, pass_work
from tonnage.sizing.inference_time import forward_s
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model


def test_scores_of_a_framework_are_moved_as_its_authors_wrote_it() -> None:
    """The score matrix goes through memory eight times, whatever other copies a class adds to element-wise work; a
    compiled one fuses a part of it."""
    model, devices, one = find_model("bert-base"), on("A100-80GB-SXM", "fp16"), np.ones(1)
    for name, passes in (("eager", 8.0), ("compiled", 6.0)):
        engine = replace(PRIORS[name], elementwise_left=3.0)
        work = pass_work(model, devices, FORMATS["fp16"], engine, batch=one, query=one * 512, keys=one * 512)
        (scores,) = (op for stage in work.stages for op in stage.operators if op.name == "attention scores")
        assert float(np.asarray(scores.moved_bytes)[0]) == passes * 2.0 * 12 * 512 * 512
        assert fused_share(scores, engine) == (1.0 if name == "eager" else 3.0)


@pytest.mark.parametrize(
    ("engine", "precision", "stored"), [("fused", "fp16", 0), ("fused", "fp32", 1), ("library", "fp16", 1)]
)
def test_engines_that_are_one_network_keep_scores_of_any_length(engine: str, precision: str, stored: int) -> None:
    """TensorRT and AITemplate read 1,024 tokens without writing their scores, in 16 bits."""
    found = stores_scores(find_model("bert-base"), FORMATS[precision], PRIORS[engine], np.array([1024.0]))
    assert np.asarray(found).tolist() == [stored]


# NVIDIA/TensorRT@69b9d453, demo/BERT, BERT-base on an A100 of 40 GB, TensorRT 10.2 in int8: milliseconds at 384 tokens.
ONE_AND_TWO_SEQUENCES = (1.13, 1.31)


def test_attention_of_few_heads_leaves_multiprocessors_idle() -> None:
    """TensorRT and AITemplate run a thread block for each head of each sequence, so that two sequences of 12 heads take
    as long as one of 108 multiprocessors; nine fill them. FasterTransformer divides the heads."""

    def seconds(engine: str, batch: float) -> float:
        one = np.ones(1)
        devices = on("A100-40GB-SXM", "int8")
        work = pass_work(find_model("bert-base"), devices, FORMATS["int8"], PRIORS[engine], batch=batch * one,
                         query=one * 384, keys=one * 384)  # fmt: skip
        (attention,) = (op for stage in work.stages for op in stage.operators if op.kind == "attention")
        return float(np.max(engine_operator_s(replace(attention, moved_bytes=0.0), devices, PRIORS[engine])))

    assert seconds("fused", 1.0) == pytest.approx(seconds("fused", 2.0)) == pytest.approx(seconds("fused", 9.0))
    assert seconds("fused", 18.0) > 1.5 * seconds("fused", 9.0)
    assert seconds("library", 2.0) > 1.1 * seconds("library", 1.0)
    # What one pass takes beside two says whether its attention was counted as if it filled the device (0.74 of it).
    first, second = (
        float(forward_s(find_model("bert-base"), on("A100-40GB-SXM", "int8"), batch=np.array([batch]), query=384.0,
                        keys=384.0, weights="int8", engine=PRIORS["fused"])[0])
        for batch in (1.0, 2.0)
    )  # fmt: skip
    assert first / second == pytest.approx(ONE_AND_TWO_SEQUENCES[0] / ONE_AND_TWO_SEQUENCES[1], rel=0.05)


@pytest.mark.parametrize("tokens", [128.0, 384.0, 1024.0])
@pytest.mark.parametrize("engine", ["fused", "library"])
def test_a_device_takes_what_it_takes_alone_whatever_stands_beside_it(engine: str, tokens: float) -> None:
    """One whose scores pass through memory (Volta) changes nothing of another's row."""
    model, served = find_model("bert-base"), FORMATS["fp16"]
    engines = replace(PRIORS[engine], sequence_us=0.0)

    def seconds(*names: str) -> list[float]:
        devices = serving_devices([machine(name) for name in names], "fp16")
        many = np.ones(len(names))
        work = pass_work(model, devices, served, engines, batch=many, query=many * tokens, keys=many * tokens)
        return [float(value) for value in np.broadcast_to(pass_s(work, engines), len(names))]

    alone = [seconds(name)[0] for name in ("A100-80GB-SXM", "V100-SXM2-16GB", "T4")]
    assert seconds("A100-80GB-SXM", "V100-SXM2-16GB", "T4") == pytest.approx(alone)


def test_long_sequences_are_taken_in_as_many_blocks_as_tiles() -> None:
    """AITemplate, BERT-base on an A100: two sequences of 1,024 tokens take twice as long as one (2.2 and 4.15 ms)."""
    model, devices, one = find_model("bert-base"), on("A100-80GB-SXM", "fp16"), np.ones(1)
    found = []
    for batch in (1.0, 2.0):
        work = pass_work(
            model, devices, FORMATS["fp16"], PRIORS["fused"], batch=one * batch, query=one * 1024, keys=one * 1024
        )
        found.append(float(np.asarray(pass_s(work, PRIORS["fused"])).item()))
    assert found[1] > 1.6 * found[0]


def test_fp8_cache_makes_decoding_faster_at_long_contexts() -> None:
    """Half the bytes of keys and values: a step of 64 requests at 4,096 tokens gets faster, one at 16 hardly."""
    shape, engine, devices = find_model("llama-3.1-8b"), ENGINES["llm"], on("H100-SXM", "fp8")

    def step(kv_bytes: float, context: float) -> float:
        served = replace(FORMATS["fp8"], kv_bytes=kv_bytes)
        return float(pass_s(pass_work(shape, devices, served, engine, batch=64.0, query=1.0, keys=context), engine)[0])

    assert step(1.0, 4096.0) < 0.8 * step(2.0, 4096.0)
    assert step(1.0, 16.0) == pytest.approx(step(2.0, 16.0), rel=0.02)


def test_shared_keys_are_written_out_by_programs_as_written() -> None:
    """Llama-3.1-8B has 4 query heads a key: a framework moves its cache 8 times more, an LLM engine does not."""
    shape = find_model("llama-3.1-8b")
    assert repeated_heads(shape, ENGINES["eager"]) == 8.0
    assert repeated_heads(shape, ENGINES["llm"]) == 0.0
    assert repeated_heads(find_model("llama-2-7b"), ENGINES["eager"]) == 0.0


@pytest.mark.parametrize("engine", ["eager", "traced", "hosted-llm"])
def test_a_cache_that_is_concatenated_costs_an_element_as_much_in_16_bits_as_in_32(engine: str) -> None:
    """Read, written and read again by kernels that take an element a thread: twelve bytes each in either width.
    ONNX Runtime on a V100 takes 2.9 and 3.5 ms more for 96 more tokens of GPT-2 at batch 128 (fp16, fp32;
    microsoft/onnxruntime, transformers README), of 0.45 and 0.91 GB."""
    shape = find_model("gpt2")
    bytes_of_one = [cache_traffic(shape, FORMATS[name], PRIORS[engine]) * FORMATS[name].element_bytes
                    for name in ("fp16", "fp32")]  # fmt: skip
    assert bytes_of_one == [12.0, 12.0]
    assert cache_traffic(shape, FORMATS["fp16"], PRIORS["llm"]) == 1.0


@pytest.mark.parametrize(
    ("name", "precision", "slower"), [("eager", "fp16", 8), ("eager", "fp32", 1), ("graph", "fp16", 1)]
)
def test_scores_of_an_odd_number_of_patches_run_beside_tensor_cores(name: str, precision: str, slower: float) -> None:
    """Rows of 577 scores in 16 bit start where tensor cores cannot read them: a program as written multiplies them at
    an eighth of the rate. Scores of images pass no mask, those of texts do."""
    shape = find_model("vit-b16-384")
    work = pass_work(shape, on("A100-80GB-SXM", precision), FORMATS[precision], ENGINES[name], batch=8.0, query=1.0,
                     keys=1.0)  # fmt: skip
    (products,) = (op for stage in work.stages for op in stage.operators if op.name == "attention")
    assert float(np.sum(products.flop)) == pytest.approx(slower * 4.0 * 8.0 * 577**2 * 768)


def test_scores_of_images_pass_no_mask() -> None:
    """A program as written moves the scores of images six times, those of texts, which are masked, eight times."""

    def passes(model: str, tokens: float) -> float:
        shape = find_model(model)
        work = pass_work(shape, on("A100-80GB-SXM", "fp16"), FORMATS["fp16"], ENGINES["eager"], batch=8.0, query=tokens,
                         keys=tokens)  # fmt: skip
        (scores,) = (op for stage in work.stages for op in stage.operators if op.name == "attention scores")
        length = 577.0 if shape.image_side else tokens
        return float(np.sum(scores.moved_bytes)) / (2.0 * 8.0 * shape.heads * length**2)

    assert passes("vit-b16-384", 1.0) == pytest.approx(6.0)
    assert passes("bert-base", 512.0) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("gpu", "engine", "stored"),
    [
        ("V100-16GB", "library", 1.0),
        ("V100-16GB", "fused", 1.0),
        ("V100-16GB", "inductor", 0.0),  # memory-efficient attention runs on Volta
        ("T4", "library", 0.0),
        ("A100-40GB-SXM", "fused", 0.0),
    ],
)
def test_fused_attention_of_engines_is_made_for_turing_and_newer(gpu: str, engine: str, stored: float) -> None:
    """On Volta the scores of TensorRT's and FasterTransformer's BERT pass through memory."""
    devices = on(gpu, "fp16")
    found = stores_scores(find_model("bert-base"), FORMATS["fp16"], PRIORS[engine], np.array([384.0]), devices)
    assert np.asarray(found).tolist() == [stored]


@pytest.mark.parametrize(("precision", "seen"), [("fp32", 384.0), ("fp16", 192.0)])
def test_attention_that_is_not_fused_sees_the_padding(precision: str, seen: float) -> None:
    """Of 384 tokens of which 192 are left, products of the layers see 192 a sequence; attention whose scores pass
    through memory is computed over 384 again, a fused kernel over what is there."""
    work = pass_work(
        find_model("bert-base"), on("T4", precision), FORMATS[precision], ENGINES["library"], batch=8.0, query=192.0,
        keys=192.0, padded=384.0,
    )  # fmt: skip
    operators = {op.name: op for stage in work.stages for op in stage.operators}
    assert float(np.sum(operators["attention"].flop)) == pytest.approx(4.0 * 8.0 * seen**2 * 768)
    assert float(np.sum(operators["mlp up"].flop)) == pytest.approx(2.0 * 8.0 * 192 * 768 * 3072)
