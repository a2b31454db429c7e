"""Training memory: ZeRO's published state sizes, measured peaks, and what must always hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.catalog import load_catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import GENERATIONS, Machine, channel_share, stack
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_activations import kept_activations
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.sizing.training_prediction import predict_training
from tonnage.units import to_gib
from tonnage.workload.jobs import Lengths, Lora, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.programs import documented
from tonnage.workload.shapes import ModelShape

SHARDINGS = ("ddp", "zero1", "zero2", "zero3")
VOLTA = GENERATIONS.index("Volta")


def job(model: str | ModelShape, *, length: int = 512, **changes: object) -> TrainJob:
    shape = find_model(model) if isinstance(model, str) else model
    base = TrainJob(
        model=shape, samples=1000, lengths=Lengths(mean=length, maximum=length), epochs=1, global_batch=64,
        precision="bf16",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def test_full_state_is_sixteen_bytes_a_parameter() -> None:
    """fp32 master weights, gradients and Adam's moments: 16 B/parameter (Rajbhandari et al. 2020, section 3.1)."""
    memory = estimate_training_memory(job("llama-2-7b"), one_layout(micro_batch=1, accumulation=2))
    state = memory.weights_bytes[0] + memory.gradients_bytes[0] + memory.optimizer_bytes[0]
    assert state == pytest.approx(16 * 6_738_415_616, rel=1e-6)


ZERO_BYTES = [("ddp", 16), ("zero1", 8 + 8 / 64), ("zero2", 4 + 12 / 64), ("zero3", 16 / 64)]


@pytest.mark.parametrize(("sharding", "bytes_per_parameter"), ZERO_BYTES)
def test_zero_divides_what_it_says(sharding: str, bytes_per_parameter: float) -> None:
    """ZeRO-1 divides the optimizer's state by the ranks, ZeRO-2 gradients too, ZeRO-3 weights too (figure 1)."""
    layout = one_layout(micro_batch=1, accumulation=2, data_parallel=64, nodes=8, sharding=sharding)
    memory = estimate_training_memory(job("llama-2-7b"), layout, trainer=TrainerProfile(no_sync=False))
    state = memory.weights_bytes[0] + memory.gradients_bytes[0] + memory.optimizer_bytes[0]
    assert state == pytest.approx(bytes_per_parameter * 6_738_415_616, rel=1e-6)


# Allocated peaks of transformers 5.17 and peft 0.21 on an H100 (benchmarks/results/gpu_models_training_h100*.csv):
# model, tokens, micro-batch, precision, method, recompute, GiB. None of them is fitted to.
TRANSFORMERS = [
    ("bert-large-uncased", 512, 32, "bf16", "full", "none", 20.51),
    ("bert-large-uncased", 512, 8, "fp16", "full", "none", 8.46),
    ("bert-base-uncased", 128, 32, "tf32", "full", "none", 3.76),
    ("gpt2-medium", 1024, 8, "bf16", "full", "none", 25.48),
    ("gpt2-medium", 1024, 8, "tf32", "full", "none", 30.09),
    ("qwen2.5-0.5b", 2048, 4, "bf16", "full", "none", 32.65),
    ("qwen2.5-0.5b", 2048, 4, "bf16-true", "lora", "none", 30.04),
    ("llama-3.2-1b", 2048, 1, "bf16", "full", "none", 23.10),
    ("llama-3.2-1b", 2048, 4, "bf16", "full", "none", 43.84),
    ("llama-3.2-1b", 2048, 4, "bf16-true", "full", "none", 32.11),
    ("llama-3.2-1b", 2048, 4, "bf16", "full", "full", 27.26),
    ("llama-3.2-1b", 2048, 4, "bf16-true", "full", "full", 19.34),
    ("llama-3.2-1b", 2048, 4, "bf16-true", "lora", "none", 33.65),
    ("llama-3.2-1b", 2048, 4, "bf16-true", "lora", "full", 14.80),
    ("llama-3.1-8b", 2048, 1, "bf16-true", "lora", "none", 36.51),
    ("llama-3.1-8b", 8192, 1, "bf16-true", "lora", "full", 29.36),
    ("llama-3.1-8b", 2048, 1, "bf16-true", "full", "full", 74.85),
]


