"""XLNet's scores: shifted positions and segments, as each program's source moves them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.engine_rates import fused_share, kernels_left
from tonnage.sizing.engines import PRIORS, Engine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_pass import PassWork, pass_s, pass_work
from tonnage.sizing.operators import Operator
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model

SCORES = 2.0 * 12 * 512 * 512  # elements of one matrix: two sequences, twelve heads
OPERANDS = 8.0 * 2 * 512 * 768


def on_t4(precision: str) -> Devices:
    catalog = load_catalog()
    machine = Machine(
        accelerator=catalog.accelerator("T4"), count=1, intra=catalog.link(""), network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip
    return serving_devices([machine], precision)


def work_of(model: str, engine: Engine, precision: str, *, batch: float, tokens: float) -> PassWork:
    one = np.ones(1)
    return pass_work(
        find_model(model), on_t4(precision), FORMATS[precision], engine, batch=one * batch, query=one * tokens,
        keys=one * tokens,
    )  # fmt: skip


def only(work: PassWork, name: str) -> Operator:
    (found,) = (op for stage in work.stages for op in stage.operators if op.name == name)
    return found


@pytest.mark.parametrize(
    ("engine", "precision", "wide", "single"),
    [
        ("library", "fp32", 14.0, 0.0),
        ("library", "fp16", 11.0, 3.0),  # turned and shifted by kernels that take an element a thread
        ("eager", "fp16", 16.0, 7.0),
        ("graph", "fp32", 37.0, 0.0),
        ("compiled", "fp32", 23.0, 0.0),
        ("compiled", "fp16", 13.0, 10.0),
    ],
)
def test_scores_pass_as_often_as_the_source_moves_them(engine: str, precision: str, wide: float, single: float) -> None:
    """Elements that are taken one by one cost four bytes; fusion's share of element-wise work is not taken of them."""
    fused = replace(PRIORS[engine], elementwise_left=3.0)
    found = only(work_of("xlnet-base-cased", fused, precision, batch=2.0, tokens=512.0), "attention scores")
    element = FORMATS[precision].element_bytes
    assert float(np.max(found.moved_bytes)) == SCORES * (wide * element + single * 4.0) + OPERANDS * element
    assert (fused_share(found, fused), kernels_left(found, fused)) == (1.0, 1.0)


@pytest.mark.parametrize(("engine", "rows"), [("library", 1024.0), ("compiled", 2048.0), ("eager", 2048.0)])
def test_positions_are_projected_once_or_for_each_sequence(engine: str, rows: float) -> None:
    """FasterTransformer projects positions of twice the length once; the authors' program and transformers repeat them
    for each of two sequences first."""
    found = only(work_of("xlnet-base-cased", PRIORS[engine], "fp16", batch=2.0, tokens=512.0), "position projection")
    assert float(np.max(found.rows)) == rows
    assert float(np.max(found.flop)) == 2.0 * rows * 768 * 768


@pytest.mark.parametrize("model", ["deberta-base", "deberta-v3-base"])
def test_gathered_positions_are_not_shifted(model: str) -> None:
    """DeBERTa has neither the second length nor segments: ten passes, and no projection for each of them here."""
    work = work_of(model, PRIORS["library"], "fp32", batch=2.0, tokens=512.0)
    assert float(np.max(only(work, "attention scores").moved_bytes)) == 10.0 * 4.0 * SCORES


@pytest.mark.parametrize(
    ("precision", "batch", "tokens", "measured_ms"),
    [
        ("fp16", 16.0, 128.0, 26.08),
        ("fp16", 64.0, 384.0, 539.69),
        ("fp16", 64.0, 512.0, 773.58),
        ("fp32", 64.0, 512.0, 2269.14),
    ],
)
def test_fastertransformer_on_a_t4_takes_what_its_guide_prints(
    precision: str, batch: float, tokens: float, measured_ms: float
) -> None:
    """NVIDIA/FasterTransformer@df4a7534, docs/xlnet_guide.md: within a fifth (0.63 of it in 16 bit where scores were
    counted as those of any relative positions)."""
    engine = calibrated_engines()["library"]
    found = pass_s(work_of("xlnet-base-cased", engine, precision, batch=batch, tokens=tokens), engine)
    assert float(found[0]) * 1e3 == pytest.approx(measured_ms, rel=0.2)
