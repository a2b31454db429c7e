"""Step time: published throughputs, and what must always hold."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from tests.sizing.whole_steps import estimate_training_step

from tonnage.catalog.loading import load_catalog
from tonnage.sizing.assumptions import TRAINING_TIME_SPREAD, Assumptions, unfitted
from tonnage.sizing.devices import Devices
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.program_profiles import trainer_of
from tonnage.sizing.trainer_profile import PLAIN, TrainerProfile
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.workload.jobs import Lengths, Sharding, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters
from tonnage.workload.programs import documented
from tonnage.workload.shapes import ModelShape

SAMPLE = Path(__file__).parent.parent / "data" / "training_throughput.csv"
FACTS = Path(os.environ.get("TONNAGE_FACTS", "")) / "training_calibration.csv"


def job(model: str, *, batch: int, length: int, **changes: object) -> TrainJob:
    base = TrainJob(
        model=find_model(model), samples=batch, lengths=Lengths(mean=length, maximum=length), epochs=1,
        global_batch=batch, precision="bf16", objective="language-model",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def predicted_over_measured(row: dict[str, str], devices: Callable[..., Devices], assumed: Assumptions) -> float | None:
    """Ratio for one row of a table in the measured-facts columns; None where this version cannot judge it."""
    needed = ("n_layers", "d_model", "n_heads", "d_ff", "vocab", "seq_len", "micro_batch_per_gpu", "n_gpus")
    single_node = row["sharding"] in ("", "none", "none/ddp", "zero3/fsdp")
    if row["metric"] not in ("sequences_per_s", "tokens_per_s_per_gpu") or row["quality"] != "ok":
        return None
    if any(not row[key] for key in needed) or row["precision"] not in ("fp32", "tf32", "fp16", "bf16"):
        return None
    gpus, micro = int(float(row["n_gpus"])), int(float(row["micro_batch_per_gpu"]))
    if not single_node or gpus > 8:
        return None
    encoder = any(word in row["model"] for word in ("BERT", "ELECTRA", "electra"))
    hidden, heads, length = (int(float(row[key])) for key in ("d_model", "n_heads", "seq_len"))
    shape = ModelShape(
        name=row["model"], architecture="encoder" if encoder else "decoder", layers=int(float(row["n_layers"])),
        hidden=hidden, heads=heads, kv_heads=int(float(row["n_kv_heads"] or heads)), head_dim=hidden // heads,
        ffn=int(float(row["d_ff"])), vocab=int(float(row["vocab"])), gated_mlp="llama" in row["model"].lower(),
    )  # fmt: skip
    accumulation = int(float(row["grad_accum"] or 1))
    work = TrainJob(
        model=shape, samples=1, lengths=Lengths(mean=length, maximum=length), epochs=1,
        global_batch=micro * accumulation * gpus, precision=row["precision"],  # type: ignore[arg-type]
        method="lora" if "lora" in row["method"] else "full",
        attention="flash" if row["attention"] == "flash" else "eager",
        compile=row["compile"] == "y", objective="language-model",
    )  # fmt: skip
    known = {device.name for device in load_catalog().accelerators}
    name = row["gpu"].replace("H100-80GB-", "H100-").replace("RTX", "RTX-").replace("RTX-6000Ada", "RTX-6000-Ada")
    name = name.replace("RTX-A6000", "A6000")
    if name not in known:
        return None
    link = "nvlink4" if "H100-SXM" in name else "nvlink3" if "SXM" in name else "nvlink2" if "V100" in name else "pcie4"
    layout = one_layout(
        micro_batch=micro, accumulation=accumulation, data_parallel=gpus,
        sharding="zero3" if "fsdp" in row["sharding"] else "ddp",
        recompute="full" if row["activation_checkpointing"].startswith("full") else "none",
    )  # fmt: skip
    device = devices(name, precision=row["precision"], count=gpus, link=link)
    step = estimate_training_step(work, layout, device, assumed)
    rate = work.global_batch / float(step.total_s[0])
    return (rate * length / gpus if row["metric"] == "tokens_per_s_per_gpu" else rate) / float(row["value"])


def ratios(path: Path, devices: Callable[..., Devices], assumed: Assumptions) -> list[float]:
    with path.open(newline="") as file:
        found = [predicted_over_measured(row, devices, assumed) for row in csv.DictReader(file)]
    return [ratio for ratio in found if ratio is not None and np.isfinite(ratio)]


def test_judgements_alone_come_near_published_throughputs(devices: Callable[..., Devices]) -> None:
    """Uncalibrated (every figure as it was judged before the first fit) the physics is within 40 % at the median."""
    found = ratios(SAMPLE, devices, unfitted())
    assert len(found) >= 20
    assert median(abs(ratio - 1) for ratio in found) < 0.40


def test_sample_of_published_throughputs(devices: Callable[..., Devices]) -> None:
    """With the fitted figures the library ships with, runs they were fitted to are within 20 % at the median, and most
    lie in the interval that is stated for runs no fit has seen."""
    found = ratios(SAMPLE, devices, Assumptions())
    assert len(found) >= 20
    assert median(abs(ratio - 1) for ratio in found) < 0.20
    inside = [TRAINING_TIME_SPREAD.low_factor <= ratio <= TRAINING_TIME_SPREAD.high_factor for ratio in found]
    assert 0.6 <= sum(inside) / len(inside) <= 1.0


@pytest.mark.facts
@pytest.mark.skipif(not FACTS.is_file(), reason="TONNAGE_FACTS names no folder with training_calibration.csv")
def test_all_published_throughputs(devices: Callable[..., Devices]) -> None:
    """The same, fitted and not, on every run of the facts table that this test can read."""
    fitted, judged = (ratios(FACTS, devices, one) for one in (Assumptions(), unfitted()))
    assert len(fitted) > 250
    assert median(abs(ratio - 1) for ratio in fitted) < 0.20
    assert median(abs(ratio - 1) for ratio in judged) < 0.40


def test_backward_is_twice_forward_and_less_with_a_frozen_base(devices: Callable[..., Devices]) -> None:
    """Full training costs a little over 3 forwards, LoRA about 2 (no weight gradients of the base)."""
    device = devices("A100-80GB-SXM")
    layout = one_layout(micro_batch=4)
    full = estimate_training_step(job("llama-2-7b", batch=4, length=2048), layout, device)
    lora = estimate_training_step(job("llama-2-7b", batch=4, length=2048, method="lora"), layout, device)
    assert 2.0 <= full.backward_s[0] / full.forward_s[0] < 2.5  # fused attention makes its scores again
    assert 1.0 < lora.backward_s[0] / lora.forward_s[0] < 1.4


def test_an_unpublished_link_gives_no_figure(devices: Callable[..., Devices]) -> None:
    """Eight GPUs whose link has no published bandwidth: not a number, never another link's figure."""
    layout = one_layout(micro_batch=4, data_parallel=8)
    step = estimate_training_step(job("gpt2", batch=32, length=512), layout, devices("A100-80GB-SXM", count=8))
    assert np.isnan(step.total_s[0])


