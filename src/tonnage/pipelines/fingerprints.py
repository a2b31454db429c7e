"""Whether a step is up to date: a digest of what it does and reads, and of what it wrote; and what it leaves for the
next.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.runs import RunFolder, RunStatus
from tonnage.runs.locations import absolute, files_at, is_remote
from tonnage.runs.reading import load_run_spec
from tonnage.values import dataclass

CHUNK_BYTES = 1 << 20


def digest_file(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def digest_path(path: Path) -> str | None:
    """sha256 of a file, or of a folder's names and files; None where there is nothing."""
    if path.is_file():
        return digest_file(path)
    if not path.is_dir():
        return None
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return digest_values({str(one.relative_to(path)): digest_file(one) for one in files})


def digest_values(values: Mapping[str, Any]) -> str:
    """sha256 of values as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def digest_inputs(folder: Path, patterns: tuple[str, ...], *, step: str) -> dict[str, str]:
    """Path -> digest of every input. InputError where a path or a pattern names nothing."""
    return {_shown(path, folder): _known(path) for path in _matches(folder, patterns, step)}


def digest_step(pipeline: Pipeline, step: PipelineStep) -> dict[str, str]:
    """Path -> digest of all that a step reads: its `inputs`, its workload file with the rows it names, its `data`."""
    folder = pipeline.folder
    own = digest_inputs(folder, (*step.inputs, *((step.workload,) if step.workload else ())), step=step.name)
    return own | {_shown(path, folder): _known(path) for path in _rows(pipeline, step)}


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


def _rows(pipeline: Pipeline, step: PipelineStep) -> Iterator[Path]:
    """The local files of rows a step reads. WorkloadError for a workload file that cannot be used.

    `{step.output}` as `data` is seen through the step it is of.
    """
    if step.data is not None and "{" not in step.data and not is_remote(step.data):
        yield from files_at(absolute(step.data, pipeline.folder))
    if step.workload is None:
        return
    data = load_run_spec(pipeline.folder / step.workload).data
    for source in (data.train, data.validation, data.test):
        for location in () if source is None else (source.location, *source.more):
            if source is not None and source.format not in ("hf", "sql") and not is_remote(location):
                yield from files_at(location)


def _shown(path: Path, folder: Path) -> str:
    """A path as it reads from the pipeline's folder: the same wherever that folder is."""
    return os.path.relpath(path, folder)


def _known(path: Path) -> str:
    digest = digest_path(path)
    if digest is None:
        raise InputError(f"{path}: is neither a file nor a folder", hint="inputs are files, folders or patterns")
    return digest


def _matches(folder: Path, patterns: tuple[str, ...], step: str) -> Iterator[Path]:
    for pattern in patterns:
        found = sorted(folder.glob(pattern)) if any(sign in pattern for sign in "*?[") else [folder / pattern]
        found = [path for path in found if path.exists()]
        if not found:
            hint = "a path or pattern in `inputs` starts from the pipeline file's folder"
            raise InputError(f"step '{step}': no input matches '{pattern}' in {folder}", hint=hint)
        yield from found
