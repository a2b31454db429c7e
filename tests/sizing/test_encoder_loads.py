"""Encoders and vision: what a plan says and what a row is judged by are one figure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.inference_predict import lay_out
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.rows import InferenceRow
from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.loading import load_catalog
from tonnage.errors import UnsizedHardware
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine
from tonnage.sizing.encoder_loads import (
    EncoderLoad,
    client_s,
    encoder_figures,
    input_bytes,
    passed_batch,
    request_s,
    tail,
)
from tonnage.sizing.encoder_replicas import encoder_replicas
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_pass import pass_s, pass_work
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model, known_models
from tonnage.workload.parameters import count_parameters

ENGINES = calibrated_engines()

ROW = InferenceRow(
    id="e", config_id="e", source="made up", model="bert-base", params=1.1e8, n_layers=12, d_model=768, n_heads=12,
    n_kv_heads=12, d_ff=3072, vocab=30522, kind="encoder", gpu="T4", n_gpus=1, tp=1, engine="trt", precision="fp16",
    weights_quant="", batch_size=8, concurrency=None, input_len=128.0, output_len=None, metric="sequences_per_s",
    value=500.0, note="",
)  # fmt: skip


def case_of(row: InferenceRow) -> InferenceCase:
    case = read_case(row, load_catalog())
    assert isinstance(case, InferenceCase)
    return case


@pytest.mark.parametrize("engine", ["trt", "pytorch", "tf", "onnxruntime", "fastertransformer", "triton+onnxruntime"])
@pytest.mark.parametrize("gpu", ["T4", "V100-16GB", "A100-80GB-SXM", "L4", "H100-80GB-SXM"])
def test_a_plan_states_the_rate_that_a_row_is_judged_by(engine: str, gpu: str) -> None:
    """Fixed lengths and a fixed batch: the capacity of a plan's replica is what `validate` predicts."""
    case = case_of(replace(ROW, engine=engine, gpu=gpu))
    judged = float(lay_out([case], ENGINES).predict(ENGINES)[0])
    requests = Requests(input_tokens=Lengths(mean=128.0, maximum=128), output_tokens=None)
    planned = encoder_replicas(
        case.shape, requests, serving_devices([case.machine], case.served.compute), "fp16", np.ones(1), np.array([8.0]),
        Assumptions(), ENGINES[case.engine],
    )  # fmt: skip
    assert float(planned.requests_per_s[0]) == pytest.approx(judged, rel=1e-9)


def test_what_clients_send_is_part_of_a_latency() -> None:
    """An image of 224 x 224 in fp32 is 602,112 bytes; slow hosts take longer for it, tokens are next to nothing. What
    the host's caches do not hold moves at the rate of its memory."""
    vision, text = find_model("vit-base-patch16-224"), find_model("bert-base-uncased")
    assert input_bytes(vision, 197.0) == 3 * 224 * 224 * 4
    assert input_bytes(text, 128.0) == 128 * 16
    fixed, sending = client_s(vision, requests=np.array([8.0, 64.0]), tokens=1.0, hosts=1.5)
    assert fixed == pytest.approx(1.5 * 1.05e-3)
    assert sending == pytest.approx([1.5 * 8 * 602_112 / 3.8e9, 1.5 * 64 * 602_112 / 2.2e9])
    many, together = client_s(vision, requests=64.0, tokens=1.0, hosts=1.0, many=True)
    assert (float(many), float(together)) == pytest.approx((1.05e-3, 64 * 602_112 / 3.8e9))
    assert float(client_s(text, requests=1.0, tokens=128.0, hosts=1.0)[0]) == pytest.approx(0.35e-3)


def test_what_a_client_adds_grows_evenly_with_bytes() -> None:
    """One image more takes no jump where messages outgrow the caches: 32 and 64 images are measured.
    A call costs by the bytes of its message up to the 602 kB that it was measured with."""
    vision = find_model("vit-base-patch16-224")
    _, sending = client_s(vision, requests=np.arange(1.0, 129.0), tokens=1.0, hosts=1.0)
    steps = np.diff(np.asarray(sending))
    assert steps.min() > 0.0
    assert steps.max() < 0.7e-3
    assert np.asarray(sending)[[31, 63]] == pytest.approx([32 * 602_112 / 3.8e9, 64 * 602_112 / 2.2e9])
    small = replace(vision, image_side=32)
    assert float(client_s(small, requests=1.0, tokens=1.0, hosts=1.0)[0]) == pytest.approx(0.35e-3 + 0.7e-3 / 49)
    assert float(client_s(small, requests=64.0, tokens=1.0, hosts=1.0, many=True)[0]) < 0.4e-3
    large = replace(vision, image_side=448)
    assert float(client_s(large, requests=1.0, tokens=1.0, hosts=1.0)[0]) == pytest.approx(1.05e-3)


