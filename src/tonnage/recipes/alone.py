"""What a task without a training loop shares with those that have one: metrics, checkpoints, signals, the result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tonnage.files import make_private, write_whole
from tonnage.recipes.beginning import WHO, note_beginning
from tonnage.recipes.checkpoints import Checkpoint, CheckpointWriter, newest_valid
from tonnage.recipes.checkpoints.interval import CheckpointClock
from tonnage.recipes.environment import device_name, versions
from tonnage.recipes.interrupts import Interrupts
from tonnage.recipes.out_of_memory import peak_bytes
from tonnage.recipes.progress_line import say_progress
from tonnage.recipes.task import Evaluation
from tonnage.recipes.timing import StepTimes
from tonnage.runs.data_prints import check_prints
from tonnage.runs.folder import RunFolder, append_values
from tonnage.runs.journal import EventKind
from tonnage.runs.progress import ProgressWriter
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import WorkerExit


class SingleProcess:
    """One attempt at a run that is one process. Use it as a context."""

    def __init__(self, folder: RunFolder, spec: RunSpec, interrupts: Interrupts) -> None:
        self.folder, self.spec, self.interrupts = folder, spec, interrupts
        self.times = StepTimes(on_gpu=False)
        self._progress = ProgressWriter(folder.path)
        self._writer: CheckpointWriter | None = None
        self._interval, self._saved_step = CheckpointClock(spec.checkpoint), -1

    def __enter__(self) -> SingleProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        if self._writer is not None:
            self._writer.close()

    # ---- checkpoints

    def newest_checkpoint(self) -> Checkpoint | None:
        """The newest that verifies; those that do not are named in the journal."""
        found, faults = newest_valid(self.folder.checkpoints)
        if found is not None:
            check_prints(self.spec.data)
            self.times.restore(found.position["times"])
            self._saved_step = found.step
            self._interval.remember(self.folder)
        path = None if found is None else str(found.path)
        note_beginning(self.folder, step=0 if found is None else found.step, path=path, faults=faults)
        return found

    def due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after this step."""
        return self._interval.due(step)

    def save(self, step: int, content: bytes) -> None:
        """A checkpoint that holds one file's content."""
        if step == self._saved_step:
            return
        import torch

        from tonnage.recipes.checkpoints import Snapshot

        if self._writer is None:
            said = self.spec.checkpoint
            self._writer = CheckpointWriter(
                self.folder.checkpoints, keep=said.keep, asynchronous=said.asynchronous, landed=self._landed
            )
        held = {"content": torch.frombuffer(bytearray(content), dtype=torch.uint8)}
        position = {"step": step, "times": self.times.to_values()}
        self._writer.save(Snapshot(step=step, weights=held, training={}, position=position))
        self._saved_step = step
        self._interval.saved()

    def _landed(self, step: int, path: Path, seconds: float, size: int) -> None:
        self._interval.measured(seconds)
        self.folder.record(
            EventKind.CHECKPOINT, who=WHO, step=step, path=str(path), seconds=round(seconds, 4), bytes=size
        )

    # ---- step after step

    def begin(self, total_steps: int, step: int) -> None:
        """Steps follow from here."""
        self.folder.record(EventKind.TRAINING, who=WHO, total_steps=total_steps, step=step)

    def stepped(self, step: int, *, samples: int, tokens: int = 0) -> None:
        """One step over, begun at `times.begin`."""
        self.times.end(data_wait_s=0.0, samples=samples, tokens=tokens)
        self._progress.note(step)

    def log(self, step: int, **figures: float | None) -> None:
        """A line of metrics on the steps since the last one."""
        window = self.times.close_window()
        line: Mapping[str, Any] = {
            "step": step,
            "at": datetime.now(UTC).isoformat(),
            **figures,
            "steps": window.steps,  # since the line before; the figures below are means of these steps
            "samples": window.samples / window.steps,
            "tokens": window.tokens / window.steps,
            "step_s": window.step_s,
            "data_wait_s": window.data_wait_s,
            "host_rss_bytes": psutil.Process().memory_info().rss,
        }
        append_values(self.folder.metrics_file, line)
        say_progress(line)

    def left(self) -> int | None:
        """The exit code to leave with, where someone asked for it; save first."""
        if self.interrupts.preempted:
            return WorkerExit.PREEMPTED
        return WorkerExit.STOPPED if self.interrupts.stopped else None

    def leave(self, code: int, step: int) -> int:
        """End early, once what is in flight has landed."""
        if self._writer is not None:
            self._writer.wait()
        if code == WorkerExit.PREEMPTED:
            self.folder.record(EventKind.INTERRUPTED, who=WHO, signal=self.interrupts.source, step=step)
        return code

    # ---- the end

    def finish(
        self,
        judged: Evaluation,
        baseline: Evaluation | None,
        *,
        steps: int,
        samples: int,
        device: str,
        save: Callable[[Path], None] | None,
    ) -> int:
        """Save the model, write `result.json`."""
        if self._writer is not None:
            self._writer.wait()
        if save is not None:
            _save_by_rename(self.folder.model, save)
        self.folder.record(EventKind.EVALUATED, who=WHO, step=steps, metrics=dict(judged.metrics))
        result = {
            "metrics": dict(judged.metrics),
            "evaluated_samples": judged.samples,
            "baseline": None if baseline is None else dict(baseline.metrics),
            "steps": steps,
            "samples": samples,
            "epochs": None,
            "micro_batch": None,
            "processes": 1,
            **self.times.figures(),
            "peak_allocated_bytes": None,
            "peak_reserved_bytes": None,
            "peak_host_rss_bytes": peak_bytes(on_gpu=False),
            "device": device_name(on_gpu=device != "cpu"),
            "precision": "fp32",
            "versions": versions(),
        }
        write_whole(self.folder.result_file, json.dumps(result, indent=2, allow_nan=False) + "\n")
        return WorkerExit.DONE


def _save_by_rename(path: Path, save: Callable[[Path], None]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(mode=0o700)
    save(beside)
    make_private(beside)
    if path.exists():
        shutil.rmtree(path)
    os.rename(beside, path)
