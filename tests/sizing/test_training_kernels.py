"""Training time beside the large products: the host's launches, adapters, optimizer tensors, score passes, overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.whole_steps import estimate_training_step

from tonnage.sizing.assumptions import Assumptions, fitted_parameters
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Spread
from tonnage.sizing.layer_operators import layer_operators
from tonnage.sizing.layouts import Layouts, one_layout
from tonnage.sizing.operators import Pass
from tonnage.sizing.program_profiles import trainer_of
from tonnage.sizing.trainer_profile import PLAIN, State, TrainerProfile
from tonnage.sizing.training_parts import part_seconds
from tonnage.sizing.training_time import TrainingStep, step_seconds
from tonnage.sizing.training_work import layer_tensors, step_work
from tonnage.workload.jobs import Lengths, Lora, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.programs import Loss, Program, documented
from tonnage.workload.shapes import ModelShape

Make = Callable[..., Devices]


def job(model: str, *, length: int, **changes: object) -> TrainJob:
    base = TrainJob(
        model=find_model(model), samples=1, lengths=Lengths(mean=length, maximum=length), epochs=1, global_batch=1,
        precision="bf16", objective="language-model",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def step(
    work: TrainJob, device: Devices, trainer: TrainerProfile = PLAIN, layouts: Layouts | None = None
) -> TrainingStep:
    return estimate_training_step(work, layouts or one_layout(micro_batch=1), device, trainer=trainer)


# Steps that eager PyTorch 2.11 takes on a rented H100, ms (benchmarks/results/gpu_grid_training_*.csv and
# gpu_models_training_*.csv): model, length, micro-batch, precision. Far below the device's own time, the host bounds.
EAGER = [
    ("bert-base-uncased", 512, 1, "tf32", 21.4),
    ("bert-base-uncased", 128, 8, "fp16", 34.1),
    ("bert-large-uncased", 512, 1, "tf32", 52.2),
    ("bert-large-uncased", 128, 1, "bf16", 71.5),
    ("gpt2", 512, 1, "fp16", 38.5),
]


@pytest.mark.parametrize(("model", "length", "micro", "precision", "measured_ms"), EAGER)
def test_small_steps_take_what_the_host_takes(
    model: str, length: int, micro: int, precision: str, measured_ms: float, devices: Make
) -> None:
    """Within 45 % of the measured step: hosts differ by as much; the device alone would take a fifth."""
    device = devices("H100-SXM", precision=precision)
    found = step(job(model, length=length, precision=precision), device, layouts=one_layout(micro_batch=micro))
    assert float(found.total_s[0]) * 1e3 == pytest.approx(measured_ms, rel=0.45)
    assert float(found.launch_s[0]) > 0


def test_a_host_is_the_mean_of_those_measured(devices: Make) -> None:
    """Steps of BERT that the host bounds, on an H100 and on an H200 with another host (gpu_models_training_*.csv):
    within 12 % of the geometric mean. No table of the fit has steps short enough to tell, so no fit moves the time of a
    launch."""
    for model, length, micro, precision, h100_ms, h200_ms in (
        ("bert-base-uncased", 128, 32, "bf16", 39.8, 26.2),
        ("bert-large-uncased", 512, 8, "fp16", 78.3, 56.1),
    ):
        work = job(model, length=length, precision=precision, objective="classification", attention="sdpa")
        device = devices("H100-SXM", precision=precision)
        found = step(work, device, layouts=one_layout(micro_batch=micro))
        assert float(found.total_s[0]) * 1e3 == pytest.approx((h100_ms * h200_ms) ** 0.5, rel=0.12)
    assert "training_launch_us_per_kernel" not in {one.name for one in fitted_parameters("training time")}


def test_compiling_and_fusing_save_launches(devices: Make) -> None:
    """A compiler and hand-written kernels leave fewer kernels to launch."""
    device, work = devices("H100-SXM"), job("bert-base-uncased", length=128)
    eager, compiled = (float(step(one, device).total_s[0]) for one in (work, replace(work, compile=True)))
    fused = float(step(work, device, replace(PLAIN, fused=True)).total_s[0])
    assert compiled < eager
    assert fused < eager


def test_optimizer_launches_for_each_tensor_unless_fused(devices: Make) -> None:
    """An optimizer in one kernel pays for bytes alone; else each tensor costs the host, whatever its size."""
    device, work = devices("H100-SXM"), job("bert-base-uncased", length=128)
    apart, together = (
        float(step(work, device, replace(PLAIN, optimizer_fused=one)).optimizer_s[0]) for one in (False, True)
    )
    narrow = replace(work, model=replace(work.model, hidden=64, ffn=256, heads=1, kv_heads=1, vocab=64))
    thin = float(step(narrow, device).optimizer_s[0])
    assert together < apart
    assert thin > 0.5 * (apart - together)


# The same machine, LoRA of rank 16 on all linear layers under peft: model, length, micro-batch, recompute, ms.
LORA = [
    ("llama-3.2-1b", 2048, 4, "none", 259.5),
    ("llama-3.2-1b", 2048, 4, "full", 349.5),
    ("llama-3.1-8b", 2048, 1, "none", 304.8),
    ("llama-3.1-8b", 2048, 4, "full", 1380.7),
    ("llama-3.1-8b", 8192, 1, "full", 1482.9),
]


@pytest.mark.parametrize(("model", "length", "micro", "recompute", "measured_ms"), LORA)
def test_adapters_cost_what_was_measured(
    model: str, length: int, micro: int, recompute: str, measured_ms: float, devices: Make
) -> None:
    """Adapters that peft holds in fp32 cost as much as the base: within 25 % of the measured step."""
    program = documented("transformers", method="lora")
    work = job(model, length=length, method="lora", precision="bf16-true", lora=Lora(rank=16), program=program)
    found = step(work, devices("H100-SXM"), trainer_of(work), one_layout(micro_batch=micro, recompute=recompute))
    assert float(found.total_s[0]) * 1e3 == pytest.approx(measured_ms, rel=0.25)


def test_adapters_in_the_base_format_are_cheaper(devices: Make) -> None:
    """Adapters in 16 bit move fewer bytes than those held in 32; full training of the same layers has none."""
    work = job("llama-3.1-8b", length=2048, method="lora", precision="bf16-true")
    wide, narrow = (
        float(step(work, devices("H100-SXM"), replace(PLAIN, adapter_bytes=held)).forward_s[0]) for held in (4.0, 0.0)
    )
    whole = float(step(replace(work, method="full"), devices("H100-SXM")).forward_s[0])
    assert whole < narrow < wide


def test_dora_takes_the_norm_of_each_adapted_matrix(devices: Make) -> None:
    """A step of DoRA costs more than one of LoRA by at least the bytes of seven passes over each adapted matrix, and
    as much more whatever the tokens; the model's own FLOP stay the same."""
    device, layouts = devices("H100-SXM"), one_layout(micro_batch=1)
    bandwidth = float(device.bandwidth_bytes_per_s[0])
    more = []
    for length in (512, 2048):
        plain, dora = (
            step(job("llama-3.1-8b", length=length, method="lora", precision="bf16-true", lora=Lora(kind=kind)), device,
                 layouts=layouts)
            for kind in ("lora", "dora")
        )  # fmt: skip
        assert dora.model_flop[0] == plain.model_flop[0]
        more.append(float(dora.forward_s[0] - plain.forward_s[0]))
    adapted = find_model("llama-3.1-8b").layers * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert all(seconds > 7 * 2 * adapted / bandwidth for seconds in more)
    assert more[1] < 4 * more[0]