@pytest.mark.parametrize(("model", "length", "micro", "precision", "method", "recompute", "measured"), TRANSFORMERS)
def test_allocated_peaks_of_transformers(
    model: str, length: int, micro: int, precision: str, method: str, recompute: str, measured: float
) -> None:
    """Within 2.5 % of what the allocator counted: every term of the peak is there, and none twice. At the last row it
    is AdamW's temporaries that decide, at the first activations, between them the loss."""
    work = job(model, length=length, precision=precision, method=method)
    memory = estimate_training_memory(work, one_layout(micro_batch=micro, recompute=recompute))
    assert to_gib(float(memory.allocated_bytes[0])) == pytest.approx(measured, rel=0.025)


def test_adapters_on_a_32_bit_base_save_casts_of_frozen_weights() -> None:
    """LoRA under autocast over fp32 weights: 6 B a frozen matrix weight, kept to backward (same source: 33.22 GiB);
    with recomputation those of the head alone (18.09 GiB)."""
    wide = TrainerProfile(frozen_bytes=4.0, adapter_bytes=4.0)
    work = job("llama-3.2-1b", length=2048, method="lora")
    for recompute, measured in (("none", 33.22), ("full", 18.09)):
        memory = estimate_training_memory(work, one_layout(micro_batch=4, recompute=recompute), trainer=wide)
        assert to_gib(float(memory.allocated_bytes[0])) == pytest.approx(measured, rel=0.025)


# pytorch/torchtitan@31a17bf benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3, and
# @b3eec1e benchmarks/llama3_8b_h200_2025-06_torchtitan_trainy_whitefiber.md: Llama 3.1 8B, 8,192 tokens, local batch 2,
# FSDP, selective (per-op) checkpointing; version, GPUs, compiled, precision, GiB reserved. No fit has seen them.
TORCHTITAN = [
    ("0.0.2", 8, False, "bf16", 82.4), ("0.0.2", 8, True, "bf16", 77.0), ("0.0.2", 8, True, "fp8", 76.8),
    ("0.0.2", 128, False, "bf16", 67.0), ("0.0.2", 128, True, "bf16", 62.0), ("0.0.2", 128, True, "fp8", 61.8),
    ("0.1.0", 32, True, "fp8", 47.96), ("0.1.0", 64, True, "fp8", 46.97),
]  # fmt: skip
TITAN = TrainerProfile(thin_residual=True, optimizer_fused=True, no_sync=False, wide_reduction=True)


