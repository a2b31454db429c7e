"""What a training row's note and columns say about the program that ran: precision, attention, practice."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tonnage.calibration.rows import TrainingRow
from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.training_practice import Practice
from tonnage.workload.jobs import Attention, Method, Optimizer, TrainPrecision
from tonnage.workload.shapes import ModelShape

MASKED_SHARE = 0.16  # masked positions of a masked-language-model: 20 of 128, 80 of 512 (Devlin et al. 2018)
GENERATOR_SHARE = {
    768: 1 / 3,
    1024: 1 / 4,
}  # width of ELECTRA's generator (Clark et al. 2020, arXiv:2003.10555, table 6)

CHUNKED_LOSS_BYTES = 2.5  # 16-bit logits, and 4 bytes for each of an eighth of them

FUSED = re.compile(
    r"transformer engine|megatron|fused (?!optim)|DGX-[HB]\d|unsloth kernels|apex|\bNHWC\b", re.IGNORECASE
)
MEGATRON = re.compile(r"megatron|PTD-P|oneflow", re.IGNORECASE)
SPLIT = re.compile(r"\b[tp]p=(?!1\b)\d+")  # tensor or pipeline parallel: programs of Megatron's kind
TENSORFLOW = re.compile(r"\bTF[12]?\b|tensorflow", re.IGNORECASE)
# Programs that lay images out with channels last: stated, those whose framework does so by itself in mixed precision,
# and tuned input pipelines and configurations, which come with it.
CHANNELS_LAST = re.compile(
    r"\bNHWC\b|channels.last|\bTF[12]?\b|tensorflow|paddle|\bDALI\b|configs?\.ya?ml", re.IGNORECASE
)
JAX = re.compile(r"\bJAX\b|paxml", re.IGNORECASE)
MODERN = re.compile(r"DGX-[HB]\d|transformer engine|flash|SDPA|packed|recipe", re.IGNORECASE)
PRETRAINING = re.compile(r"pre-?train", re.IGNORECASE)
FINETUNING = re.compile(r"fine-?tun|squad|glue|sst|mrpc|few-shot", re.IGNORECASE)
NATIVE = re.compile(r"(finetune|lora|qlora)_(single|distributed)", re.IGNORECASE)

_PRECISIONS: dict[str, TrainPrecision] = {
    "fp32": "fp32", "32-true": "fp32", "tf32": "tf32", "fp16": "fp16", "16-mixed": "fp16", "fp16-mixed": "fp16",
    "amp": "fp16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16-true", "16-true": "bf16-true",
    "fp8": "fp8", "nf4 base": "bf16-true", "nf4": "bf16-true",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The program, as far as a row tells: what it computes in, how it attends, and its habits."""

    precision: TrainPrecision
    attention: Attention
    method: Method
    optimizer: Optimizer
    compiled: bool
    practice: Practice
    name: str  # a coarse class, for «how far is this from what we have seen»


def engine_of(row: TrainingRow, shape: ModelShape, device: Accelerator) -> Engine | None:
    """The engine of a row; None where its precision is none we know."""
    precision = _precision(row, device)
    if precision is None:
        return None
    text = f"{row.note} {row.sharding}"
    megatron = bool(MEGATRON.search(row.note) or SPLIT.search(row.sharding)) and shape.architecture == "decoder"
    attention = _attention(row, shape, device)
    jax = bool(JAX.search(row.note))
    compiled = jax or (row.compile == "y" and not TENSORFLOW.search(row.note))  # XLA of that time merged little there
    practice = Practice(
        fused=bool(FUSED.search(text)) or megatron,
        cached_tokens=_cached(row),
        logit_share=MASKED_SHARE if shape.architecture == "encoder" else 1.0,
        interleave=_degree(row, "vp"),
        reduce_bytes=2.0 if megatron and precision in ("fp16", "fp8") else 0.0,  # in bf16 sums are kept in 32 bit
        state="megatron" if megatron else "autocast",
        optimizer_passes=1.5 if row.optimizer.upper() == "LAMB" else 1.0,
        sequence_parallel=not megatron or _shares_sequence(row, attention),
        thin_residual=megatron
        or (precision == "fp16" and not TENSORFLOW.search(row.note))
        or bool(re.search(r"fsdp|zero", row.sharding)),
        loss_bytes=_loss_bytes(row, megatron=megatron),
        kept_factor=1.4 if TENSORFLOW.search(row.note) else 1.0,
        channels_last=jax or bool(CHANNELS_LAST.search(row.note)),
        planned_memory="static" in row.mem_kind,
        offloaded_optimizer=_is_paged(row),
        offloaded_state="offload" in row.sharding,
        offloaded_activations="offload" in row.activation_checkpointing
        or (not row.activation_checkpointing and "unsloth" in row.note.lower()),
        gradients_in_backward=_steps_in_backward(row),
        repeats_kv=is_native(row),
        fused_optimizer=is_native(row),
        adapter_bytes=2.0 if is_native(row) else 4.0,
        table_bytes=2.0 if is_native(row) or "unsloth kernels" in row.note.lower() else 4.0,
    )
    return Engine(
        precision=precision,
        attention=attention,
        method=_method(row),
        optimizer=_optimizer(row),
        compiled=compiled,
        practice=replace(practice, target_tokens=_targets(row)),
        name=_name(row, megatron=megatron, compiled=compiled),
    )