def test_overlapped_tensor_parallel_traffic_costs_less(devices: Make) -> None:
    """What runs beside products is hidden in part, never more than the products take."""
    device = devices("H100-SXM", count=8, link="nvlink4")
    layouts, work = one_layout(micro_batch=1, tensor_parallel=8), job("llama-2-7b", length=2048)
    exposed, hidden = (step(work, device, replace(PLAIN, tensor_overlap=one), layouts) for one in (False, True))
    assert 0 < hidden.tensor_parallel_s[0] < exposed.tensor_parallel_s[0]
    assert hidden.forward_s[0] == exposed.forward_s[0]


def test_data_parallel_traffic_cut_by_layers_is_hidden_for_the_most_part(devices: Make) -> None:
    """NeMo documents that all but one layer's messages run beside products; nothing more is hidden than those take."""
    device = devices("H100-SXM", count=8, link="nvlink4")
    layouts, work = one_layout(micro_batch=1, data_parallel=8, sharding="zero3"), job("llama-2-7b", length=2048)
    exposed, hidden = (step(work, device, replace(PLAIN, data_overlap=one), layouts) for one in (False, True))
    assert 0 < hidden.data_parallel_s[0] < 0.6 * exposed.data_parallel_s[0]
    assert trainer_of(replace(work, program=documented("nemo"))).data_overlap
    slow = devices("H100-SXM", count=8, link="nvlink4", network=25.0)
    over_nodes = one_layout(micro_batch=1, data_parallel=16, sharding="zero3", nodes=2)
    trainer = replace(PLAIN, data_overlap=True)
    most, none = (replace(Assumptions(), layered_overlap_fraction=one) for one in (0.9, 0.0))
    messages_s = estimate_training_step(work, over_nodes, slow, none, trainer).data_parallel_s[0]
    found = estimate_training_step(work, over_nodes, slow, most, trainer)
    assert messages_s <= found.total_s[0] < messages_s + found.forward_s[0] + found.backward_s[0] + found.optimizer_s[0]