@pytest.mark.parametrize(("version", "gpus", "compiled", "precision", "measured"), TORCHTITAN)
def test_reserved_peaks_of_torchtitan(version: str, gpus: int, compiled: bool, precision: str, measured: float) -> None:
    """Within 7 % of what torchtitan prints: FSDP sends 32-bit gradients in buffers of its own; a compiler keeps no
    output that backward does not read, and since 0.1 takes the loss too, whose 16-bit logits then become their
    gradient."""
    layout = one_layout(micro_batch=2, data_parallel=gpus, nodes=gpus // 8, sharding="zero3", recompute="per-op")
    program = documented("torchtitan", version=version, compiled=compiled)
    work = job("llama-3.1-8b", length=8192, compile=compiled, precision=precision, program=program)
    memory = estimate_training_memory(work, layout)
    assert to_gib(float(memory.reserved_bytes[0])) == pytest.approx(measured, rel=0.07)


# huggingface/transformers@0016acf docs/source/en/perf_train_gpu_one.mdx (January 2022, PyTorch 1.10, CUDA 11.2, V100):
# BERT-large, 512 tokens, micro-batches of 1; recompute, precision, optimizer, MiB by NVML. No fit has seen them.
EARLY_TRAINER = [
    ("none", "fp32", "adamw", 8681), ("full", "fp32", "adamw", 6775), ("full", "fp16", "adamw", 7275),
    ("full", "fp16", "adafactor", 4847), ("full", "fp16", "adamw-8bit", 5363),
]  # fmt: skip


@pytest.mark.parametrize(("recompute", "precision", "optimizer", "mib"), EARLY_TRAINER)
def test_device_peaks_of_an_early_trainer(recompute: str, precision: str, optimizer: str, mib: int) -> None:
    """Within 5 %: before PyTorch 2 gradients were set to zero between steps, the optimizer stepped tensor by tensor,
    every kernel was loaded at the start; autocast keeps the copies of recomputed layers to the end of forward."""
    work = job("bert-large-uncased", precision=precision, optimizer=optimizer, attention="eager",
               objective="classification", program=documented("transformers", version="4.16"))  # fmt: skip
    memory = estimate_training_memory(
        work, one_layout(micro_batch=1, accumulation=4, recompute=recompute), generation=VOLTA
    )
    assert float(memory.total_bytes[0]) / 2**20 == pytest.approx(mib, rel=0.05)


def test_the_block_of_16_bit_logits_serves_no_32_bit_tensor() -> None:
    """Adapters make no state that could fill it: qwen2.5-0.5b with LoRA reserved 3.0 GiB over its peak of 30.0 on an
    H100 (benchmarks/results), of which 2.3 are its logits."""
    work = job("qwen2.5-0.5b", length=2048, precision="bf16-true", method="lora")
    memory = estimate_training_memory(work, one_layout(micro_batch=4))
    assert to_gib(float(memory.reserved_bytes[0])) == pytest.approx(33.04, rel=0.02)


def test_torchtitan_in_its_stock_configuration_fits_eight_h100() -> None:
    """Llama 3.1 8B, 8 x H100 80 GB, 8,192 tokens, local batch 1, selective checkpointing: what its README runs."""
    layout = one_layout(micro_batch=1, data_parallel=8, sharding="zero3", recompute="per-op")
    memory = estimate_training_memory(job("llama-3.1-8b", length=8192), layout, trainer=TITAN)
    assert to_gib(float(memory.needed_bytes[0])) < 0.9 * 79.6


# torchtune's README, memory table, A100, Llama 3.2 3B, 2 x 4,096 tokens: what is switched on, peak active GiB.
TUNE = TrainerProfile(thin_residual=True, repeats_kv=True, optimizer_fused=True)
CHUNKED = replace(TUNE, loss_bytes=2.5, loss_parts=8)
TORCHTUNE = [
    ("none", False, TUNE, 60.0),
    ("none", True, TUNE, 51.0),
    ("none", True, CHUNKED, 42.9),
    ("full", True, CHUNKED, 24.9),
    ("full", True, replace(CHUNKED, gradients_in_backward=True), 23.1),
    ("full", True, replace(CHUNKED, gradients_in_backward=True, offloaded_activations=True), 21.8),
]


@pytest.mark.parametrize(("recompute", "compiled", "trainer", "measured"), TORCHTUNE)
def test_active_peaks_of_torchtune(recompute: str, compiled: bool, trainer: TrainerProfile, measured: float) -> None:
    """Within 7 % of torchtune's own table, technique by technique."""
    work = job("llama-3.2-3b", length=4096, precision="bf16-true", compile=compiled)
    memory = estimate_training_memory(work, one_layout(micro_batch=2, recompute=recompute), trainer=trainer)
    assert to_gib(float(memory.allocated_bytes[0])) == pytest.approx(measured, rel=0.07)


# Lightning-AI/litgpt tutorials/resource-tables.md (A100-40GB, commit 8641822, bf16-true, longest Alpaca example), GB
# reserved: model, tokens, micro-batch, GB. LoRA on q and v with dropout.
LIT = TrainerProfile(adapter_bytes=2.0, adapter_dropout=True)
LITGPT = [("phi-1.5", 1044, 1, 4.82), ("phi-1.5", 1044, 2, 6.76), ("phi-1.5", 1044, 4, 10.68),
          ("llama-2-7b", 1304, 1, 21.30), ("llama-2-7b", 1304, 2, 29.07), ("llama-2-13b", 1304, 1, 38.12)]  # fmt: skip


@pytest.mark.parametrize(("model", "length", "micro", "measured_gb"), LITGPT)
def test_adapter_peaks_of_litgpt(model: str, length: int, micro: int, measured_gb: float) -> None:
    """Within 12 % of litgpt's table of 2023, whose allocator left more between blocks: below it, never above."""
    lora = Lora(rank=8, targets="attention")
    work = job(model, length=length, precision="bf16-true", method="lora", lora=lora)
    memory = estimate_training_memory(work, one_layout(micro_batch=micro), trainer=LIT)
    assert float(memory.reserved_bytes[0]) / 1e9 == pytest.approx(measured_gb, rel=0.12)


# Lightning-AI/litgpt config_hub/finetune/README.md (03ffc55, bf16-true, cut at 512 tokens, bnb.nf4), GB allocated.
QUANTISED = [("llama-2-7b", 32, 2, "attention", 13.68), ("phi-2", 8, 4, "all-linear", 14.27),
             ("tinyllama-1.1b", 32, 8, "all-linear", 16.24),
             ("mistral-7b-v0.1", 32, 2, "attention", 14.29)]  # fmt: skip


@pytest.mark.parametrize(("model", "rank", "micro", "targets", "measured_gb"), QUANTISED)
def test_4_bit_peaks_of_litgpt(model: str, rank: int, micro: int, targets: str, measured_gb: float) -> None:
    """Within 8 % of its table: inputs of 4-bit products twice, of this step and of the one before, a 4-bit head,
    one scale for 64 weights."""
    lora = Lora(rank=rank, targets=targets)  # type: ignore[arg-type]
    program = documented("litgpt", method="qlora")
    work = job(model, length=512, precision="bf16-true", method="qlora", lora=lora, program=program)
    memory = estimate_training_memory(work, one_layout(micro_batch=micro))
    assert float(memory.allocated_bytes[0]) / 1e9 == pytest.approx(measured_gb, rel=0.08)


def test_the_step_before_holds_what_its_usual_length_takes() -> None:
    """What the graph of the step before keeps follows the mean length, the rest the longest."""
    program = documented("litgpt", method="qlora")
    work = job("llama-2-7b", length=2048, precision="bf16-true", method="qlora", program=program)
    short = replace(work, lengths=Lengths(mean=256, maximum=2048))
    even, uneven = (
        float(estimate_training_memory(one, one_layout(micro_batch=1)).activations_bytes[0]) for one in (work, short)
    )
    inputs = 32 * 2048 * (3 * 4096 + 11008) * 2
    assert even - uneven == pytest.approx(inputs * 7 / 8, rel=0.1)


def test_a_step_in_backward_has_the_gradients_of_the_head() -> None:
    """Llama 3.1 8B, all weights by a paged optimizer in backward, 2 x 2,048 tokens: 18.9 GiB (torchtune's README), of
    which the head's gradient, once for the newest of eight parts and once for their sum, is 1.96 beside what is left
    of the logits; adapters have none."""
    layout = one_layout(micro_batch=2, recompute="full")
    found = []
    for method in ("full", "lora"):
        program = documented("torchtune", method=method, gpus=1, version="0.3", compiled=True)
        paged = replace(program, offload=("optimizer",), optimizer_in_backward=True, loss="chunked")
        work = job("llama-3.1-8b", length=2048, precision="bf16-true", method=method, compile=True, program=paged)
        found.append(estimate_training_memory(work, layout))
    full, adapters = found
    assert to_gib(float(full.allocated_bytes[0])) == pytest.approx(18.9, rel=0.02)
    head, left = 2 * 128_256 * 4096 * 2, 4096 * 128_256 * (2.5 - 2 * 7 / 8)
    assert float(full.gradients_bytes[0]) == pytest.approx(head - left, rel=0.01)
    assert float(adapters.gradients_bytes[0]) < 0.1 * head


def test_accumulation_without_reduction_keeps_unsharded_gradients() -> None:
    """Llama 3.1 8B under FSDP on 8 GPUs: skipping the reduction (`no_sync`) adds 16-bit gradients of all weights."""
    layout = one_layout(micro_batch=1, accumulation=4, data_parallel=8, sharding="zero3", recompute="full")
    work = job("llama-3.1-8b", length=2048)
    each, once = (
        float(estimate_training_memory(work, layout, trainer=TrainerProfile(no_sync=skips)).needed_bytes[0])
        for skips in (False, True)
    )
    assert once - each == pytest.approx(2 * 8_030_261_248, rel=0.01)


def test_fsdp_holds_the_gradients_of_the_layer_at_work_whole() -> None:
    """Llama 3.1 70B on 8 GPUs, state on the CPU, as torchtune's 70B_full.yaml runs it: two layers' weights, their
    inputs, one layer, and its gradients with the buffer that sends them are all there is. Its README prints 13.9 GiB of
    2 x 2,048 tokens. Tables that are no unit of their own stay gathered, with the head's gradients."""
    work = job("llama-3.1-70b", length=2048, precision="bf16-true", compile=True)
    layout = one_layout(micro_batch=2, data_parallel=8, sharding="zero3", recompute="full")
    apart = replace(CHUNKED, offloaded_state=True, tables_apart=True)
    memory, root = (
        estimate_training_memory(work, layout, trainer=one) for one in (apart, replace(apart, tables_apart=False))
    )
    assert to_gib(float(memory.allocated_bytes[0])) == pytest.approx(13.9, rel=0.05)
    table = 2 * 128_256 * 8_192  # weights, gradients, buffer; sharded apart the head meets one layer
    assert float((root.allocated_bytes - memory.allocated_bytes)[0]) == pytest.approx(
        3 * table, rel=0.07
    )  # apart, the head meets one layer
    frozen = estimate_training_memory(replace(work, method="lora"), layout, trainer=apart)
    layer = 855_654_400
    assert float((memory.activations_bytes - frozen.activations_bytes)[0]) == pytest.approx(4 * layer, rel=0.01)


def test_deepspeed_lays_the_gradients_of_its_share_end_to_end() -> None:
    """Sixteen bits of every parameter more, divided by the ranks that share the optimizer."""
    work = job("llama-3.1-8b", length=2048)
    layout = one_layout(micro_batch=1, data_parallel=8, sharding="zero1", recompute="full")
    flat, plain = (
        float(estimate_training_memory(work, layout, trainer=trainer).optimizer_bytes[0])
        for trainer in (
            TrainerProfile(state="cast-model", flat_gradients=True),
            TrainerProfile(state="cast-model"),
        )
    )
    assert flat - plain == pytest.approx(2 * 8_030_261_248 / 8, rel=0.001)


@pytest.mark.parametrize(("model", "groups"), [("gpt2", 3), ("llama-3.1-8b", 2)])
def test_a_pipeline_talks_to_its_neighbours(model: str, groups: int) -> None:
    """Each stage with the one before and the one behind, and for tied tables the first with the last."""
    work = job(model, length=1024)
    contexts = [
        float(estimate_training_memory(work, one_layout(micro_batch=1, pipeline_parallel=p)).context_bytes[0])
        for p in (1, 4)
    ]
    assert to_gib(contexts[1] - contexts[0]) == pytest.approx(groups * Assumptions().training_communicator_gib)


def test_a_communicator_takes_what_its_channels_take() -> None:
    """Twelve channels over NVLink 2 hold half of what 24 over NVLink 3 hold, a few over PCIe a quarter; faster links
    have faster channels, not more. A plan counts those of each machine."""
    catalog = load_catalog()
    machines = [
        Machine(
            accelerator=catalog.accelerator(gpu), count=8, intra=link and catalog.link(link), network_gb_per_s=50.0,
            network_latency_us=40.0,
        )
        for gpu, link in (("V100-16GB", "nvlink2"), ("A100-40GB-SXM", "nvlink3"), ("H100-SXM", "nvlink4"),
                          ("L40S", "pcie4"), ("L40", None))
    ]  # fmt: skip
    assert [channel_share(machine) for machine in machines] == [0.5, 1.0, 1.0, 0.25, 1.0]
    work, layout = job("gpt2"), one_layout(micro_batch=1, data_parallel=8)
    alone = estimate_training_memory(work, one_layout(micro_batch=1)).context_bytes[0]
    for machine in machines:
        devices = stack([machine], "fp16", Assumptions())
        predicted = predict_training((work,), layout, devices, Assumptions()).memory
        beside = to_gib(float(predicted.context_bytes[0] - alone))
        assert beside == pytest.approx(channel_share(machine) * Assumptions().training_communicator_gib)


def test_a_planned_pipeline_has_two_slots_a_stage() -> None:
    """A compiler lays out what backward reads for twice as many micro-batches as there are stages, however many run."""
    work = job("llama-2-7b", length=2048)
    layout = one_layout(micro_batch=2, pipeline_parallel=4, accumulation=32, recompute="full")
    usual, planned = (
        estimate_training_memory(work, layout, trainer=TrainerProfile(planned_memory=on)).activations_bytes[0]
        for on in (False, True)
    )
    inputs = 8 * 2 * 2048 * 4096 * 2  # of the eight layers of a stage, 16 bit or more
    assert planned - usual >= 4 * inputs
    short = replace(layout, accumulation=layout.accumulation / 32)
    assert (
        estimate_training_memory(work, short, trainer=TrainerProfile(planned_memory=True)).activations_bytes[0]
        == planned
    )


def test_what_stages_of_a_pipeline_keep_beside_their_layers() -> None:
    """The first stage a byte an element of its embeddings' dropout for each micro-batch in flight (Korthikanti et al.
    2022, section 4.3); a stage of DeepSpeed what it handed on, shared by its tensor-parallel ranks."""
    layout = one_layout(micro_batch=2, tensor_parallel=2, pipeline_parallel=4, accumulation=32, recompute="full")
    fused = TrainerProfile(fused=True, state="megatron", sequence_parallel=False, thin_residual=True)
    work = job(replace(find_model("gpt2-medium"), vocab=1024), length=1024, precision="fp16")
    elements = 2 * 1024 * 1024
    assert kept_activations(work, layout, fused).entering == pytest.approx(elements)
    assert kept_activations(replace(work, model=find_model("llama-3.1-8b")), layout, fused).entering == 0
    plain, handed = (
        float(estimate_training_memory(work, layout, trainer=trainer).activations_bytes[0])
        for trainer in (fused, replace(fused, keeps_outputs=True))
    )
    assert handed - plain == pytest.approx(4 * elements * 2 / 2)  # micro-batches in flight, bytes, ranks
    masked = kept_activations(work, layout, fused)
    assert plain == pytest.approx(4 * (masked.flying + masked.entering) + masked.once)


@pytest.mark.parametrize(
    ("version", "generation", "gib"),
    [("0.6", VOLTA, 1.28), ("0.6", 2, 1.54), ("0.6", None, 1.54), ("0.14", 2, 0.8), ("", 2, 0.8)],
)
def test_kernels_are_loaded_at_first_before_cuda_11_7(version: str, generation: int | None, gib: float) -> None:
    """A program of before May 2022 has every kernel of its libraries on the device, in the code of its generation; a
    later one, or one whose version is not stated, those that it ran."""
    program = documented("megatron-deepspeed", version=version)
    memory = estimate_training_memory(job("gpt2", program=program), one_layout(micro_batch=1), generation=generation)
    assert to_gib(float(memory.context_bytes[0])) == pytest.approx(gib)


def test_a_frozen_base_that_stays_gathered_is_whole_and_its_share() -> None:
    """FSDP's first version over a frozen base: W(1 + 1/n) (litgpt, Llama 2 13B, LoRA on 4 A100: 35.57 GB)."""
    layout = one_layout(micro_batch=1, data_parallel=4, sharding="zero3", recompute="full")
    work = job("llama-2-13b", length=1304, precision="bf16-true", method="lora", lora=Lora(rank=8, targets="attention"))
    memory = estimate_training_memory(work, layout, trainer=replace(LIT, keeps_gathered=True))
    base = 2 * 13_015_864_320
    held = float(memory.weights_bytes[0] + memory.working_weights_bytes[0])
    assert held == pytest.approx(base * 1.25, rel=0.01)
    assert float(memory.reserved_bytes[0]) / 1e9 == pytest.approx(35.57, rel=0.06)


def test_fsdp_with_a_pipeline_keeps_weights_gathered_and_gradients_whole() -> None:
    """Between the stages of a pipeline nothing is sharded again until the step ends."""
    share = {"micro_batch": 1, "accumulation": 8, "data_parallel": 8, "sharding": "zero3", "recompute": "full"}
    alone = estimate_training_memory(job("llama-2-7b"), one_layout(**share), trainer=TITAN)
    piped = estimate_training_memory(job("llama-2-7b"), one_layout(**share, pipeline_parallel=4), trainer=TITAN)
    per_stage = 6_738_415_616 / 4
    assert piped.gradients_bytes[0] > 4 * per_stage > alone.gradients_bytes[0]
    assert piped.working_weights_bytes[0] > 2 * per_stage


def test_a_4_bit_base_has_32_bit_tables_under_peft() -> None:
    """QLoRA of Llama 3.1 8B: layers at 4.127 bits, embeddings and head at 32 bits (`prepare_model_for_kbit_training`)
    or at 16 (torchtune, unsloth)."""
    work, layout = job("llama-3.1-8b", method="qlora"), one_layout(micro_batch=1, recompute="full")
    wide, half = (
        float(estimate_training_memory(work, layout, trainer=TrainerProfile(table_bytes=width)).weights_bytes[0])
        for width in (4.0, 2.0)
    )
    tables = 2 * 128_256 * 4096
    assert wide - half == pytest.approx(2 * tables, rel=0.001)
    assert wide == pytest.approx((8_030_261_248 - tables) * 4.127 / 8 + 4 * tables, rel=0.001)


@given(
    micro=st.sampled_from([1, 2, 4, 8]),
    ranks=st.sampled_from([1, 2, 8, 16]),
    sharding=st.sampled_from(SHARDINGS),
    length=st.integers(16, 2048),
    method=st.sampled_from(["full", "lora", "qlora"]),
    optimizer=st.sampled_from(["adamw", "adamw-8bit", "sgd", "adafactor"]),
)
def test_what_always_holds(micro: int, ranks: int, sharding: str, length: int, method: str, optimizer: str) -> None:
    """Every component is non-negative; recomputation never needs more (beyond one layer), nor longer sequences less;
    the parts sum to the total."""
    layout = {"micro_batch": micro, "data_parallel": ranks, "sharding": sharding if ranks > 1 else "ddp"}
    work = job("gpt2", length=length, method=method, optimizer=optimizer)
    plain = estimate_training_memory(work, one_layout(**layout))
    full = estimate_training_memory(work, one_layout(**layout, recompute="full"))
    longer = estimate_training_memory(replace(work, lengths=Lengths(mean=2 * length, maximum=2 * length)),
                                      one_layout(**layout))  # fmt: skip
    parts = plain.components(0)
    assert min(parts.values()) > 0
    assert sum(parts.values()) == pytest.approx(float(plain.total_bytes[0]))
    assert full.needed_bytes[0] <= plain.needed_bytes[0] * (1 + 1e-9)
    assert longer.total_bytes[0] >= plain.total_bytes[0]


@pytest.mark.parametrize(("smaller", "larger"), [("qlora", "lora"), ("lora", "full")])
def test_adapters_need_less(smaller: str, larger: str) -> None:
    """QLoRA needs less than LoRA, LoRA less than training every weight."""
    layout = one_layout(micro_batch=1)
    needs = [
        float(estimate_training_memory(job("llama-2-7b", method=m), layout).total_bytes[0]) for m in (smaller, larger)
    ]
    assert needs[0] < needs[1]


def test_selective_recompute_drops_score_matrices_only() -> None:
    """With eager attention, selective recomputation keeps what fused attention keeps, plus one layer's scores."""
    eager = job("bert-large-uncased", attention="eager")
    selective = estimate_training_memory(eager, one_layout(micro_batch=8, recompute="selective"))
    none = estimate_training_memory(eager, one_layout(micro_batch=8))
    full = estimate_training_memory(eager, one_layout(micro_batch=8, recompute="full"))
    assert full.activations_bytes[0] < selective.activations_bytes[0] < none.activations_bytes[0]


def test_autocast_over_shared_out_weights_keeps_their_copies_whole() -> None:
    """FSDP without a mixed-precision policy gathers 32 bits, and autocast keeps 16-bit copies of all matrices for
    backward: as `tonnage run` shares a model out. Recomputed layers keep those of one layer."""
    work = job("llama-3.1-8b", method="full", precision="bf16", optimizer="adamw")
    layer_bytes = 2 * 218_103_808  # of the 16-bit matrices of a layer
    wide, thin = TrainerProfile(wide_gathers=True), TrainerProfile()
    for recompute, copies in (("none", 32), ("full", 1)):
        layout = one_layout(data_parallel=8, sharding="zero3", recompute=recompute, micro_batch=1)
        more, less = (estimate_training_memory(work, layout, trainer=one) for one in (wide, thin))
        added = float(more.working_weights_bytes[0] - less.working_weights_bytes[0])
        assert added >= copies * layer_bytes


def test_lists_are_stepped_where_weights_are_shared_out() -> None:
    """An optimizer fused on whole weights makes no root of second moments; over shares of them it does."""
    work = job("llama-3.1-8b", method="full", precision="bf16", optimizer="adamw")
    habits = TrainerProfile(optimizer_fused=True, lists_when_sharded=True)
    shared = one_layout(data_parallel=2, sharding="zero3", recompute="full", micro_batch=1)
    whole = one_layout(data_parallel=2, sharding="ddp", recompute="full", micro_batch=1)
    fused = replace(habits, lists_when_sharded=False)
    for layout, same in ((shared, False), (whole, True)):
        lists, one = (estimate_training_memory(work, layout, trainer=each) for each in (habits, fused))
        assert (float(lists.total_bytes[0]) == float(one.total_bytes[0])) is same
