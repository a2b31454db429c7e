"""The program of a training row as values: what its columns state, and what a named program documents of itself."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, get_args

from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_methods import Adapters, adapters_of, precision_of
from tonnage.catalog.hardware import Accelerator
from tonnage.values import dataclass
from tonnage.workload.jobs import Attention, Lora, Objective, Optimizer, Recompute, TrainPrecision
from tonnage.workload.program_limits import writes_scores
from tonnage.workload.programs import (
    PROGRAMS,
    Kernels,
    Loss,
    OffloadPart,
    Program,
    ProgramName,
    Selective,
    State,
    documented,
)
from tonnage.workload.shapes import ModelShape

ROW_RANK: Final = 8  # of adapters whose rank a row does not state: the default of PEFT and of torchtune


class NoEngine(Exception):
    """A row whose method or precision cannot be sized; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProgram:
    """The program, as far as a row tells: what it computes in, how it attends, and its habits."""

    precision: TrainPrecision
    attention: Attention
    adapters: Adapters
    lora: Lora
    optimizer: Optimizer
    compiled: bool
    recompute: Recompute
    program: Program


def engine_of(row: TrainingRow, shape: ModelShape, device: Accelerator) -> RowProgram:
    """The engine of a row; raises NoEngine."""
    adapters = adapters_of(row.method, row.precision)
    if adapters is None:
        raise NoEngine(f"method '{row.method}' cannot be sized")
    name = _choice(row.program, PROGRAMS)
    stated = stated_program(row, name)
    usual = documented(
        name, method=adapters.method, gpus=row.n_gpus, version=row.program_version, compiled=stated.compile
    )
    program = replace(stated.over(usual), offload=_offload(row, usual.offload or ()))
    if program.clustered and shape.architecture == "convolution":
        program = replace(program, kernels="fused")  # XLA merges norm, rectifier and sum between convolutions
    bf16, true = device.dense_bf16_tflops is not None, program.sixteen_bit == "true"
    precision = precision_of(row.precision, adapters.method, bf16=bf16, true=true)
    if precision is None:
        raise NoEngine(f"precision '{row.precision}' cannot be sized")
    if stated.attention is None and writes_scores(program, shape):
        program = replace(program, attention="eager")
    rank = ROW_RANK if adapters.rank is None else adapters.rank
    return RowProgram(
        precision=precision,
        attention=program.attention or usual_attention(shape, device, adapters),
        adapters=adapters,
        lora=Lora(rank=rank, targets=program.adapter_targets or "all-linear", kind=adapters.kind),
        optimizer=program.optimizer or "adamw",
        compiled=bool(program.compile),
        recompute=program.recompute or "none",
        program=program,
    )


def stated_program(row: TrainingRow, name: ProgramName | None = None) -> Program:
    """What the columns of a row state of its program.

    TensorFlow's XLA clusters some operations and leaves the rest to the graph (tensorflow.org/xla, auto-clustering);
    that is not the compilation of a whole step that `compile` means.
    """
    optimizer = row.optimizer.lower()
    return Program(
        name=name,
        version=row.program_version,
        kernels=_choice(row.kernels, get_args(Kernels)),
        state=_choice(row.state, get_args(State)),
        attention=_choice(row.attention, get_args(Attention)),
        compile=False if name == "tensorflow" else _answer(row.compile),
        clustered=_answer(row.compile) if name == "tensorflow" else None,
        recompute=recompute_of(row.activation_checkpointing),
        selective=_choice(row.checkpoint_kind, get_args(Selective)),
        loss=_choice(row.loss, get_args(Loss)),
        optimizer=optimizer_of(optimizer),
        optimizer_fused=_answer(row.optimizer_fused),
        optimizer_in_backward=_in_backward(row),
        channels_last=_answer(row.channels_last),
        sequence_parallel=_answer(row.sequence_parallel),
        adapter_targets=_choice(row.adapter_targets, ("attention", "all-linear")),
        tables_apart=_answer(row.tables_apart),
    )


def usual_attention(shape: ModelShape, device: Accelerator, adapters: Adapters) -> Attention:
    """Of a program that neither says nor documents it: fused where the software must be newer than FlashAttention (May
    2022, arXiv:2205.14135): adapters of language models (PEFT's first release is of February 2023), gated rotary
    decoders (2023 on), decoders on devices sold since."""
    recent = device.architecture.split(" ")[0] in ("Hopper", "Blackwell", "Ada", "CDNA3", "CDNA4")
    decoder = shape.architecture == "decoder" and not shape.relative_projections
    gated = shape.gated_mlp and shape.positions == "rotary"
    return "sdpa" if gated or (decoder and (recent or adapters.method != "full")) else "eager"


def objective_of(row: TrainingRow, shape: ModelShape) -> Objective:
    """What the head learns: the vocabulary, but for an encoder that is fine-tuned."""
    return (
        "classification" if shape.architecture == "encoder" and row.objective == "classification" else "language-model"
    )


def optimizer_of(text: str) -> Optimizer | None:
    """The optimizer of a cell, by the state it keeps: two moments, one, or sums of rows and columns; None: not stated.

    >>> optimizer_of("AdamW8bit, fused in backward"), optimizer_of("LAMB"), optimizer_of("")
    ('adamw-8bit', 'adamw', None)
    """
    text = text.lower()
    if not text:
        return None
    if re.search(r"8[- _]?bit", text):
        return "adamw-8bit"
    if "adafactor" in text:
        return "adafactor"
    return "sgd" if text.startswith(("sgd", "lion")) else "adamw"


def recompute_of(text: str) -> Recompute | None:
    """What a cell says of recomputation; None where it says nothing that is known.

    >>> recompute_of("full+offload"), recompute_of("selective (op)"), recompute_of("n"), recompute_of("partial")
    ('full', 'selective', 'none', None)
    """
    found = re.match(r"full|selective|sac|none|n(?:o)?\b|off|false|y(?:es)?\b|on|true", text.strip().lower())
    if found is None:
        return None
    kinds: dict[str, Recompute] = {"n": "none", "f": "none", "s": "selective"}
    return "full" if found[0] == "full" else "none" if found[0] == "off" else kinds.get(found[0][0], "full")


def _in_backward(row: TrainingRow) -> bool | None:
    return True if "in backward" in row.optimizer else _answer(row.optimizer_in_backward)


def _offload(row: TrainingRow, usual: tuple[OffloadPart, ...]) -> tuple[OffloadPart, ...]:
    """What stays in host memory: of each part as its own cell says, else as the program documents."""
    if row.offload:
        return tuple(part for part in get_args(OffloadPart) if part in row.offload)
    sharded = "offload" in row.sharding
    said: dict[OffloadPart, bool | None] = {
        "optimizer": True if sharded else "paged" in row.optimizer.lower() if row.optimizer else None,
        "parameters": True if sharded else None,
        "activations": "offload" in row.activation_checkpointing if row.activation_checkpointing else None,
    }
    return tuple(part for part, keeps in said.items() if (part in usual if keeps is None else keeps))


def _answer(text: str) -> bool | None:
    return {"y": True, "n": False}.get(text.strip().lower())


def _choice(text: str, choices: tuple[Any, ...]) -> Any:
    """The cell where it is one of `choices`, else None: a word that is not known states nothing."""
    return text if text in choices else None