def test_score_passes_of_relative_positions_follow_the_element() -> None:
    """Lining learned positions up with the keys moves five elements a score forward, two bytes each at 16 bit, four at
    32; twelve where a graph runs every primitive by itself."""
    shape = ModelShape(
        name="xl", architecture="decoder", layers=1, hidden=512, heads=8, kv_heads=8, head_dim=64, ffn=2048,
        vocab=1000, positions="relative", relative_projections=True,
    )  # fmt: skip

    def moved(element: float, *, primitives: bool = False) -> float:
        span = Pass(
            batch=2.0, query=192.0, keys=384.0, element_bytes=element, residual_bytes=element, weight_bytes=element,
            attention="eager", primitives=primitives,
        )  # fmt: skip
        (shift,) = (op for op in layer_operators(shape, span, causal=True) if op.name == "position shift")
        return float(np.asarray(shift.moved_bytes)) / (2 * 8 * 192 * 384)

    assert (moved(2.0), moved(4.0), moved(4.0, primitives=True)) == (10.0, 20.0, 48.0)


# Bytes a logit that the loss moves, forward and backward (training_job, program_profiles).
LOSSES = [("plain", "bf16", 48.0), ("plain", "fp32", 36.0), ("in-place", "bf16", 48.0), ("one-kernel", "bf16", 8.0),
          ("half", "fp16", 18.0), ("half", "tf32", 36.0)]  # fmt: skip


@pytest.mark.parametrize(("loss", "precision", "bytes_a_logit"), LOSSES)
def test_losses_move_what_their_kernels_read_and_write(loss: Loss, precision: str, bytes_a_logit: float) -> None:
    """A plain loss reads its row three times each way, at half the bytes in 16 bit (32-bit logits have no such loss),
    one kernel over 16-bit logits four times in all."""
    work = job("gpt2", length=1024, precision=precision, program=Program(loss=loss))
    (part,) = (one for one in step_work(work, one_layout(micro_batch=1)).works if one.operator.name == "loss")
    moved = np.asarray(part.operator.moved_bytes) * (1.0 + np.asarray(part.backward))
    assert float(moved.item()) / (1024 * 50257) == pytest.approx(bytes_a_logit)


def test_eight_bit_products_cast_their_inputs_and_the_gradients_of_their_outputs() -> None:
    """Four bytes for each element that goes into a product, forward, and that comes back to it, backward; none at 16
    bit, and none around the head, which stays at 16."""
    work = job("gpt2", length=1024, precision="fp8")
    parts = {one.operator.name: one for one in step_work(work, one_layout(micro_batch=1)).works}
    down = parts["mlp down casts"]
    assert float(np.asarray(down.operator.moved_bytes).item()) == pytest.approx(4.0 * 1024 * 3072)
    assert float(np.asarray(down.backward).item()) == pytest.approx(768 / 3072)
    assert "vocabulary casts" not in parts
    sixteen = step_work(replace(work, precision="bf16"), one_layout(micro_batch=1))
    assert not [one for one in sixteen.works if "casts" in one.operator.name]


