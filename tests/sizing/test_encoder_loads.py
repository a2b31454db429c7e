"""Encoders and vision: what a plan says and what a row is judged by are one figure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tonnage.sizing.serving import estimate_replicas

from tonnage.calibration.inference_predict import lay_out
from tonnage.calibration.inference_reading import Case, read_case
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.encoder_loads import client_s, input_bytes, passed_batch, request_s, tail
from tonnage.sizing.engines import ENGINES
from tonnage.sizing.inference_devices import serving_devices
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model

ROW = InferenceRow(
    id="e", config_id="e", source="made up", model="bert-base", params=1.1e8, n_layers=12, d_model=768, n_heads=12,
    n_kv_heads=12, d_ff=3072, vocab=30522, kind="encoder", gpu="T4", n_gpus=1, tp=1, engine="trt", precision="fp16",
    weights_quant="", batch_size=8, concurrency=None, input_len=128.0, output_len=None, metric="sequences_per_s",
    value=500.0, note="",
)  # fmt: skip


def case_of(row: InferenceRow) -> Case:
    case = read_case(row, load_catalog())
    assert isinstance(case, Case)
    return case


@pytest.mark.parametrize("engine", ["trt", "pytorch", "tf", "onnxruntime", "fastertransformer", "triton+onnxruntime"])
@pytest.mark.parametrize("gpu", ["T4", "V100-16GB", "A100-80GB-SXM", "L4", "H100-80GB-SXM"])
def test_a_plan_states_the_rate_that_a_row_is_judged_by(engine: str, gpu: str) -> None:
    """Fixed lengths and a fixed batch: the replica of a plan, at full use, answers what `validate` predicts."""
    case = case_of(replace(ROW, engine=engine, gpu=gpu))
    judged = float(lay_out([case]).predict()[0])
    requests = Requests(input_tokens=Lengths(mean=128.0, maximum=128), output_tokens=None)
    planned = estimate_replicas(
        case.shape, requests, serving_devices([case.machine], case.served.compute), weights="fp16",
        tensor_parallel=np.ones(1), concurrency=np.array([8.0]), engine=ENGINES[case.engine],
    )  # fmt: skip
    full = float(planned.requests_per_s[0]) / Assumptions().target_utilisation
    assert full == pytest.approx(judged, rel=1e-9)


def test_what_clients_send_is_part_of_a_latency() -> None:
    """An image of 224 x 224 in fp32 is 602,112 bytes; slow hosts take longer for it, tokens are next to nothing."""
    vision, text = find_model("vit-base-patch16-224"), find_model("bert-base-uncased")
    assert input_bytes(vision, 197.0) == 3 * 224 * 224 * 4
    assert input_bytes(text, 128.0) == 128 * 16
    fixed, sending = client_s(vision, requests=8.0, tokens=1.0, hosts=1.5)
    assert float(fixed) == pytest.approx(1.5 * 0.35e-3)
    assert float(sending) == pytest.approx(1.5 * 8 * 602_112 / 2.2e9)


def test_a_batching_server_takes_two_passes_or_the_inputs() -> None:
    """A request waits one pass and takes one, unless its input arrives later than that."""
    passes, batching = np.array([0.01, 0.01]), np.array([True, True])
    assert request_s(passes, 0.0, np.array([0.0, 0.05]), batching) == pytest.approx([0.02, 0.06])


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