def has_vocabulary(row: TrainingRow, shape: ModelShape) -> bool:
    """Whether the run's loss is over the vocabulary: all but an encoder's fine-tuning."""
    if shape.architecture != "encoder":
        return True
    return not FINETUNING.search(row.note) or bool(PRETRAINING.search(row.note))


def has_generator(row: TrainingRow) -> bool:
    """Whether a generator is trained beside the model (replaced-token pre-training)."""
    return "generator" in row.note and bool(PRETRAINING.search(row.note))


def _precision(row: TrainingRow, device: Accelerator) -> TrainPrecision | None:
    bf16 = device.dense_bf16_tflops is not None
    text = row.precision.strip().lower()
    if not text:
        return "bf16" if bf16 else "fp16"
    found = _PRECISIONS.get(text)
    if found == "bf16" and not bf16:
        return "fp16"
    return "bf16-true" if found == "bf16" and (is_native(row) or row.method != "full") else found


def _attention(row: TrainingRow, shape: ModelShape, device: Accelerator) -> Attention:
    """As stated; else fused where the software must be newer than FlashAttention (mid 2022): Hopper and later, gated
    rotary decoders, notes that say so."""
    if row.attention in ("eager", "sdpa", "flash"):
        return row.attention  # type: ignore[return-value]
    recent = device.architecture.split(" ")[0] in ("Hopper", "Blackwell", "Ada", "CDNA3", "CDNA4")
    gated = shape.gated_mlp and shape.positions == "rotary"
    if (
        gated
        or MODERN.search(row.note)
        or (recent and shape.architecture == "decoder" and not shape.relative_projections)
    ):
        return "sdpa"
    return "eager"


def _method(row: TrainingRow) -> Method:
    text = row.method.lower()
    return "qlora" if "qlora" in text else "lora" if "lora" in text else "full"


def _optimizer(row: TrainingRow) -> Optimizer:
    text = row.optimizer.lower()
    if "8bit" in text or "8-bit" in text:
        return "adamw-8bit"
    if "adafactor" in text:
        return "adafactor"
    return "sgd" if text.startswith("sgd") else "adamw"


def _cached(row: TrainingRow) -> int:
    """Memory tokens of a recurrent segment: as stated, else (Transformer-XL) as long as the segment."""
    stated = re.search(r"mem_len=(\d+)", row.note)
    if stated:
        return int(stated[1])
    return (row.seq_len or 0) if re.search(r"transformer-?xl", row.model, re.IGNORECASE) else 0


def _targets(row: TrainingRow) -> int:
    stated = re.search(r"target (\d+)", row.note)
    return int(stated[1]) if stated else 0


def _degree(row: TrainingRow, kind: str) -> int:
    found = re.search(rf"\b{kind}=(\d+)", row.sharding)
    return int(found[1]) if found else 1


def _loss_bytes(row: TrainingRow, *, megatron: bool) -> float:
    """Bytes per logit of losses other than the plain one: made chunk by chunk (the 16-bit logits stay), inside a
    fused kernel (none), or Megatron's in place (16-bit logits, one fp32 copy, which becomes the gradient)."""
    if re.search(r"unsloth kernels|unsloth,|fused[\w/ ,]*(CE|cross)", row.note, re.IGNORECASE):
        return 0.5
    native = is_native(row) and row.activation_checkpointing != "none"
    return CHUNKED_LOSS_BYTES if "chunked cross" in row.note or native else 6.0 if megatron else 0.0


def _shares_sequence(row: TrainingRow, attention: Attention) -> bool:
    """Sequence parallelism: where stated, and in software new enough for fused attention (both are of May 2022)."""
    return attention != "eager" or bool(re.search(r"sequence[ -]parallel", row.note))


def is_native(row: TrainingRow) -> bool:
    """A run of the PyTorch-native fine-tuning recipes, whose default configuration recomputes activations, makes the
    loss chunk by chunk, and on one GPU steps a paged optimizer inside backward."""
    return bool(NATIVE.search(row.note))


def _default_full(row: TrainingRow) -> bool:
    default = "default config" in row.note and row.method == "full" and not row.activation_checkpointing
    return is_native(row) and default and row.n_gpus == 1


def _is_paged(row: TrainingRow) -> bool:
    return _default_full(row) and not row.optimizer


def _steps_in_backward(row: TrainingRow) -> bool:
    return "in backward" in row.optimizer or "step fused in backward" in row.note or _default_full(row)


def _name(row: TrainingRow, *, megatron: bool, compiled: bool) -> str:
    if TENSORFLOW.search(row.note):
        return "tensorflow"
    if JAX.search(row.note):
        return "jax"
    return "megatron" if megatron else "compiled" if compiled else "pytorch"
