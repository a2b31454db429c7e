"""What a file's training program does: its documented defaults, with what the file states over them; its problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tonnage.workload.file.job_fields import TrainFields
from tonnage.workload.file.kinds import TrainFile
from tonnage.workload.file.problems import Problem
from tonnage.workload.jobs import Lora, TrainPrecision
from tonnage.workload.program_limits import writes_scores
from tonnage.workload.programs import Program, ProgramName, documented
from tonnage.workload.run_terms import OWN_TASK
from tonnage.workload.shapes import ModelShape

STATED: Final = ("loss", "kernels", "optimizer_in_backward", "offload", "attention", "optimizer", "compile")
SIXTEEN_BIT_BASE: Final = ("llama-adapter", "llama-adapter-v2", "prefix")
OF_RUNS: Final = ("tonnage", "transformers", "pytorch")  # `tonnage run`, and what it is made of
NOT_IN_RUNS: Final = ("loss", "kernels", "optimizer_in_backward", "offload")


def freeze_program(file: TrainFile) -> Program:
    """The program of a file, values only; without a name, what is stated."""
    train = file.train
    name = _program_name(file)
    one = 1 in (file.constraints.max_gpus, file.layout.gpus)
    version = train.program_version or ""
    usual = documented(name, method=train.method, gpus=1 if one else None, version=version, compiled=train.compile)
    stated = {name: getattr(train, name) for name in STATED}
    return Program(name=name, version=version, **stated).over(usual)


def _program_name(file: TrainFile) -> ProgramName | None:
    """As named; else `tonnage` where the file says how `tonnage run` carries it out, with a task of its own."""
    if file.train.program is None and file.run is not None and file.run.task != OWN_TASK:
        return "tonnage"
    return file.train.program


def program_terms(file: TrainFile, shape: ModelShape) -> dict[str, Any]:
    """The fields of a `TrainJob` that follow the program. `shape`: of its model."""
    train, program = file.train, freeze_program(file)
    if train.attention is None and writes_scores(program, shape):
        program = replace(program, attention="eager")
    return {
        "program": program,
        "precision": _precision(train, program),
        "optimizer": program.optimizer or "adamw",
        "attention": program.attention or "sdpa",
        "compile": bool(program.compile),
    }


def freeze_lora(train: TrainFields) -> Lora:
    """The adapters of a file; LoRA of rank 16 on every linear layer where it says nothing."""
    return Lora() if train.lora is None else Lora(**train.lora.model_dump())


def _precision(train: TrainFields, program: Program) -> TrainPrecision:
    """16-bit weights where the program holds them so and the file asks for nothing else."""
    return "bf16-true" if program.sixteen_bit == "true" and train.precision in ("auto", "bf16") else train.precision


def find_program_problems(file: TrainFile) -> Iterator[Problem]:
    """What cannot hold of program, optimizer, offload and adapters."""
    train, layout = file.train, file.layout
    if train.program_version is not None and train.program is None:
        yield Problem(("train", "program_version"), "no program is named", "say which: `program: transformers`")
    if train.optimizer_in_backward and (layout.accumulation or 1) > 1:
        yield Problem(
            ("train", "optimizer_in_backward"),
            f"gradients that are freed cannot be added up over {layout.accumulation} micro-batches",
            "write `accumulation: 1`, or leave the key out",
        )
    if train.lora is not None and train.lora.kind in SIXTEEN_BIT_BASE and train.method == "qlora":
        yield Problem(
            ("train", "lora", "kind"),
            f"{train.lora.kind} adapters are trained on a 16-bit base",
            "write `method: lora`, or `kind: lora`",
        )
    if file.run is not None:
        yield from _run_problems(train)


def _run_problems(train: TrainFields) -> Iterator[Problem]:
    """What `tonnage run` does not carry out."""
    if train.program is not None and train.program not in OF_RUNS:
        fault = f"found '{train.program}', but `run` trains with transformers"
        yield Problem(("train", "program"), fault, "remove `program`, or the `run` section")
    for name in NOT_IN_RUNS:
        if getattr(train, name) not in (None, "plain", "separate", False, ()):
            fault = f"found '{_shown(getattr(train, name))}', which `run` does not do"
            yield Problem(("train", name), fault, "remove the key, or the `run` section")
    if train.lora is not None and train.lora.kind != "lora":
        fault = f"found '{train.lora.kind}', which `run` does not train"
        yield Problem(("train", "lora", "kind"), fault, "write `kind: lora`, or remove the `run` section")


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value).lower()
