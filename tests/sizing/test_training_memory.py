"""Training memory: ZeRO's published state sizes, measured peaks, and what must always hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.sizing.layouts import one_layout
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.sizing.training_practice import PLAIN, Practice
from tonnage.units import to_gib
from tonnage.workload.jobs import Lengths, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.shapes import ModelShape

SHARDINGS = ("ddp", "zero1", "zero2", "zero3")


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
    memory = estimate_training_memory(job("llama-2-7b"), layout)
    state = memory.weights_bytes[0] + memory.gradients_bytes[0] + memory.optimizer_bytes[0]
    assert state == pytest.approx(bytes_per_parameter * 6_738_415_616, rel=1e-6)


# Published peaks: model, tokens, micro-batch, precision, attention, recompute, measured GiB, which reading, source.
MEASURED = [
    ("llama-3.2-3b", 4096, 2, "bf16-true", "sdpa", "none", 60.0, "allocated", "torchtune docs, memory table (A100)"),
    ("gpt-1536x16", 2048, 2, "fp16", "eager", "full", 14.03, "device", "DLPerf GPT, V100 16 GB, one GPU"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "length", "micro", "precision", "attention", "recompute", "measured", "reading", "source"),
    MEASURED,
)
def test_measured_peaks(
    model: str, length: int, micro: int, precision: str, attention: str, recompute: str, measured: float,
    reading: str, source: str,
) -> None:  # fmt: skip
    """Within 10 % of published peaks, with the figures the library ships with."""
    shape: str | ModelShape = model
    practice = PLAIN
    if model == "gpt-1536x16":
        shape = ModelShape(name=model, architecture="decoder", layers=16, hidden=1536, heads=16, kv_heads=16,
                           head_dim=96, ffn=6144, vocab=50304, max_positions=2048)  # fmt: skip
        practice = Practice(state="megatron", thin_residual=True, sequence_parallel=False, loss_bytes=6.0)
    memory = estimate_training_memory(
        job(shape, length=length, precision=precision, attention=attention),
        one_layout(micro_batch=micro, recompute=recompute),
        practice=practice,
    )
    value = {"allocated": memory.allocated_bytes, "device": memory.total_bytes}[reading][0]
    assert to_gib(float(value)) == pytest.approx(measured, rel=0.10), source


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
    assert full.total_bytes[0] <= plain.total_bytes[0]
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
