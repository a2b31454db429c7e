"""Whether a step is up to date: a digest of what it does and reads, and of what it wrote."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.runs.locations import absolute, files_at, is_remote
from tonnage.runs.reading import load_run_spec

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
