"""Peak memory of a training step on a local device: host memory of the process on a CPU, device memory on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tonnage.sizing.layouts import one_layout
from tonnage.sizing.local_work import largest_tensor
from tonnage.sizing.precision import TRAINING, optimizer_bytes_per_parameter
from tonnage.sizing.trainer_profile import PLAIN, TrainerProfile
from tonnage.sizing.training_job import parameter_share
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.workload.adapters import adapted_matrices
from tonnage.workload.jobs import TrainJob

STATE: Final = ("weights", "gradients", "optimizer", "adapters", "working_weights", "buckets")
FP32, SCORE_BYTES = 4.0, 12.0
STEP_TEMPORARIES: Final = 2.0  # AdamW's root and its quotient, each a tensor like the largest weight


def host_memory_parts(
    job: TrainJob, *, micro_batch: int, accumulation: int, framework_bytes: float
) -> dict[str, float]:
    """Bytes the process has resident at the peak of a step on a CPU, by part.

    A CPU has no runtime context, no workspace of a GPU library and no caching allocator; instead there is the
    framework itself (measured), and what the optimizer needs beside its state. With dropout, PyTorch's attention on a
    CPU keeps the scores, so activations are those of eager attention (Korthikanti et al. 2022, arXiv:2205.05198, as
    `sizing.training_memory` counts them) and what `unfused_bytes` adds. The peak is the larger of the
    end of the forward (activations and logits) and the optimizer step (gradients and temporaries).
    """
    if not job.model.gated_mlp:
        job = replace(job, attention="eager")
    layout = one_layout(micro_batch=micro_batch, accumulation=2)  # two: gradients count in full here
    memory = estimate_training_memory(job, layout, trainer=trainer_of(job)).components(0)
    state: dict[str, float] = {name: memory[name] for name in STATE if name in memory}
    gradients = state.pop("gradients", 0.0)
    forward = memory.get("activations", 0.0) + memory.get("logits", 0.0) + unfused_bytes(job, micro_batch)
    forward += adapter_bytes(job, micro_batch, mask_bytes=TRAINING[job.precision].element_bytes)
    if accumulation > 1:
        state["gradients"] = gradients
        gradients = 0.0
    stepping = gradients + STEP_TEMPORARIES * 4.0 * largest_tensor(job)
    parts: dict[str, float] = {"framework": framework_bytes, **state}
    if forward > stepping:
        return {**parts, "activations": forward}
    held = parts.get("gradients", 0.0) + gradients
    parts.update({"gradients": held, "activations": stepping - gradients})
    return parts


def checkpoint_copy_bytes(job: TrainJob) -> float:
    """Bytes of what is trained and of its optimizer's state, copied to be written while training goes on (`tonnage run`
    holds one such copy at a time). Weights are trained in 32 bits.

    Measured on MiniLM in full (22.7 M parameters, 0.254 GiB by this formula): 0.895 GiB before the first save, 1.16 GiB
    while it was written.
    """
    trained = float(parameter_share(job, one_layout(micro_batch=1)).trained[0])
    return trained * (FP32 + optimizer_bytes_per_parameter(job.optimizer, FP32, job.model.hidden))


def unfused_bytes(job: TrainJob, micro_batch: int) -> float:
    """Bytes that training with dropout keeps on a CPU beyond those of eager attention on a GPU.

    Its dropout keeps the noise at the width of its input, not as one byte (`_dropout_impl`,
    aten/src/ATen/native/Dropout.cpp); its attention works in 32 bit whatever the input, keeps softmax, noise and
    dropped scores (12 bytes a score), and scaled copies of query and key (`_scaled_dot_product_attention_math`,
    aten/src/ATen/native/transformers/attention.cpp); the copy of the value only where it was 16 bit.
    """
    shape, numbers = job.model, TRAINING[job.precision]
    if shape.gated_mlp:
        return 0.0
    tokens = float(micro_batch * job.lengths.maximum)
    scores = tokens * job.lengths.maximum * shape.heads
    mixed = numbers.residual_bytes > numbers.element_bytes
    counted = FP32 + numbers.element_bytes + 1.0  # softmax, dropped scores, a mask: as `attention_operators` has it
    copies = FP32 * (3.0 if mixed else 2.0) * tokens * shape.heads * shape.head_dim
    noise = shape.norms_per_layer * tokens * shape.hidden * (numbers.element_bytes - 1.0)
    return shape.layers * (scores * (SCORE_BYTES - counted) + copies + noise)


def trainer_of(job: TrainJob) -> TrainerProfile:
    """What a recipe does that sizing does not take for granted: a 16-bit base under adapters has a 16-bit residual
    stream, where norms give back what they are given (RMS norms do; layer norms widen under autocast)."""
    thin = job.method == "lora" and job.model.gated_mlp and TRAINING[job.precision].element_bytes < FP32
    return replace(PLAIN, thin_residual=thin)


def adapter_bytes(job: TrainJob, micro_batch: int, *, mask_bytes: float) -> float:
    """Bytes that LoRA keeps for backward beyond what a full fine-tuning keeps.

    Each adapted matrix has a dropout of its own: its mask and the input it leaves are kept, once for each matrix. The
    inputs of the frozen products are not: their weights have no gradient. Source: `peft.tuners.lora.layer.Linear`;
    saved tensors counted on BERT and Llama layers in fp32 come out 10 to 20 % below.
    """
    if job.method != "lora":
        return 0.0
    shape, element = job.model, TRAINING[job.precision].element_bytes
    tokens = float(micro_batch * job.lengths.maximum)
    inputs = sum(inner * count for inner, _, count in adapted_matrices(shape, job.lora.targets))
    width = shape.heads * shape.head_dim
    frozen = shape.layers * (shape.hidden + width + shape.hidden + shape.ffn)
    return tokens * (inputs * (element + mask_bytes) - frozen * element)


def device_memory_parts(job: TrainJob, *, micro_batch: int, accumulation: int) -> dict[str, float]:
    """Bytes needed at the peak of a step on one GPU, by part: `sizing.training_memory`, slack of the allocator left
    out."""
    layout = one_layout(micro_batch=micro_batch, accumulation=accumulation)
    parts = estimate_training_memory(job, layout, trainer=trainer_of(job)).components(0)
    parts.pop("fragmentation", None)
    parts["activations"] = parts.get("activations", 0.0) + adapter_bytes(job, micro_batch, mask_bytes=1.0)
    return parts
