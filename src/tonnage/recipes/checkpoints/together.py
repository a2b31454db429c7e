"""Checkpoints of a shared-out model: all processes write, each its own part; rank 0 begins and completes the folder.

Until rank 0 has completed it, which it does once all parts are on the disk, a reader finds the checkpoint before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tonnage.recipes.checkpoints.snapshot import Snapshot, shard_bytes, start_shards, write_shards
from tonnage.recipes.checkpoints.writing import CheckpointWriter, DiskFull, is_full
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.team import TIMEOUT


class SavingTogether:
    """Saves of one attempt. `writer`: rank 0's. `held` is called with how long training was paused before a write that
    goes on beside it, on rank 0."""

    def __init__(
        self, engine: StepEngine, writer: CheckpointWriter | None, *, asynchronous: bool, held: Callable[[float], None]
    ) -> None:
        import torch

        self._engine, self._writer, self._asynchronous, self._held = engine, writer, asynchronous, held
        self._group = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)
        self._flight: Future[Any] | None = None  # this process's part
        self._step = 0

    def save(self, step: int, snapshot: Snapshot | None, began: float) -> None:
        """Write, or start writing once the checkpoint before has landed. `snapshot`: rank 0's. All processes raise
        DiskFull where there is no room."""
        self.wait()
        if self._writer is not None:
            self._writer.wait()
        self._step, place = step, self._begin(step)
        if self._asynchronous:
            self._flight = start_shards(self._engine, place, self._group)
            self._held(time.monotonic() - began)
        else:
            self._held(0.0)  # all of the time is the save's
            with self._full_disk():
                write_shards(self._engine, place, self._group)
        if self._writer is not None and snapshot is not None:
            self._writer.carry_out(self._completing(self._writer, place, snapshot, began))
        if not self._asynchronous:
            self._engine.team.wait()

    def check(self) -> None:
        """Raise what went wrong meanwhile, without waiting."""
        if self._flight is not None and self._flight.done():
            self.wait()

    def wait(self) -> None:
        """Until all parts of the checkpoint in flight are on the disk."""
        flight, self._flight = self._flight, None
        if flight is not None:
            with self._full_disk():
                flight.result()

    def _begin(self, step: int) -> Path:
        """The folder to write in, the same on all processes."""
        team = self._engine.team
        size = int(team.total(float(shard_bytes(self._engine)))[0])
        place: Path | None = None
        fault: DiskFull | None = None
        if self._writer is not None:
            try:
                place = self._writer.begin(step, size)
            except DiskFull as full:
                fault = full
        place, fault = team.gather((place, fault))[0]
        if fault is not None:
            raise fault
        assert place is not None
        return place

    def _completing(
        self, writer: CheckpointWriter, place: Path, snapshot: Snapshot, began: float
    ) -> Callable[[], None]:
        flight = self._flight

        def complete() -> None:
            if flight is not None:
                with self._full_disk():
                    flight.result()
            writer.complete(place, snapshot, began)

        return complete

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        """DiskFull where a part could not be written because the disk is full, whichever process wrote it."""
        try:
            yield
        except Exception as error:
            failures = getattr(error, "failures", {})  # torch's, of the processes that met one
            if not any(is_full(one) for one, *_ in failures.values()):
                raise
            raise DiskFull(f"the checkpoint of step {self._step} does not fit: the disk is full",
                           hint="make room or lower `keep`, then `tonnage resume`") from error  # fmt: skip