def test_graphs_of_primitives_launch_more_unless_a_compiler_merges_them() -> None:
    """TensorFlow without XLA launches an element-wise operation in four pieces; XLA and PyTorch do not. A graph's
    executor takes half of an eager framework's host time for each, forward and backward."""

    def kernels(program: Program) -> float:
        works = step_work(job("bert-base-uncased", length=128, program=program), one_layout(micro_batch=1)).works
        return next(float(np.asarray(one.operator.kernels)) for one in works if one.operator.name == "mlp activation")

    plain, merged = documented("tensorflow"), replace(documented("tensorflow"), clustered=True)
    assert (kernels(plain), kernels(merged), kernels(documented("pytorch"))) == (2.0, 0.5, 1.0)


def _moved(model: str, name: str, program: Program) -> float:
    """Elements of 4 bytes that an operator of a layer moves, forward and backward, for a row of what it works on."""
    work = job(model, length=128, precision="fp32", program=program, attention="eager")
    parts = step_work(work, one_layout(micro_batch=1)).works
    (part,) = (one for one in parts if one.operator.name == name)
    return float((np.asarray(part.operator.moved_bytes) * (1.0 + np.asarray(part.backward))).item()) / 4.0


def test_graphs_of_primitives_move_what_each_primitive_reads_and_writes() -> None:
    """Counted in TensorFlow: softmax 13 passes, dropout 15, scale and mask 6; a norm with its sum 34 and a dropout;
    GELU 38. XLA merges them, so that a cluster moves what PyTorch's kernels do."""
    plain, merged = documented("tensorflow"), replace(documented("tensorflow"), clustered=True)
    scores, hidden, inner = 12 * 128 * 128, 2 * 128 * 768, 128 * 3072  # of a layer of BERT-base, two norms
    model = "bert-base-uncased"
    assert _moved(model, "softmax", plain) == pytest.approx((13 + 15 + 6) * scores)
    assert _moved(model, "norms and residuals", plain) == pytest.approx((34 + 15) * hidden)
    assert _moved(model, "mlp activation", plain) == pytest.approx(38 * inner)
    for name in ("softmax", "norms and residuals", "mlp activation"):
        assert _moved(model, name, merged) == _moved(model, name, documented("pytorch")) < _moved(model, name, plain)


@pytest.mark.parametrize(
    ("precision", "attention", "kind"),
    [("fp32", "eager", "gemm"), ("tf32", "eager", "attention"), ("fp32", "sdpa", "attention")],
)
def test_eager_products_over_heads_in_plain_arithmetic_are_matrix_products(
    precision: str, attention: str, kind: str
) -> None:
    """Without tensor cores they reach what other products do: tiles of each head's outputs, both gradients under
    adapters too, since neither side is a weight."""
    work = job("bert-base-uncased", length=128, precision=precision, attention=attention)
    for method in ("full", "lora"):
        lora = replace(work, method=method)
        parts = step_work(lora, one_layout(micro_batch=1)).works
        (product,) = (one for one in parts if one.operator.name == "attention")
        assert product.operator.kind == kind
        assert float(np.asarray(product.backward).item()) == (2.5 if attention == "sdpa" else 2.0)
    if kind == "gemm":
        assert float(np.asarray(product.operator.rows).item()) == 12 * 128


def test_packed_documents_attend_to_themselves_alone() -> None:
    """Attention of 2,048 tokens of documents of 256 is an eighth; every other operator stays."""
    work = job("llama-2-7b", length=2048)

    def flop(trainer: TrainerProfile) -> dict[str, float]:
        works = step_work(work, one_layout(micro_batch=1), trainer).works
        return {one.operator.name: float(np.asarray(one.operator.flop).item()) for one in works}

    whole, packed = flop(PLAIN), flop(replace(PLAIN, document_tokens=256))
    assert packed.pop("attention") == pytest.approx(whole.pop("attention") / 8)
    assert packed == whole


def test_processes_that_exchange_no_gradients_pay_for_none(devices: Make) -> None:
    """Eight copies that never sum their gradients take the time of one, but for a message's latency."""
    work = job("bert-base-uncased", length=128)
    device = devices("A100-80GB-SXM", count=8, link="nvlink3", network=200.0)
    layout = one_layout(micro_batch=8, data_parallel=8)
    alone = step(work, device, replace(PLAIN, exchanges=False), layout)
    together = step(work, device, PLAIN, layout)
    assert float(alone.data_parallel_s[0]) < 1e-4
    assert float(together.data_parallel_s[0]) > 10 * float(alone.data_parallel_s[0])


