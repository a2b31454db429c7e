"""No figure of a training plan, nor its interval, passes what the device can do: products, memory, links, the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.errors import UnsizedHardware
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.train_sizing import size_training
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, peak_tflops, product_flop_per_s, stack
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.training_prediction import predict_training, work_of
from tonnage.units import TERA, to_gib
from tonnage.workload.jobs import Constraints, Lengths, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters

CATALOG = load_catalog()
PACKAGED = CalibratedModel.packaged()
# Whether a model fits is not asked here: every layout is let through.
ROOMY = replace(PACKAGED, assumed=replace(PACKAGED.assumed, memory_margin_fraction=-1e6))
MODELS = [
    ("bert-large-uncased", 512),
    ("gpt2-xl", 1024),
    ("llama-2-70b", 4096),
    ("mixtral-8x7b", 2048),
    ("resnet-50", 1),
]


def sized_devices(precision: str) -> list[str]:
    def known(name: str) -> bool:
        device = CATALOG.accelerator(name)
        try:
            peak_tflops(device, TRAINING[precision].compute)
        except UnsizedHardware:
            return False
        return bool(device.memory_bandwidth_gb_per_s and (device.usable_memory_gib or device.memory_gib))

    return [one.name for one in CATALOG.accelerators if known(one.name)]


CASES = [
    (precision, name) for precision in ("fp32", "tf32", "fp16", "bf16", "fp8") for name in sized_devices(precision)
]


def job(model: str, length: int, precision: str, **changes: object) -> TrainJob:
    base = TrainJob(
        model=find_model(model), samples=256, lengths=Lengths(mean=length, maximum=length), epochs=1, global_batch=256,
        micro_batch=32, data_parallel=1, tensor_parallel=1, pipeline_parallel=1,
    )  # fmt: skip
    return replace(base, precision=precision, **changes)  # type: ignore[arg-type]


def machine(name: str, count: int = 1, link: str = "") -> Machine:
    return Machine(
        accelerator=CATALOG.accelerator(name), count=count, intra=CATALOG.link(link), network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip


@pytest.mark.parametrize(("precision", "name"), CASES)
def test_no_plan_passes_the_devices_own_products(precision: str, name: str) -> None:
    """MFU of every model, and the high end of its interval, stay at or below the share of the printed rate that the
    device's own largest product was measured to reach (the best of the catalog, where it was not)."""
    device = CATALOG.accelerator(name)
    compute = TRAINING[precision].compute
    most = product_flop_per_s(device, compute, ROOMY.assumed)
    printed = stack([machine(name)], compute, ROOMY.assumed).peak_flop_per_s[0]
    if device.measured_bf16_matmul_tflops and device.dense_bf16_tflops and compute == "bf16":
        assert most <= device.measured_bf16_matmul_tflops * TERA * (1 + 1e-9)
    for model, length in MODELS:
        for method in ("full",) if model == "resnet-50" else ("full", "lora"):
            work = job(model, length, precision, method=method)
            run = size_training(work, [machine(name)], Constraints(accept_risk=("memory",)), ROOMY).detail(0)
            mfu = dict(run.rates)["mfu_fraction"]
            assert 0 < mfu.low <= mfu.value <= mfu.high <= most / printed * (1 + 1e-9), (model, method)


@pytest.mark.parametrize("ranks", [2, 8])
def test_memory_keeps_the_state_at_its_low_end(ranks: int) -> None:
    """Weights, gradients and AdamW's two moments, 4 bytes each and shared out by ZeRO-3, are no less in any program."""
    work = job("llama-2-7b", 1024, "bf16", sharding="zero3", recompute="full", data_parallel=ranks, micro_batch=1)
    machines = [machine("H200-SXM", ranks, "nvlink4")]
    run = size_training(work, machines, Constraints(accept_risk=("memory",)), PACKAGED).detail(0)
    least = to_gib(16 * count_parameters(work.model).total / ranks)
    assert least <= run.memory_gib.low <= run.memory_gib.value <= run.memory_gib.high
    assert run.intervals[1].spread.low_factor == pytest.approx(run.memory_gib.low / run.memory_gib.value)


@pytest.mark.parametrize("name", ["A100-80GB-SXM", "H100-SXM", "MI300X"])
def test_steps_take_what_memory_links_and_host_take(name: str) -> None:
    """A step is no shorter than its optimizer state through memory, its gradients through the links, its launches."""
    link = "xgmi3" if name.startswith("MI") else "nvlink3"
    assumed, columns = Assumptions(), stack([machine(name, 8, link)], "bf16", Assumptions())
    for model in ("gpt2-xl", "llama-2-7b"):
        for micro in (1, 32):
            layouts = one_layout(micro_batch=micro, data_parallel=8)
            work = job(model, 1024, "bf16")
            step = predict_training((work,), layouts, columns, assumed).step
            work_done = work_of((work,), layouts)
            ring = 2 * 7 / 8 * work_done.gradient_bytes / columns.intra_bytes_per_s
            assert step.total_s[0] >= step.floor_s[0]
            assert step.total_s[0] >= (work_done.optimizer_bytes / columns.bandwidth_bytes_per_s)[0]
            assert step.total_s[0] >= ring[0]
            kernels = sum(
                float(np.sum(part.times * part.operator.count * part.operator.kernels)) for part in work_done.works
            )
            assert step.total_s[0] >= kernels * assumed.training_launch_us_per_kernel * 1e-6


def test_a_device_without_rows_is_wider_and_says_so(catalog: Catalog) -> None:
    """A generation that no measured row had counts as two unknowns; its interval is wider than a known device's."""
    known, unseen = (PACKAGED.training_time(job("gpt2-xl", 1024, "bf16"), catalog.accelerator(name)) for name in
                     ("A100-80GB-SXM", "MI300X"))  # fmt: skip
    assert unseen.unknown == ("MI300X", "CDNA3 GPUs")
    assert known.unknown == ()
    assert unseen.spread.high_factor > known.spread.high_factor
    assert unseen.spread.low_factor < known.spread.low_factor
