"""The process that trains: `python -m tonnage.recipes.worker RUN_DIR`, one of them or many under torchrun or Ray."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, TonnageError
from tonnage.recipes.checkpoints import DiskFull
from tonnage.recipes.checkpoints.writing import is_full
from tonnage.recipes.engine import build_engine, open_machine
from tonnage.recipes.finishing import finish
from tonnage.recipes.health import Diverged
from tonnage.recipes.interrupts import Interrupted, Interrupts
from tonnage.recipes.loop import Loop, data_order
from tonnage.recipes.network import NetworkTrouble
from tonnage.recipes.out_of_memory import DoesNotFit, RestartSmaller
from tonnage.recipes.randomness import seed_all
from tonnage.recipes.task import Prepared, TaskProgram
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.progress import read_progress
from tonnage.runs.secrets import masked
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunReason, WorkerExit

CRASHED = 1  # any code the supervisor does not know: it starts the run again


def run_worker(folder: RunFolder, *, program: TaskProgram | None = None) -> int:
    """Carry out the run of a folder, from its newest checkpoint if it has one. Returns an exit code of WorkerExit.

    `program`: the task, where it is not one of `recipes.tasks`.
    """
    if folder.result_file.exists():
        return WorkerExit.DONE
    with Interrupts(folder.path) as interrupts:
        try:
            return _train(folder, folder.spec(), program, interrupts)
        except TonnageError as error:
            return _end(folder, error)
        except Exception as error:
            if not is_full(error):
                raise
            return _end(folder, DiskFull(f"{folder.path}: {error}", hint="make room, then `tonnage resume`"))
        except Interrupted:
            folder.record(EventKind.INTERRUPTED, who=_who(), signal=interrupts.source)
            return WorkerExit.PREEMPTED


def _train(folder: RunFolder, spec: RunSpec, program: TaskProgram | None, interrupts: Interrupts) -> int:
    if program is None:
        from tonnage.recipes import tasks

        if (alone := tasks.standalone(spec.task)) is not None:
            return alone(folder)
        program = tasks.program_of(spec)
    machine = open_machine(spec)
    try:
        seed_all(spec.training.seed)  # new weights are the same in every process and every attempt
        with interrupts.interruptible():
            prepared = program(spec)
        _check_data(prepared, spec)
        steps = data_order(prepared, spec).steps(epochs=spec.training.epochs, max_steps=spec.training.max_steps)
        engine = build_engine(machine, prepared, spec, steps=steps)
        loop = Loop(engine, prepared, spec, folder, interrupts, steps=steps)
        code = loop.run()
        if code == WorkerExit.DONE:
            code = finish(loop, prepared, folder, interrupts)
        machine.leave()
        return code
    finally:
        _forget()


def _check_data(prepared: Prepared, spec: RunSpec) -> None:
    if len(prepared.train) == 0:
        raise InputError(
            f"no sample to train on in {spec.data.train.location}", hint="check the file and its column mapping"
        )


_ENDS: tuple[tuple[type[TonnageError], int, RunReason], ...] = (
    (InputError, WorkerExit.BAD_INPUT, RunReason.BAD_INPUT),
    (DiskFull, WorkerExit.DISK_FULL, RunReason.DISK_FULL),
    (Diverged, WorkerExit.DIVERGED, RunReason.DIVERGED),
    (DoesNotFit, WorkerExit.OUT_OF_MEMORY, RunReason.OUT_OF_MEMORY),
    (NetworkTrouble, WorkerExit.UNREACHABLE, RunReason.NETWORK),
    (RestartSmaller, CRASHED, RunReason.OUT_OF_MEMORY),
)


def _end(folder: RunFolder, error: TonnageError) -> int:
    """Write what went wrong to the log and the journal; the exit code that says what to do next."""
    code, reason = next(
        ((code, reason) for kind, code, reason in _ENDS if isinstance(error, kind)), (WorkerExit.BAD_INPUT, None)
    )
    print(f"error: {error.message}", file=sys.stderr)  # noqa: T201
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
    said: dict[str, Any] = {"reason": reason.value} if reason else {}
    try:
        folder.record(EventKind.STOPPING, who=_who(), message=error.message, hint=error.hint, **said)
    except OSError as full:
        if not is_full(full):
            raise
        print(f"the journal cannot be written: {full}", file=sys.stderr)  # noqa: T201
    return code


def _who() -> str:
    return f"rank{os.environ.get('RANK', '0')}"


def _forget() -> None:
    """accelerate keeps its state for the life of a process; the next run in it must not inherit that."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def main() -> int:
    """The command line of a worker."""
    if len(sys.argv) != 2:
        print("usage: python -m tonnage.recipes.worker RUN_DIR", file=sys.stderr)  # noqa: T201
        return WorkerExit.BAD_INPUT
    try:
        return run_worker(RunFolder(Path(sys.argv[1])))
    except Exception as error:
        traceback.print_exc()
        return crash_code(RunFolder(Path(sys.argv[1])), error)


def crash_code(folder: RunFolder, error: Exception) -> int:
    """Say in the journal by which exception this process ends (the log has where); whether to start it again.

    The same exception twice before the first step will come a third time.
    """
    first = (str(error).strip().splitlines() or [""])[0][:300]
    said = masked(f"{type(error).__name__}: {first}" if first else type(error).__name__)
    with contextlib.suppress(OSError):
        before = _crashes(folder)
        folder.record(EventKind.CRASHED, who=_who(), message=said)
        if before and before[-1] == said and read_progress(folder.path) is None:
            return WorkerExit.START_FAILED
    return CRASHED


def _crashes(folder: RunFolder) -> list[str]:
    """Exceptions that ended this rank since the run was submitted last."""
    found: list[str] = []
    for event in folder.events():
        if event.kind is EventKind.SUBMITTED:
            found.clear()
        elif event.kind is EventKind.CRASHED and event.who == _who():
            found.append(str(event.fields.get("message", "")))
    return found


if __name__ == "__main__":
    sys.exit(main())
