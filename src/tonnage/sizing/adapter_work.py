"""What low-rank adapters do beside the matrices of a layer: the thin products of LoRA, and the norms of DoRA."""

from __future__ import annotations

from dataclasses import replace

from tonnage.sizing.estimates import Num
from tonnage.sizing.layouts import Layouts
from tonnage.sizing.operators import Operator, elementwise
from tonnage.sizing.precision import NF4_BYTES_PER_PARAMETER, TrainingNumbers
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.workload.adapters import adapted_matrices, scaled_outputs
from tonnage.workload.jobs import TrainJob

ADAPTER_KERNELS = 4.0  # of each adapter: two products, a scale and a sum
# DoRA as PEFT runs it (`tuners/lora/dora.py`, `DoraLinearLayer.forward`). Of each matrix, once a forward: BA written,
# scaled (read, write), added to W (two reads, a write) and its norm taken (a read). Of each output: base and adapter
# scaled (read, write each), and one more sum (two reads, a write) than LoRA has.
NORM_PASSES, MAGNITUDE_PASSES = 7.0, 7.0
SCALE_PASSES, SCALE_KERNELS = 4.0, 2.0
NORM_KERNELS, MAGNITUDE_KERNELS = 6.0, 5.0  # identity, two products, scale, sum, norm; quotient, two scales, two sums


def adapter_operator(job: TrainJob, layouts: Layouts, numbers: TrainingNumbers, trainer: TrainerProfile) -> Operator:
    """What adapters do beside the matrices of one layer: products too thin to fill a device, so that reading and
    writing is their cost. The first product reads the input, the second writes the output, which is scaled (read,
    write) and added (two reads, a write). Adapters held wider than their base cast the input and the sum.
    """
    element = numbers.element_bytes
    held = _held_bytes(numbers, trainer)
    cast = 1.0 if held > element else 0.0
    layers = max(job.model.layers, 1)
    # Of experts a token meets those it is sent to: as one wider network.
    met = replace(job.model, experts=0, ffn=job.model.ffn * max(job.model.experts_per_token, 1))
    matrices = adapted_matrices(met if job.model.experts else job.model, job.lora.targets)
    inputs = sum(width * count for width, _, count in matrices) / layers
    outputs = sum(width * count for _, width, count in matrices) / layers
    per_token = inputs * (held + cast * (element + held)) + outputs * (4 * held + 2 * element + cast * (element + held))
    launched = ADAPTER_KERNELS + 2.0 * cast
    if job.lora.kind == "dora":
        per_token += outputs * MAGNITUDE_PASSES * held
        launched += MAGNITUDE_KERNELS
    tokens = layouts.micro_batch * job.lengths.mean / layouts.context_parallel / layouts.tensor_parallel
    kernels = sum(count for *_, count in matrices) / layers * launched
    return elementwise("adapters", moved_bytes=per_token * tokens, kernels=kernels)


def scale_operator(job: TrainJob, layouts: Layouts, numbers: TrainingNumbers, trainer: TrainerProfile) -> Operator:
    """What LLaMA-Adapter V2 adds to the linear layers of one layer: an offset, then a scale, of each output (a read and
    a write each; litgpt's `AdapterV2Linear.forward`). The vocabulary projection's, once a pass, is left out."""
    matrices = adapted_matrices(job.model, "all-linear")
    layers = max(job.model.layers, 1)
    outputs = scaled_outputs(job.model) / layers
    kernels = SCALE_KERNELS * sum(count for *_, count in matrices) / layers
    tokens = layouts.micro_batch * job.lengths.mean / layouts.context_parallel / layouts.tensor_parallel
    moved = SCALE_PASSES * _held_bytes(numbers, trainer) * outputs * tokens
    return elementwise("scaled outputs", moved_bytes=moved, kernels=kernels)


def norm_operators(
    job: TrainJob, layouts: Layouts, numbers: TrainingNumbers, trainer: TrainerProfile
) -> tuple[Operator, ...]:
    """The norm of W + BA that DoRA takes of each adapted matrix of one layer in every forward (Liu et al. 2024,
    arXiv:2402.09353, equation 5); it is detached (section 4.3), so backward does nothing for it.

    BA is made whole: A times an identity of the inputs, then B, 2·r·(inputs + outputs) FLOP for each input. The rest
    moves bytes of the whole matrix, all experts included. A 4-bit base is expanded first, one adapted wider is cast.
    """
    if job.lora.kind != "dora":
        return ()
    held, element, rank = _held_bytes(numbers, trainer), numbers.element_bytes, job.lora.rank
    matrices = [one for one in adapted_matrices(job.model, job.lora.targets) if one[-1]]
    layers, cut = max(job.model.layers, 1), layouts.tensor_parallel
    cells = sum(inputs * outputs * count for inputs, outputs, count in matrices) / layers
    identity = sum(inputs * inputs * count for inputs, _, count in matrices) / layers
    each = NORM_PASSES * held + (element + held if held > element else 0.0)
    each += NF4_BYTES_PER_PARAMETER + element if job.method == "qlora" else 0.0
    kernels = NORM_KERNELS * sum(count for *_, count in matrices) / layers
    moved = elementwise(
        "norms of adapted weights", moved_bytes=(cells * each + identity * 2 * held) / cut, kernels=kernels
    )
    products = tuple(
        _product(inputs, outputs / cut, rank=rank, count=count / layers) for inputs, outputs, count in matrices
    )
    return (moved, *products)


def _product(inputs: Num, outputs: Num, *, rank: int, count: float) -> Operator:
    """BA as a product; what it moves and its launches are in the norm's own."""
    return Operator(
        name="adapted weights", kind="gemm", count=count, flop=2.0 * rank * inputs * (inputs + outputs), rows=inputs,
        columns=outputs, kernels=0.0,
    )  # fmt: skip


def _held_bytes(numbers: TrainingNumbers, trainer: TrainerProfile) -> float:
    """Bytes of an adapter's number, and of the products it takes part in."""
    return max(trainer.adapter_bytes, numbers.element_bytes)
