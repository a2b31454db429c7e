"""A worker that keeps the contract of a real one and trains nothing: `python -m tonnage.testing.worker RUN_DIR`.

With TONNAGE_WORKER=tonnage.testing.worker every runner starts it instead of the training programs. What it pretends is
in TONNAGE_FAKE, as JSON: the fields of `Pretence`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tonnage.files import write_whole
from tonnage.runs.folder import RunFolder, append_values
from tonnage.runs.journal import EventKind
from tonnage.runs.requests import notice_request
from tonnage.runs.states import WorkerExit
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretence:
    """What the worker pretends."""

    steps: int = 20
    step_s: float = 0.01
    checkpoint_every: int = 5
    save_s: float = 0.0
    slow_from: int | None = None  # steps from this one take `slow_factor` times as long
    slow_factor: float = 10.0
    crash_at: int | None = None  # ends by `crash_signal` in this step
    crash_signal: int = signal.SIGKILL
    crash_starts: int = 1  # in so many starts; then it goes through
    crash_rank: int = 0
    hang_at: int | None = None  # does nothing any more from this step on, and hears nothing
    end_at: int | None = None  # ends with `end_code` in this step
    end_code: int = 1
    chatter_bytes: int = 0  # printed each step
    says: str = ""  # printed in the first step; the journal has it as a message
    allow_at: str = ""  # waits before its first step until this file is there


def run_worker(folder: RunFolder) -> int:
    """Pretend, and return the exit code."""
    settings = json.loads(os.environ.get("TONNAGE_FAKE", "{}"))
    return _Worker(folder, Pretence(**settings)).run()


class _Worker:
    def __init__(self, folder: RunFolder, pretence: Pretence) -> None:
        self._folder, self._pretence = folder, pretence
        self._rank = int(os.environ.get("RANK", "0"))
        self._terminated = False

    def run(self) -> int:
        if _in_main_thread():
            signal.signal(signal.SIGTERM, self._on_term)
        start = self._start_number()
        step = self._resume()
        while self._pretence.allow_at and not Path(self._pretence.allow_at).exists():
            time.sleep(0.01)
        while step < self._pretence.steps:
            step += 1
            self._one_step(step, start)
            if self._pretence.end_at == step:
                return self._pretence.end_code
            preempted = self._terminated or notice_request(self._folder).exists()
            if preempted or self._folder.stop_request.exists():
                self._save(step)
                return WorkerExit.PREEMPTED if preempted else WorkerExit.STOPPED
            if step % self._pretence.checkpoint_every == 0:
                self._save(step)
        self._save(step)
        self._finish(step)
        return WorkerExit.DONE

    def _one_step(self, step: int, start: int) -> None:
        pretence = self._pretence
        if pretence.hang_at == step:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(3600)
        if pretence.crash_at == step and start <= pretence.crash_starts and self._rank == pretence.crash_rank:
            sys.stdout.flush()
            os.kill(os.getpid(), pretence.crash_signal)
            time.sleep(3600)
        slow = pretence.slow_from is not None and step >= pretence.slow_from
        taken = pretence.step_s * (pretence.slow_factor if slow else 1.0)
        time.sleep(taken)
        if self._rank:
            return
        sys.stdout.write(f"step {step}\n" + "x" * pretence.chatter_bytes)
        sys.stdout.flush()
        if step == 1:
            sys.stdout.write(f"{pretence.says}\n" if pretence.says else "")
            said = {"message": pretence.says} if pretence.says else {}
            self._folder.record(EventKind.TRAINING, who="rank0", step=1, total_steps=pretence.steps, at=None, **said)
        append_values(
            self._folder.metrics_file,
            {"step": step, "loss": 1 / step, "step_s": taken, "at": datetime.now(UTC).isoformat()},
        )

    def _start_number(self) -> int:
        """How many times this rank has been started in this folder, this time included."""
        starts = self._folder.path / f"fake-starts-{self._rank}"
        number = int(starts.read_text()) + 1 if starts.exists() else 1
        starts.write_text(str(number))
        return number

    def _resume(self) -> int:
        found = sorted(self._folder.checkpoints.glob("step-*"))
        if not found:
            return 0
        step = int(found[-1].name.removeprefix("step-"))
        if self._rank == 0:
            lost = max(0, self._folder.state().step - step)
            self._folder.record(EventKind.RESUMED, who="rank0", step=step, path=str(found[-1]), lost_steps=lost)
        return step

    def _save(self, step: int) -> None:
        path = self._folder.checkpoints / f"step-{step:08}"
        if self._rank or path.exists():
            return
        time.sleep(self._pretence.save_s)
        beside = path.with_name(f".{path.name}")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        (beside / "weights").write_text(str(step))
        digest = hashlib.sha256(str(step).encode()).hexdigest()
        files = {"weights": {"bytes": len(str(step)), "sha256": digest}}
        (beside / "manifest.json").write_text(json.dumps({"step": step, "files": files}))
        beside.rename(path)
        self._folder.record(
            EventKind.CHECKPOINT, who="rank0", step=step, path=str(path), seconds=self._pretence.save_s, bytes=1
        )

    def _finish(self, step: int) -> None:
        if self._rank == 0:
            write_whole(self._folder.result_file, json.dumps({"steps": step, "metrics": {"accuracy": 1.0}}) + "\n")

    def _on_term(self, *_: object) -> None:
        self._terminated = True


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


if __name__ == "__main__":
    sys.exit(run_worker(RunFolder(Path(sys.argv[1]))))
