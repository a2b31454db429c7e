"""Is the machine what the run needs? Asked before the first step, of values: nothing is looked up here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

SMALL_DISK_GIB: Final = 1.0  # less free room than this is worth a word, whatever is saved
STATE_PER_WEIGHT: Final = 3.0  # a checkpoint of AdamW holds the weights and two moments of their size
ORDER: Final = ("refused", "cut short", "doubtful")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device as the driver lists it."""

    name: str
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMachine:
    """What is here. Cores are those this process may use."""

    cores: int
    memory_gib: float
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinding:
    """A gap between run and machine. `refused`: the run would fail; `doubtful`: it may.
    `cut short`: its own limit surely ends it before its work does, which somebody may want (`--yes`)."""

    kind: Literal["refused", "cut short", "doubtful"]
    message: str
    hint: str = ""


def check_run(
    spec: RunSpec,
    machine: LocalMachine,
    *,
    free_disk_gib: float,
    weights_gib: float | None,
    prediction: Mapping[str, Any],
) -> tuple[PreflightFinding, ...]:
    """Every gap, refusals first. `weights_gib`: None where it is not known how large a checkpoint is."""
    found = [
        *_name(spec),
        *_processes(spec, machine),
        *_memory(spec, machine, prediction),
        *_disk(spec, free_disk_gib, weights_gib),
        *_cost(spec, prediction),
    ]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.kind)))


def uses_gpus(spec: RunSpec, machine: LocalMachine) -> bool:
    """Whether the workers will compute on GPUs."""
    return spec.launch.device == "cuda" or (spec.launch.device == "auto" and bool(machine.gpus))


def _name(spec: RunSpec) -> Iterator[PreflightFinding]:
    if not NAME.fullmatch(spec.name):
        yield PreflightFinding(
            kind="refused",
            message=f"'{spec.name}' cannot name a run",
            hint="up to 64 letters, digits, points, dashes and underscores: --name NAME",
        )


def _processes(spec: RunSpec, machine: LocalMachine) -> Iterator[PreflightFinding]:
    launch = spec.launch
    if launch.runner == "local" and launch.processes > 1:
        yield PreflightFinding(
            kind="refused",
            message=f"the runner 'local' is one process, the run asks for {launch.processes}",
            hint="--runner torchrun starts several on this machine",
        )
    if uses_gpus(spec, machine):
        has = len(machine.gpus)
        if has < launch.processes:
            yield PreflightFinding(
                kind="refused",
                message=f"needs {_counted(launch.processes, 'GPU')}, one a process; this machine has {has}",
                hint=f"--processes {has} with the same global batch" if has else "`device: cpu`, or another machine",
            )
    elif launch.processes > machine.cores:
        yield PreflightFinding(kind="doubtful", message=f"{launch.processes} processes share {machine.cores} cores")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _gib(size: float) -> str:
    """A size in words, small ones in MiB: a model of a megabyte takes no «0.0 GiB».

    >>> _gib(12.34), _gib(0.0125)
    ('12.3 GiB', '12.8 MiB')
    """
    return f"{size:.1f} GiB" if size >= 0.1 else f"{size * 1024:.1f} MiB"


def _memory(spec: RunSpec, machine: LocalMachine, prediction: Mapping[str, Any]) -> Iterator[PreflightFinding]:
    figure = prediction.get("figures", {}).get("peak_memory_gib")
    if not figure:
        return
    if uses_gpus(spec, machine):
        if not machine.gpus:
            return
        has, needs, where = min(gpu.memory_gib for gpu in machine.gpus), 1, machine.gpus[0].name
    else:
        has, needs, where = machine.memory_gib, spec.launch.processes, "this machine"
    low, high = figure["low"] * needs, figure["high"] * needs
    hint = "a smaller micro-batch, `recompute: full`, or a method that keeps less (lora)"
    if low > has:
        message = f"needs {_gib(low)} to {_gib(high)}, {where} has {_gib(has)}"
        yield PreflightFinding(kind="refused", message=message, hint=hint)
    elif high > has:
        message = f"may not fit: needs {_gib(low)} to {_gib(high)}, {where} has {_gib(has)}"
        yield PreflightFinding(kind="doubtful", message=message, hint=hint)


def _disk(spec: RunSpec, free_gib: float, weights_gib: float | None) -> Iterator[PreflightFinding]:
    if weights_gib is None:
        if free_gib < SMALL_DISK_GIB:
            yield PreflightFinding(kind="doubtful", message=f"{_gib(free_gib)} are free for checkpoints and the model")
        return
    one = weights_gib * (STATE_PER_WEIGHT if spec.training.method == "full" else 1.0)
    wanted = one * (spec.checkpoint.keep + 1) + weights_gib
    hint = "make room, move TONNAGE_HOME, or keep fewer checkpoints"
    if free_gib < one + weights_gib:
        message = f"a checkpoint and the model take {_gib(one + weights_gib)}, {_gib(free_gib)} are free"
        yield PreflightFinding(kind="refused", message=message, hint=hint)
    elif free_gib < wanted:
        message = f"{spec.checkpoint.keep} checkpoints, one more while it is written, and the model take "
        yield PreflightFinding(
            kind="doubtful", message=f"{message}{_gib(wanted)}, {_gib(free_gib)} are free", hint=hint
        )


def _cost(spec: RunSpec, prediction: Mapping[str, Any]) -> Iterator[PreflightFinding]:
    figure, limit = prediction.get("figures", {}).get("cost_usd"), spec.guard.max_cost_usd
    if not figure or limit is None:
        return
    hint = "raise --max-cost, or train less: the run would be stopped before its end"
    if figure["low"] > limit:
        message = f"costs ${figure['low']:,.2f} to ${figure['high']:,.2f}, the limit is ${limit:,.2f}"
        yield PreflightFinding(kind="cut short", message=message, hint=f"{hint}; -y starts it all the same")
    elif figure["high"] > limit:
        message = f"may cost up to ${figure['high']:,.2f}, the limit is ${limit:,.2f}"
        yield PreflightFinding(kind="doubtful", message=message, hint=hint)