def test_pipeline_bubble_is_published_fraction(devices: Callable[..., Devices]) -> None:
    """Bubble over ideal time is (p-1)/m (Narayanan et al. 2021, section 2.2), up to the hand-over of activations."""
    device = devices("A100-80GB-SXM", count=8, link="nvlink3")
    work = job("gpt2-xl", batch=32, length=1024)
    layout = one_layout(micro_batch=1, accumulation=32, pipeline_parallel=8)
    step = estimate_training_step(work, layout, device)
    ideal = step.forward_s[0] + step.backward_s[0] + step.launch_s[0]
    assert step.bubble_s[0] / ideal == pytest.approx(7 / 32, rel=0.05)


def test_virtual_stages_shorten_the_bubble_and_fill_the_first_stage(devices: Callable[..., Devices]) -> None:
    """Three chunks a stage: a third of the bubble, three times the hand-overs (Narayanan et al. 2021, section 2.2.2),
    and 1 + 7/24 times the activations in the first stage (Korthikanti et al. 2022, section 4.2.3)."""
    device = devices("A100-80GB-SXM", count=8, link="nvlink3")
    layout = one_layout(micro_batch=1, accumulation=32, pipeline_parallel=8)
    plain, cut = (job("gpt2-xl", batch=32, length=1024, virtual_stages=count) for count in (None, 3))
    steps = [estimate_training_step(work, layout, device, trainer=trainer_of(work)) for work in (plain, cut)]
    assert steps[1].pipeline_s[0] > 1.5 * steps[0].pipeline_s[0]
    assert steps[1].bubble_s[0] == pytest.approx(steps[0].bubble_s[0] / 3, rel=0.05)
    held = [
        estimate_training_memory(work, layout, trainer=trainer_of(work)).activations_bytes[0] for work in (plain, cut)
    ]
    assert held[1] / held[0] == pytest.approx(1 + 7 / 24, rel=0.03)
    assert "pp 8, 3 chunks each, micro-batch 1" in layout.row(0).describe(3)