XL = ModelShape(
    name="xl", architecture="decoder", layers=16, hidden=512, heads=8, kv_heads=8, head_dim=64, ffn=2048,
    vocab=20_000, positions="relative", relative_projections=True, fused_qkv=True, qkv_bias=False, output_bias=False,
)  # fmt: skip


def _parts(work: TrainJob, trainer: TrainerProfile = PLAIN) -> dict[str, float]:
    """Bytes that each element-wise operator moves in a step, forward and backward."""
    works = step_work(work, one_layout(micro_batch=1), trainer).works
    return {
        one.operator.name: float(np.asarray(one.operator.moved_bytes * (1.0 + np.asarray(one.backward))).item())
        for one in works
        if one.operator.kind == "elementwise"
    }


def test_gradients_of_a_shared_table_are_added_up_whole() -> None:
    """Four passes over a table that embeds words and weighs logits; nineteen where an adaptive softmax slices it in
    four; one where the head has weights of its own; none where kernels add up in place."""
    work = job("gpt2", length=64, precision="fp32")
    table = 50257 * 768 * 4.0
    assert _parts(work)["table gradients"] == pytest.approx(4 * table)
    untied = replace(work, model=replace(work.model, tied_embeddings=False))
    assert _parts(untied)["table gradients"] == pytest.approx(table)
    assert _parts(replace(work, objective="classification"))["table gradients"] == pytest.approx(table)
    assert "table gradients" not in _parts(work, replace(PLAIN, fused=True))
    sliced = replace(PLAIN, rare_words=((0.05, 20_000.0), (0.04, 160_000.0), (0.01, 67_735.0)))
    moved = _parts(replace(work, model=XL), sliced)["table gradients"]
    assert moved == pytest.approx(19 * 267_735 * 512 * 4.0)


@pytest.mark.parametrize(("state", "width"), [("autocast", 4.0), ("cast-model", 2.0)])
def test_gradients_of_tables_are_as_wide_as_those_of_weights(state: State, width: float) -> None:
    """Autocast's are of 32 bit, a cast model's of 16."""
    moved = _parts(job("gpt2", length=64, precision="fp16"), replace(PLAIN, state=state))["table gradients"]
    assert moved == pytest.approx(4 * 50257 * 768 * width)


def test_a_compiler_leaves_the_gradients_of_tables(devices: Make) -> None:
    """They are between a product and a scatter: no share of element-wise traffic, merged or eager, reaches them."""
    device = devices("A100-80GB-SXM", precision="fp32")

    def seconds(assumed: Assumptions, *, compile: bool) -> float:
        works = step_work(job("gpt2", length=64, precision="fp32", compile=compile), one_layout(micro_batch=1)).works
        (part,) = (one for one in works if one.operator.name == "table gradients")
        return float(part_seconds(part, device, np.array([4.0]), assumed)[0][0])

    shares = replace(Assumptions(), compiled_traffic_fraction=0.1, unfused_traffic_factor=0.5)
    merged, eager = seconds(Assumptions(), compile=True), seconds(Assumptions(), compile=False)
    assert merged == eager == seconds(shares, compile=True) == seconds(shares, compile=False)


def test_an_adaptive_softmax_makes_logits_of_rare_words_for_the_tokens_that_are_rare() -> None:
    """A tenth of the tokens over ten times the words cost as much as the head, and their loss too."""
    work = replace(job("gpt2", length=1000, precision="fp32"), model=XL)
    works = step_work(work, one_layout(micro_batch=1), replace(PLAIN, rare_words=((0.1, 200_000.0),))).works
    flop = {one.operator.name: float(np.asarray(one.operator.flop).item()) for one in works}
    moved = {one.operator.name: float(np.asarray(one.operator.moved_bytes).item()) for one in works}
    assert flop["rare words"] == pytest.approx(flop["vocabulary"])
    assert moved["rare words loss"] == pytest.approx(moved["loss"])


ODD = [("A100-80GB-SXM", 1.15, 1.35), ("H100-SXM", 1.15, 1.6), ("RTX-3090", 0.98, 1.02)]


@pytest.mark.parametrize(("device", "least", "most"), ODD)
def test_an_odd_vocabulary_slows_tensor_cores_that_wait_for_copies(
    device: str, least: float, most: float, devices: Make
) -> None:
    """GPT-2 over 50,257 words against 50,304: about a quarter longer on an A100 (nanoGPT), more on a Hopper, nothing on
    a board whose tensor cores take no more than plain copies bring."""
    plain = job("gpt2", length=1024, compile=True)
    padded = replace(plain, model=replace(plain.model, vocab=50_304))
    there, layouts = devices(device), one_layout(micro_batch=12)
    odd, even = (float(step(one, there, layouts=layouts).forward_s[0]) for one in (plain, padded))
    assert least < odd / even < most


