"""When a checkpoint is due, and taking one."""

from __future__ import annotations

import time
from pathlib import Path

from tonnage.recipes.checkpoints import Checkpoint, CheckpointWriter, take_snapshot
from tonnage.recipes.checkpoints.interval import CheckpointClock
from tonnage.recipes.checkpoints.snapshot import kept_tensors
from tonnage.recipes.checkpoints.together import SavingTogether
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.health import Diverged, all_finite
from tonnage.recipes.measuring import Measuring
from tonnage.recipes.position import Position
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec


class Saving:
    """Checkpoints of one attempt. All processes take part in a snapshot; rank 0 decides when and writes."""

    def __init__(
        self, engine: StepEngine, spec: RunSpec, folder: RunFolder, position: Position, measuring: Measuring
    ) -> None:
        self._engine, self._spec, self._folder = engine, spec, folder
        self._position, self._measuring = position, measuring
        self._trained_only = spec.training.method != "full"
        self._saved_step, self._held_s = -1, 0.0
        self._last_good: int | None = None  # step of the newest checkpoint that is whole
        self._interval = CheckpointClock(spec.checkpoint)
        self._writer: CheckpointWriter | None = None
        if engine.team.main:
            self._writer = CheckpointWriter(
                folder.checkpoints, keep=spec.checkpoint.keep, asynchronous=spec.checkpoint.asynchronous,
                landed=self._landed,
            )  # fmt: skip
        self._together: SavingTogether | None = None
        if engine.machine.sharded:
            self._together = SavingTogether(
                engine, self._writer, asynchronous=spec.checkpoint.asynchronous, held=self._stood_still
            )

    def found(self, checkpoint: Checkpoint) -> None:
        """The checkpoint this attempt goes on from: it need not be written again."""
        self._saved_step = self._last_good = checkpoint.step
        self._interval.remember(self._folder)

    def keep(self, step: int | None) -> None:
        """The checkpoint of this step stays, however many newer ones there are."""
        if self._writer is not None:
            self._writer.kept_step = step

    def due(self) -> bool:
        """Whether the interval, in steps or seconds, is over."""
        step = self._position.step
        return step > max(0, self._saved_step) and self._interval.due(step)

    def save(self) -> None:
        """Write a checkpoint of this moment, unless the newest is of it. Diverged where it would hold no numbers."""
        if self._position.step == self._saved_step or self._position.step == 0:
            return
        if self._writer is not None:
            self._writer.wait()  # for the copy before to be written: the host is to hold one at a time
        began = time.monotonic()
        self._position.settle(self._engine.team)
        self._measuring.check_health()
        self._check_weights()
        values = self._position.to_values(self._measuring.order)
        values["times"] = self._measuring.times.to_values()
        values["timed_on"] = self._measuring.configuration
        snapshot = take_snapshot(self._engine, values, trained_only=self._trained_only)
        if self._together is not None:
            self._together.save(self._position.step, snapshot, began)
        elif self._writer is not None and snapshot is not None:
            self._held_s = time.monotonic() - began  # training was paused so long for the copy
            self._writer.save(snapshot)
        self._saved_step = self._position.step
        self._interval.saved()

    def _check_weights(self) -> None:
        tensors = kept_tensors(self._engine.raw, trained_only=self._trained_only).values()
        if self._engine.team.largest(int(not all_finite(tensors))):
            step = self._position.step
            raise Diverged(f"weights are no numbers after step {step}")

    def _landed(self, step: int, path: Path, seconds: float, size: int) -> None:
        self._last_good = step
        self._interval.measured(self._held_s + seconds)
        self._folder.record(
            EventKind.CHECKPOINT, who="rank0", step=step, path=str(path), seconds=round(seconds, 4),
            held_s=round(self._held_s, 4), bytes=size,
        )  # fmt: skip

    def _stood_still(self, seconds: float) -> None:
        self._held_s = seconds

    def check(self) -> None:
        """Raise what went wrong in a write beside the training."""
        if self._together is not None:
            self._together.check()
        if self._writer is not None:
            self._writer.check()

    def wait(self) -> None:
        """Until the checkpoint in flight has landed."""
        if self._together is not None:
            self._together.wait()
        if self._writer is not None:
            self._writer.wait()

    def with_last_good(self, error: Diverged) -> Diverged:
        """The error with the checkpoint to go back to. One still in flight is waited for: it was taken before."""
        self.wait()
        step = self._last_good
        good = "there is no checkpoint before" if step is None else f"the last good checkpoint is step {step}"
        return Diverged(
            f"{error.message}; {good}",
            hint="lower `learning_rate`, add `warmup`, or look for broken samples around it; then start a new run",
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
