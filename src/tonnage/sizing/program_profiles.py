"""From what a training program does to the habits that physics takes: one way, for plans and measured rows alike."""

from __future__ import annotations

from typing import Final

from tonnage.sizing.precision import NF4_BYTES_PER_PARAMETER, SINGLE_SCALE_BYTES
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.workload.jobs import TrainJob
from tonnage.workload.programs import Loss, Program, documents_memory

# Bytes a logit takes at the start of backward, where the loss is not the plain one: 16-bit logits and an eighth of
# the rest while parts are made one by one (torchtune's CEWithChunkedOutputLoss: eight); next to nothing in a kernel
# that keeps no copy; in place, the 16-bit logits and one fp32 copy that becomes the gradient (Megatron-LM,
# vocab_parallel_cross_entropy); one kernel over 16-bit logits, those and their gradient; a plain
# loss in 16 bit, the logarithms beside them.
LOSS_BYTES: Final[dict[Loss, float]] = {
    "plain": 0.0, "chunked": 2.5, "fused": 0.5, "in-place": 6.0, "one-kernel": 4.0, "half": 6.0,
}  # fmt: skip
# Bytes that the loss moves for a logit, a third of forward and backward (0: those of a plain loss). One kernel reads
# 16-bit logits twice, and once more beside the gradient it writes (flash-attn, csrc/xentropy): 8. In place, in 32 bit:
# copy of the logits, greatest, difference, exponential, sum, quotient, product with the gradient, cast: 48 to 52. A
# plain one in 16 bit: half of what it moves in 32 bit (`training_job.PLAIN_LOSS_MOVED`).
LOSS_MOVED: Final[dict[Loss, float]] = {
    "plain": 0.0, "chunked": 0.0, "fused": 8.0 / 3.0, "in-place": 16.0, "one-kernel": 8.0 / 3.0, "half": 6.0,
}  # fmt: skip
MIXED: Final = ("bf16", "fp16", "fp8")
MASKED_SHARE: Final = 0.16  # masked positions of a masked-language-model: 20 of 128, 80 of 512 (Devlin et al. 2018)
# What predictions of memory err by differs with what is known: the interval of each is its own.
KNOWN_MEMORY: Final = "training memory"  # all weights trained by a program that documents what it holds
ADAPTER_MEMORY: Final = "training memory, adapters"
UNSTATED_MEMORY: Final = "training memory, program not stated"
PRIMITIVE_KEPT: Final = 1.4  # activations kept where a graph breaks them into primitives, over those of PyTorch


LOSS_PARTS: Final = 8  # torchtune, CEWithChunkedOutputLoss: num_output_chunks


def trainer_of(job: TrainJob) -> TrainerProfile:
    """The habits of the program of a job; PyTorch's where nothing is stated or documented.

    Gradients of a program with fp32 main ones cross the wire in 16 bit, but for bf16, whose sums need more digits.
    fp16 keeps the residual stream in 16 bit, as its loss scaling is made for, and so does a cast model, all of whose
    layers are 16-bit, unless the program says otherwise.
    """
    program = job.program
    megatron = program.state == "megatron"
    offload = program.offload or ()
    half = program.half_residual
    loss = program.loss or "plain"
    if loss == "half" and job.precision in ("fp32", "tf32"):
        loss = "plain"  # there are no 16-bit logits
    return TrainerProfile(
        fused=program.kernels == "fused",
        logit_share=MASKED_SHARE if job.model.architecture == "encoder" else 1.0,
        interleave=job.virtual_stages or 1,
        state=program.state or "autocast",
        reduce_bytes=2.0 if megatron and job.precision in ("fp16", "fp8") else 0.0,
        loss_bytes=LOSS_BYTES[loss],
        loss_parts=LOSS_PARTS if loss == "chunked" else 1,
        loss_moved_bytes=LOSS_MOVED[loss],
        primitives=bool(program.primitive_graph),
        clustered=bool(program.clustered),
        kept_factor=PRIMITIVE_KEPT if program.primitive_graph else 1.0,
        planned_memory=bool(program.planned_memory),
        adapter_bytes=0.0 if program.wide_adapters is False else 4.0,
        tensor_overlap=bool(program.tensor_overlap),
        data_overlap=bool(program.data_overlap),
        fused_accumulation=bool(program.fused_accumulation),
        optimizer_fused=bool(program.optimizer_fused) or program.kernels == "fused",
        offloaded_optimizer="optimizer" in offload,
        offloaded_state="parameters" in offload,
        offloaded_activations="activations" in offload,
        gradients_in_backward=bool(program.optimizer_in_backward),
        sequence_parallel=_shares_sequence(program, job),
        thin_residual=(job.precision == "fp16" or program.state == "cast-model") if half is None else half,
        channels_last=program.channels_last is not False,
        norm_copies=not program.fused_norms,
        repeats_kv=bool(program.repeated_kv),
        no_sync=program.whole_gradients is not False,
        keeps_gathered=bool(program.keeps_gathered),
        frozen_bytes=4.0 if program.wide_base and job.precision in MIXED else 0.0,
        table_bytes=2.0 if program.half_tables else 4.0,
        adapter_dropout=bool(program.adapter_dropout),
        keeps_quantised_inputs=bool(program.quantised_inputs),
        four_bit_bytes=SINGLE_SCALE_BYTES if program.single_scales else NF4_BYTES_PER_PARAMETER,
        quantised_head=bool(program.quantised_head),
        flat_gradients=bool(program.flat_gradients),
        tables_apart=bool(program.tables_apart),
        separate_gathers=bool(program.separate_gathers),
        lists_when_sharded=bool(program.lists_when_sharded),
        wide_gathers=bool(program.wide_gathers),
        wide_reduction=bool(program.wide_reduction),
        optimizer_by_tensor=bool(program.optimizer_by_tensor),
        standing_gradients=bool(program.standing_gradients),
        early_modules=bool(program.early_modules),
        layers_compiled=bool(program.layers_compiled),
        keeps_outputs=bool(program.keeps_outputs),
    )


def recompute_kind(recompute: str, program: Program) -> str:
    """What a program does for a kind of recomputation, as `layouts.RECOMPUTES` names it.

    >>> recompute_kind("selective", Program(selective="per-op")), recompute_kind("selective", Program())
    ('per-op', 'selective')
    """
    return "per-op" if recompute == "selective" and program.selective == "per-op" else recompute


def _shares_sequence(program: Program, job: TrainJob) -> bool:
    """Sequence parallelism: as stated; of Megatron's programs those new enough for fused attention (both May 2022)."""
    if program.sequence_parallel is not None:
        return program.sequence_parallel
    return program.state != "megatron" or job.attention != "eager"


def program_class(job: TrainJob) -> str:
    """A coarse class of the program, for «how far is this from what we have seen»; "" where none is stated."""
    name = job.program.name
    if name in ("tensorflow", "jax"):
        return str(name)
    if job.program.state == "megatron":
        return "megatron"
    return "compiled" if job.compile else "" if name is None else "pytorch"


def memory_group(job: TrainJob) -> str:
    """Which residuals speak for the memory of a job."""
    if not documents_memory(job.program.name):
        return UNSTATED_MEMORY
    return KNOWN_MEMORY if job.method == "full" else ADAPTER_MEMORY