# Tensors of a layer: parameters that the modules of transformers list for one block of each model; of T5 the mean of
# 8 in the encoder and 13 in the decoder, of ResNet-50 (torchvision) 159 in 16 blocks, stem included.
TENSORS = [
    ("llama-2-7b", 9.0), ("bert-base-uncased", 16.0), ("gpt2", 12.0), ("opt-1.3b", 16.0), ("qwen2.5-7b", 12.0),
    ("qwen3-8b", 11.0), ("t5-base", 10.5), ("deberta-v3-base", 16.0), ("resnet-50", 159 / 16),
    ("deepseek-v2-lite", 14.0),
]  # fmt: skip


@pytest.mark.parametrize(("model", "tensors"), TENSORS)
def test_tensors_of_a_layer_follow_from_its_shape(model: str, tensors: float) -> None:
    """Matrices, biases, norms: no model has the count of another because it is gated or not."""
    assert layer_tensors(find_model(model)) == tensors


def test_transformer_xl_has_eleven_tensors_a_layer() -> None:
    """Three matrices of attention without biases, two of the MLP with, two norms with scale and shift."""
    assert layer_tensors(XL) == 11.0


def test_an_optimizer_with_a_ratio_for_each_tensor_launches_for_each(devices: Make) -> None:
    """Eight kernels more for each of Transformer-XL's eleven tensors a layer, at the host's time for a launch."""
    work = replace(job("gpt2", length=64, precision="fp32"), model=XL)
    lists, apart = (
        float(step(work, devices("V100-16GB", precision="fp32"), replace(PLAIN, optimizer_kernels=one)).optimizer_s[0])
        for one in (0.0, 8.0)
    )
    assert apart - lists == pytest.approx(8 * 11 * 16 * Assumptions().host_launch_us_per_kernel * 1e-6)


@pytest.mark.parametrize(("micro", "least", "most"), [(1, 0.95, 1.0), (256, 0.0, 0.3)])
def test_the_share_of_the_host_is_the_slope_of_the_step_by_its_launches(
    micro: int, least: float, most: float, devices: Make
) -> None:
    """d ln(step) / d ln(time for a launch), of kernels and optimizer: most of a small step, little of a large one."""
    work, device = job("bert-base-uncased", length=128, precision="bf16"), devices("H100-SXM", precision="bf16")
    layouts, nudge = one_layout(micro_batch=micro), 1e-4

    def at(factor: float) -> TrainingStep:
        assumed = Assumptions()
        names = ("training_launch_us_per_kernel", "optimizer_launch_us_per_tensor")
        slower = replace(assumed, **{name: getattr(assumed, name) * factor for name in names})
        return step_seconds(step_work(work, layouts), device, slower)

    slope = float(np.log(at(1.0 + nudge).total_s[0] / at(1.0 - nudge).total_s[0])) / (2.0 * nudge)
    share = float(at(1.0).host_share[0])
    assert share == pytest.approx(slope, rel=1e-3)
    assert least <= share <= most


def test_what_the_host_bounds_widens_an_interval() -> None:
    """Two unknowns that have nothing to do with each other: their logarithms add up as squares."""
    spread, host = Spread(low_factor=0.8, high_factor=1.25), Spread(low_factor=0.7, high_factor=1.4)
    assert spread.beside(host, 0.0).high_factor == pytest.approx(spread.high_factor)
    whole = spread.beside(host, 1.0)
    assert np.log(whole.high_factor) == pytest.approx(np.hypot(np.log(1.25), np.log(1.4)))
    assert np.log(whole.low_factor) == pytest.approx(-np.hypot(np.log(0.8), np.log(0.7)))


def test_a_cast_model_has_a_narrow_residual_stream() -> None:
    """All layers of it are 16-bit; autocast keeps the stream in 32 bit for bf16."""
    cast, autocast = (
        trainer_of(job("bart-large", length=512, program=Program(state=state))) for state in ("cast-model", "autocast")
    )
    assert (cast.thin_residual, autocast.thin_residual) == (True, False)
