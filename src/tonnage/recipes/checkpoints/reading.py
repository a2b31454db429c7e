"""Find and verify the checkpoint to go on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import TonnageError
from tonnage.recipes.checkpoints.layout import (
    MANIFEST,
    POSITION,
    SCHEMA,
    TRAINING,
    WEIGHTS,
    newest_first,
    sha256_of,
)
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor


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
