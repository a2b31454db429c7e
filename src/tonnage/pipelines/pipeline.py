"""A pipeline as frozen values: its steps in an order in which each comes after what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from tonnage.values import dataclass

StepKind = Literal["command", "run", "evaluate", "register", "predict"]
KINDS: Final[tuple[StepKind, ...]] = ("command", "run", "evaluate", "register", "predict")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """One step. `command` is complete for `command` steps; the others become command lines when they run."""

    name: str
    kind: StepKind
    needs: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workload: str | None = None  # run: the workload file
    of: str | None = None  # evaluate, register, predict: the run step whose model it is
    data: str | None = None  # evaluate, predict: rows; None: the test split of the run
    require: tuple[tuple[str, str, float], ...] = ()  # evaluate: metric, ">=" or "<=", bound
    register_as: str | None = None
    alias: str | None = None
    inputs: tuple[str, ...] = ()  # files, folders or patterns it reads, from the pipeline's folder
    outputs: tuple[tuple[str, str], ...] = ()  # name -> file or folder it writes
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A checked pipeline: names are unique, needs exist, no step waits for itself."""

    name: str
    folder: Path  # paths of the steps start here
    steps: tuple[PipelineStep, ...]  # each after those it needs

    def step(self, name: str) -> PipelineStep:
        return next(step for step in self.steps if step.name == name)

    def after(self, names: frozenset[str]) -> frozenset[str]:
        """These steps and all that, directly or not, need them."""
        found = set(names)
        for step in self.steps:
            if found & set(step.needs):
                found.add(step.name)
        return frozenset(found)
