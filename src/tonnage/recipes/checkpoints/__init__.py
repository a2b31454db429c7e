"""Checkpoints that land: whole or not there, verified before they are used, the newest valid one kept."""

from tonnage.recipes.checkpoints.reading import Checkpoint, CheckpointInvalid, newest_valid, read_checkpoint
from tonnage.recipes.checkpoints.snapshot import Snapshot, put_state, take_snapshot
from tonnage.recipes.checkpoints.writing import CheckpointWriter, DiskFull

__all__ = [
    "Checkpoint",
    "CheckpointInvalid",
    "CheckpointWriter",
    "DiskFull",
    "Snapshot",
    "newest_valid",
    "put_state",
    "read_checkpoint",
    "take_snapshot",
]
