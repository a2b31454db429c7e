"""What a finished step leaves for the next ones, and whether it is still valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tonnage.pipelines.fingerprints import digest_path, digest_values
from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.runs import RunFolder, RunStatus
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneStep:
    """One step done: of which fingerprint, what it wrote, the run or the figures it ended with."""

    fingerprint: str
    outputs: Mapping[str, str] = field(default_factory=dict)  # path -> digest
    run: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    cached: bool = False  # nothing was done: it was up to date

    def to_values(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "outputs": dict(self.outputs),
            "run": self.run,
            "figures": dict(self.figures),
            "seconds": self.seconds,
        }

    def stands(self, folder: Path, home: Path) -> bool:
        """Whether all it wrote is still there, unchanged, and its run has succeeded."""
        if self.run is not None and not run_succeeded(home, self.run):
            return False
        return all(digest_path(folder / path) == digest for path, digest in self.outputs.items())


def run_folder(home: Path, name: str) -> RunFolder:
    return RunFolder(home / "runs" / name)


def run_succeeded(home: Path, name: str) -> bool:
    """Whether a run of this name has ended well."""
    return run_folder(home, name).state().state is RunStatus.SUCCEEDED


def fingerprint_of(step: PipelineStep, own: Mapping[str, str], before: Mapping[str, DoneStep]) -> str:
    """A digest of what the step does, of the files it reads and of what the steps before it left."""
    left = {
        name: {"outputs": dict(result.outputs), "run": result.run, "figures": dict(result.figures)}
        for name, result in before.items()
    }
    said = {
        "kind": step.kind,
        "command": step.command,
        "workload": step.workload,
        "data": step.data,
        "require": step.require,
        "register_as": step.register_as,
        "alias": step.alias,
        "outputs": dict(step.outputs),
    }
    return digest_values({"does": said, "reads": dict(own), "after": left})


def written(pipeline: Pipeline, step: PipelineStep) -> dict[str, str]:
    """Path -> digest of all outputs. ValueError names one that the step did not write."""
    found = {}
    for path in dict(step.outputs).values():
        digest = digest_path(pipeline.folder / path)
        if digest is None:
            raise ValueError(f"it ended well but wrote no {path}")
        found[path] = digest
    return found