@pytest.mark.parametrize("name", ["T4", "V100-16GB", "A100-80GB-SXM", "H100-SXM"])
def test_larger_micro_batches_never_lower_the_rate(name: str, devices: Callable[..., Devices]) -> None:
    """Samples a second grow (or stay) with the micro-batch on every device."""
    device = devices(name, precision="fp16")
    rates = [
        micro / float(estimate_training_step(
            job("bert-base-uncased", batch=micro, length=128, precision="fp16"), one_layout(micro_batch=micro), device,
        ).total_s[0])
        for micro in (1, 2, 4, 8, 16, 32, 64)
    ]  # fmt: skip
    assert rates == sorted(rates)


def seconds(work: TrainJob, device: Devices, trainer: TrainerProfile = PLAIN, **layout: int) -> float:
    """One step of `work`."""
    return float(estimate_training_step(work, one_layout(**layout), device, trainer=trainer).total_s[0])


def test_twice_the_bandwidth_is_not_twice_the_element_wise_rate(devices: Callable[..., Devices]) -> None:
    """Instructions take their time whatever the memory: with the same multiprocessors the gain is under two."""
    device = devices("A100-80GB-SXM", precision="fp16")
    faster = replace(device, bandwidth_bytes_per_s=2 * device.bandwidth_bytes_per_s)
    cut = replace(faster, multiprocessor_hz=2 * device.multiprocessor_hz)  # type: ignore[operator]
    work = job("bert-base-uncased", batch=64, length=512, precision="fp16", attention="eager")
    before, half, whole = (seconds(work, one, micro_batch=64) for one in (device, faster, cut))
    assert whole < half < before
    assert before / half < 1.7


def test_channels_first_costs_sixteen_bit_convolutions_only(devices: Callable[..., Devices]) -> None:
    """Tensor cores want channels last: turning the layout round takes time at 16 bit, none in plain fp32."""
    first = replace(PLAIN, channels_last=False)
    for precision, dearer in (("fp16", True), ("fp32", False)):
        work = job("resnet-50", batch=64, length=1, precision=precision, objective="classification")
        device = devices("V100-16GB", precision=precision)
        turned, straight = (seconds(work, device, trainer, micro_batch=64) for trainer in (first, PLAIN))
        assert (turned > 1.05 * straight) is dearer


def test_sums_of_gradients_are_paid_for_each_micro_batch(devices: Callable[..., Devices]) -> None:
    """Eight micro-batches take eight times the compute of one, one optimizer step, and seven sums of gradients."""
    device, work = devices("A100-80GB-SXM"), job("gpt2-xl", batch=8, length=1024)
    one, eight = (
        estimate_training_step(work, one_layout(micro_batch=1, accumulation=m), device).optimizer_s[0] for m in (1, 8)
    )
    assert one < eight < 8 * one


def test_heads_off_sixteen_bytes_are_slow_in_eager_products(devices: Callable[..., Devices]) -> None:
    """Head width 50 at 16 bit misses the tensor cores: slower than 56, which has more FLOP."""
    device = devices("V100-16GB", precision="fp16")
    work = job("gpt2-xl", batch=4, length=1024, precision="fp16", attention="eager")
    widths = (48, 50, 56)
    shaped = [replace(work, model=replace(work.model, head_dim=width)) for width in widths]
    times = {width: seconds(one, device, micro_batch=4) for width, one in zip(widths, shaped, strict=True)}
    assert times[48] < times[56] < times[50]


def test_reducing_gradients_hides_behind_the_last_backward_only(devices: Callable[..., Devices]) -> None:
    """The same gradients cross the network; eight micro-batches hide no more of them than one does."""
    device = devices("A100-80GB-SXM", count=8, link="nvlink3", network=2.0)
    work = job("gpt2-xl", batch=64, length=1024)
    one, eight = (
        estimate_training_step(
            work, one_layout(micro_batch=1, accumulation=m, data_parallel=16, nodes=2), device
        ).data_parallel_s[0]
        for m in (1, 8)
    )
    assert eight == pytest.approx(one)


@pytest.mark.parametrize(
    ("sharding", "accumulation", "no_sync", "passes"),
    [
        ("ddp", 4, False, 2.0),
        ("zero1", 4, False, 2.0),
        ("zero2", 4, False, 4.0 + 1.0),
        ("zero3", 1, False, 2.0 + 1.0),
        ("zero3", 4, False, 4 * (2.0 + 1.0)),
        ("zero3", 4, True, 4 * 2.0 + 1.0),
    ],
)
def test_shared_gradients_are_scattered_in_every_backward(
    sharding: Sharding, accumulation: int, no_sync: bool, passes: float, devices: Callable[..., Devices]
) -> None:
    """Passes of a ring over all weights: an all-reduce is two; ZeRO-3 gathers twice and scatters once a micro-batch
    (arXiv:1910.02054, section 7.2: 1.5 times an all-reduce), unless accumulation keeps whole gradients; ZeRO-2 gathers
    what the optimizer updated. In full precision, where weights and gradients are as wide."""
    device = devices("A100-80GB-SXM", count=8, link="nvlink3", precision="tf32")
    work = job("gpt2-xl", batch=64, length=1024, precision="tf32")
    layout = one_layout(micro_batch=1, accumulation=accumulation, data_parallel=8, sharding=sharding)
    unhidden = replace(Assumptions(), communication_overlap_fraction=0.0)
    found = estimate_training_step(work, layout, device, unhidden, TrainerProfile(no_sync=no_sync))
    once = 7 / 8 * count_parameters(work.model).total * 4.0 / device.intra_bytes_per_s[0]
    assert found.data_parallel_s[0] == pytest.approx(passes * once, rel=0.05)


