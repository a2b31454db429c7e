"""What a checkpoint folder holds, by name, and its manifest; the checkpoint to go on from, found and verified."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import TonnageError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor
SCHEMA: Final = "tonnage/checkpoint@1"
WEIGHTS: Final = (
    "weights.safetensors"  # trained parameters and buffers, by name; of a shared-out model there is `shards/` instead
)
TRAINING: Final = "training.pt"  # optimizer, schedule, scaler, randomness of each process
POSITION: Final = "position.json"  # the position of the run
MANIFEST: Final = "manifest.json"  # size and hash of the others; written last
_NAME: Final = re.compile(r"step-(\d{8,})")
_CHUNK: Final = 1 << 22


class CheckpointInvalid(TonnageError):
    """A checkpoint is not what its manifest says."""

    def __init__(self, path: Path, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {what}", hint=hint)
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint. Its tensors are read when asked for."""

    path: Path
    step: int
    position: Mapping[str, Any]

    def weights(self) -> dict[str, Tensor]:
        """Trained parameters and buffers by name, on the host."""
        from safetensors.torch import load_file

        return load_file(self.path / WEIGHTS)

    def training(self) -> dict[str, Any]:
        """Optimizer, schedule, scaler and randomness. Reads data only, never code."""
        import torch

        state: dict[str, Any] = torch.load(self.path / TRAINING, map_location="cpu", weights_only=True)
        return state


def read_checkpoint(path: Path) -> Checkpoint:
    """Verify sizes and hashes; CheckpointInvalid says what is wrong."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise CheckpointInvalid(path, f"format {manifest['schema']!r}, this version reads {SCHEMA!r}")
        for name, said in manifest["files"].items():
            _verify(path, name, said)
        position = json.loads((path / POSITION).read_text(encoding="utf-8"))
        return Checkpoint(path=path, step=int(manifest["step"]), position=position)
    except FileNotFoundError as error:
        raise CheckpointInvalid(path, f"{Path(error.filename).name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointInvalid(path, f"cannot be read: {error}") from error


def _verify(folder: Path, name: str, said: Mapping[str, Any]) -> None:
    size = (folder / name).stat().st_size
    if size != said["bytes"]:
        raise CheckpointInvalid(folder, f"{name} has {size} bytes, its manifest says {said['bytes']}")
    if sha256_of(folder / name) != said["sha256"]:
        raise CheckpointInvalid(folder, f"the content of {name} is not what was written (sha256 differs)")


def newest_valid(checkpoints: Path) -> tuple[Checkpoint | None, tuple[CheckpointInvalid, ...]]:
    """The newest checkpoint that verifies, and what was wrong with the newer ones."""
    faults: list[CheckpointInvalid] = []
    for path in newest_first(checkpoints):
        try:
            return read_checkpoint(path), tuple(faults)
        except CheckpointInvalid as fault:
            faults.append(fault)
    return None, tuple(faults)


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
