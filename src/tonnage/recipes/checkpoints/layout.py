"""What a checkpoint folder holds, by name, and its manifest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = "tonnage/checkpoint@1"
WEIGHTS: Final = (
    "weights.safetensors"  # trained parameters and buffers, by name; of a shared-out model there is `shards/` instead
)
TRAINING: Final = "training.pt"  # optimizer, schedule, scaler, randomness of each process
POSITION: Final = "position.json"  # the position of the run
MANIFEST: Final = "manifest.json"  # size and hash of the others; written last
_NAME: Final = re.compile(r"step-(\d{8,})")
_CHUNK: Final = 1 << 22


def folder_name(step: int) -> str:
    """The folder of a step, so that names sort as steps do.

    >>> folder_name(120)
    'step-00000120'
    """
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """The step in a folder's name, or None for what is no checkpoint."""
    found = _NAME.fullmatch(folder.name)
    return int(found[1]) if found else None


def newest_first(checkpoints: Path) -> Iterator[Path]:
    """Every checkpoint folder, valid or not, the highest step first."""
    named = [(step, path) for path in checkpoints.glob("step-*") if (step := step_of(path)) is not None]
    yield from (path for _, path in sorted(named, reverse=True))


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def manifest_of(folder: Path, step: int) -> dict[str, Any]:
    """Sizes and hashes of the files as they are on the disk now."""
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in files_of(folder)
    }
    return {"schema": SCHEMA, "step": step, "files": files}


def files_of(folder: Path) -> list[Path]:
    """All files of a checkpoint but its manifest."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