def test_a_share_of_the_gradients_is_quicker_to_add_up(devices: Callable[..., Devices]) -> None:
    """Each rank adds up its eighth of scattered gradients; with `no_sync` all of them."""
    device = devices("A100-80GB-SXM", count=8, link="nvlink3")
    work = job("gpt2-xl", batch=64, length=1024)

    def optimizer_s(accumulation: int, no_sync: bool) -> float:
        layout = one_layout(micro_batch=1, accumulation=accumulation, data_parallel=8, sharding="zero3")
        return float(
            estimate_training_step(work, layout, device, trainer=TrainerProfile(no_sync=no_sync)).optimizer_s[0]
        )

    shared, whole = (optimizer_s(8, no_sync) - optimizer_s(1, no_sync) for no_sync in (False, True))
    assert shared == pytest.approx(whole / 8)


def test_products_that_add_up_gradients_leave_nothing_to_add(devices: Callable[..., Devices]) -> None:
    """Megatron-LM since 3.0 accumulates in the product (gradient_accumulation_fusion): a step of eight micro-batches
    moves no more beside products than one; before, each sum was a pass over gradients and 32-bit sums."""
    device = devices("A100-80GB-SXM", count=8, link="nvlink3")
    work = job("gpt2-xl", batch=64, length=1024)
    now, before = (replace(work, program=documented("megatron", version=version)) for version in ("3.0", "2.4"))
    one, eight, apart = (
        estimate_training_step(
            each, one_layout(micro_batch=1, accumulation=m, data_parallel=8), device, trainer=trainer_of(each)
        ).optimizer_s[0]
        for each, m in ((now, 1), (now, 8), (before, 8))
    )
    moved = 7 * 10.0 * count_parameters(work.model).total
    assert eight == one
    assert apart - eight == pytest.approx(moved / (2039e9 * Assumptions().optimizer_memory_fraction), rel=0.05)


def test_little_power_counts_once(devices: Callable[..., Devices]) -> None:
    """A T4 trains at the rate its power budget allows; the share that inference takes off small boards is not taken
    off again."""
    device = devices("T4", precision="fp16")
    work = job("bert-large-uncased", batch=32, length=128, precision="fp16")
    unlimited = replace(device, peak_flop_per_s=device.peak_flop_per_s / device.printed_share, printed_share=None)  # type: ignore[operator]
    assert seconds(work, device, micro_batch=32) == pytest.approx(seconds(work, unlimited, micro_batch=32))


def test_many_small_gathers_over_many_ranks_cost_their_hops(devices: Callable[..., Devices]) -> None:
    """ZeRO-3 of GPT-3 175B: arXiv:2104.04473, table 2, prints that 1,536 A100 take as long a step as 768 (67 s): each
    tensor is gathered by itself round all ranks. A layer at a time, as FSDP does, costs a twelfth of the hops."""
    gpt3 = {"layers": 96, "hidden": 12_288, "heads": 96, "kv_heads": 96, "head_dim": 128, "ffn": 49_152}
    work = job("gpt2-xl", batch=1536, length=2048)
    work = replace(work, model=replace(work.model, **gpt3))
    device = devices("A100-80GB-SXM", count=8, link="nvlink3", network=200.0)

    unhidden = replace(Assumptions(), communication_overlap_fraction=0.0)

    def data_parallel_s(ranks: int, trainer: TrainerProfile) -> float:
        layout = one_layout(
            micro_batch=1536 // ranks, data_parallel=ranks, nodes=ranks // 8, sharding="zero3", recompute="full"
        )
        return float(estimate_training_step(work, layout, device, unhidden, trainer).data_parallel_s[0])

    layered, apart = TrainerProfile(), TrainerProfile(separate_gathers=True)
    hops = 2 * 96 * 12 * (192 * 14e-6 + 1344 * 3.4e-6)
    assert data_parallel_s(1536, apart) - data_parallel_s(1536, layered) == pytest.approx(11 / 12 * hops, rel=0.05)
    assert data_parallel_s(1536, apart) > 1.3 * data_parallel_s(768, apart)
