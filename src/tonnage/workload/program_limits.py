"""Layouts and kernels that training programs do not have, as their documentation has it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from tonnage.values import dataclass
from tonnage.workload.programs import Program, ProgramName
from tonnage.workload.shapes import ModelShape

Degree = Literal["tensor_parallel", "pipeline_parallel", "context_parallel"]
ALL_DEGREES: Final[tuple[Degree, ...]] = ("tensor_parallel", "pipeline_parallel", "context_parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """Degrees that stay at 1, those that do with adapters, and the shardings searched (empty: the usual ones).

    A sharding that is not searched may be asked for: it is an option of the program, not its default.
    """

    never: tuple[Degree, ...] = ()
    not_with_adapters: tuple[Degree, ...] = ()
    shardings: tuple[str, ...] = ()
    source: str = ""

    def refused(self, method: str) -> tuple[Degree, ...]:
        """Degrees that the program does not run for a method."""
        return (*self.never, *(() if method == "full" else self.not_with_adapters))


# Programs with an interleaved schedule of their pipelines: Megatron-LM --num-layers-per-virtual-pipeline-stage, NeMo
# virtual_pipeline_model_parallel_size, torch.distributed.pipelining ScheduleInterleaved1F1B (torchtitan:
# pipeline_parallel_schedule), Paddle num_virtual_pipeline_stages (PaddlePaddle/Paddle#45402). DeepSpeed's engine, which
# Megatron-DeepSpeed runs its pipeline on, has none (deepspeedai/DeepSpeed#4035).
INTERLEAVING: Final[tuple[ProgramName, ...]] = ("megatron", "nemo", "torchtitan", "pytorch", "paddle")
# Megatron's distributed optimizer shards optimizer state; sharding of gradients and weights is Megatron-FSDP, which is
# asked for (--use-megatron-fsdp, --data-parallel-sharding-strategy).
_MEGATRON: Final = ProgramLimits(
    shardings=("ddp", "zero1"), source="docs.nvidia.com/megatron-core: distributed optimizer; Megatron-FSDP"
)
PROGRAM_LIMITS: Final[Mapping[ProgramName, ProgramLimits]] = MappingProxyType(
    {
        "unsloth": ProgramLimits(
            never=ALL_DEGREES, source="unsloth.ai/docs, multi-GPU fine-tuning: DDP, FSDP and DeepSpeed"
        ),
        "torchtune": ProgramLimits(
            never=("pipeline_parallel",), not_with_adapters=("tensor_parallel", "context_parallel"),
            source="torchtune recipes: tensor_parallel_dim and context_parallel_dim in full_finetune_distributed alone",
        ),
        "litgpt": ProgramLimits(never=ALL_DEGREES, source="litgpt finetune, pretrain: FSDP or DDP of Fabric"),
        "nanogpt": ProgramLimits(never=ALL_DEGREES, shardings=("ddp",), source="karpathy/nanoGPT train.py: DDP"),
        "axolotl": ProgramLimits(
            never=("pipeline_parallel",), source="docs.axolotl.ai, N-D parallelism: FSDP, tensor and context parallel"
        ),
        "tonnage": ProgramLimits(
            never=ALL_DEGREES,
            shardings=("ddp", "zero2", "zero3"),
            source="tonnage/recipes/engine.py: DDP, or FSDP over all processes",
        ),
        "megatron": _MEGATRON,
        "nemo": _MEGATRON,
    }
)  # fmt: skip


def limits_of(name: ProgramName | None) -> ProgramLimits:
    """The limits of a program; none where it is not named or documents none.

    >>> limits_of("torchtune").refused("lora")
    ('pipeline_parallel', 'tensor_parallel', 'context_parallel')
    """
    return ProgramLimits() if name is None else PROGRAM_LIMITS.get(name, ProgramLimits())


def writes_scores(program: Program, shape: ModelShape) -> bool:
    """Whether the program runs attention as one kernel by default but has no such kernel for the model: transformers
    has none for families whose scores have a bias or a sink of their own (BLOOM, MPT, gpt-oss; data/families.toml)."""
    of_transformers = program.name in ("transformers", "tonnage") and program.attention == "sdpa"
    return of_transformers and not shape.fused_attention and (shape.positions == "alibi" or shape.attention_sinks)