@pytest.mark.parametrize("load", ["pass", "offline"])
def test_instances_that_share_a_device_all_answer(load: EncoderLoad) -> None:
    """Two passes side by side take twice the time and give two batches: no rate is lost, but what copies take."""
    case, one = case_of(ROW), np.ones(1)
    work = pass_work(
        case.shape, serving_devices([case.machine], "fp16"), FORMATS["fp16"], ENGINES["fused"], batch=8.0 * one,
        query=128.0 * one, keys=128.0 * one,
    )  # fmt: skip
    alone = encoder_figures(load, work, ENGINES["fused"], replicas=1.0)
    shared = encoder_figures(load, work, ENGINES["fused"], replicas=1.0, instances=2.0)
    assert shared["rate"] == pytest.approx(alone["rate"])
    assert shared["compute"] == pytest.approx(2.0 * alone["compute"])


def test_a_batching_server_takes_two_passes_and_the_inputs_at_once() -> None:
    """A request waits one pass and takes one; inputs arrive meanwhile: the longer of both where they are far apart,
    never less than either, never more than both in turn."""
    passes, batching = np.array([0.01, 0.01, 0.01]), np.array([True, True, True])
    waited = request_s(passes, 0.0, np.array([0.0, 0.02, 0.2]), batching)
    assert waited == pytest.approx([0.02, 0.02 * 2**0.5, 0.201], rel=1e-3)


def test_an_offline_run_fills_the_device() -> None:
    """32,768 tokens of text, 256 images; a server with 16 users runs half of them at once."""
    text, vision = find_model("bert-base-uncased"), find_model("resnet-50")
    one = np.array([128.0])
    assert passed_batch("offline", text, batch=0.0, tokens=one, users=0.0) == pytest.approx([256.0])
    assert passed_batch("offline", vision, batch=0.0, tokens=one, users=0.0) == pytest.approx([256.0])
    assert passed_batch("batching-server", text, batch=1.0, tokens=one, users=np.array([16.0])) == pytest.approx([8.0])


def test_captured_kernels_vary_less_than_a_server() -> None:
    """The 99th percentile of captured kernels lies nearer to their mean; behind a server there is no difference."""
    assert tail("p99", captured=True, remote=False) < tail("p99", captured=False, remote=False)
    assert tail("p99", captured=True, remote=True) == tail("p99", captured=False, remote=True)


PASSES = ("eager", "graph", "traced", "compiled", "optimised", "converted", "library", "fused")
DEVICES = ("T4", "L4", "L40S", "V100-16GB", "A10", "A100-80GB-SXM", "H100-SXM", "H200", "MI300X", "B200")
SHAPES = [one for one in known_models().values() if one.architecture in ("encoder", "vision-transformer")]


@pytest.mark.parametrize("engine", PASSES)
@pytest.mark.parametrize("device", DEVICES)
def test_no_pass_beats_the_device(engine: str, device: str) -> None:
    """Of every encoder and vision transformer known: a pass of 64 takes at least its products at the rate that the best
    product measured on the device holds, and at least its weights over the whole bandwidth."""
    machine = Machine(
        accelerator=load_catalog().accelerator(device), count=1, intra=None, network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip
    there, figures = serving_devices([machine], "fp16"), ENGINES[engine]
    held = printed_ceiling(machine.accelerator)
    for shape in SHAPES:
        work = pass_work(shape, there, FORMATS["fp16"], figures, batch=64.0, query=128.0, keys=128.0)
        products = sum(
            stage.repeats * float(np.sum(op.count * op.flop)) for stage in work.stages for op in stage.operators
            if op.kind == "gemm"
        )  # fmt: skip
        weights = 2.0 * (count_parameters(shape).total - count_parameters(shape).embedding_total)
        seconds = float(pass_s(work, figures)[0])
        assert seconds >= products / held, shape.name
        if not shape.shared_layers:
            assert seconds >= weights / float(there.bandwidth_bytes_per_s[0]), shape.name


def printed_ceiling(accelerator: Accelerator) -> float:
    """FLOP a second of the best 16-bit product: as measured, else the printed rate."""
    rate = accelerator.measured_bf16_matmul_tflops or accelerator.dense_fp16_tflops or accelerator.dense_bf16_tflops
    assert rate is not None
    return rate * 1e12


@pytest.mark.parametrize("device", ["Trainium1", "Inferentia2", "TPU-v5e"])
def test_chips_of_other_compilers_are_refused_with_what_is_missing(device: str) -> None:
    """Published peaks do not tell the rates of another compiler: no figure is better than a GPU's."""
    machine = Machine(
        accelerator=load_catalog().accelerator(device), count=1, intra=None, network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip
    with pytest.raises(UnsizedHardware, match=r"another compiler \((Neuron|XLA)\) .* NVIDIA and AMD are sized"):
        serving_devices([machine], "bf16")
