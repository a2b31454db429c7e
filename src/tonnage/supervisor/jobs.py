"""A run as the job of a scheduler, which starts it again where its machine is taken away."""

from __future__ import annotations

import os
from typing import Final

from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import hold_lock
from tonnage.runs.states import RunReason, RunState, RunStatus, WorkerExit
from tonnage.supervisor.supervising import PRIVATE, Pace, Supervisor

LOCK_WAIT_S: Final = 120.0  # a lost node's lock on a shared file system ends with its lease
_CODES: Final = {
    RunStatus.SUCCEEDED: WorkerExit.DONE, RunStatus.STOPPED: WorkerExit.STOPPED, RunStatus.CANCELLED: WorkerExit.STOPPED
}  # fmt: skip


def supervise_job(folder: RunFolder, *, notice_s: float, pace: Pace | None = None, reporting: bool = True) -> int:
    """Look after a run until it has ended or its machine goes; the exit code of that.

    `notice_s`: how long after SIGTERM the machine stays. A run that has ended is left as it is. Held where another
    supervisor does not give it up.
    """
    workers_umask = os.umask(PRIVATE)
    with hold_lock(folder.pid_file, wait_s=LOCK_WAIT_S):
        if not folder.state().state.ended:
            Supervisor(
                folder, pace=pace or Pace(), reporting=reporting, umask=workers_umask, notice_s=notice_s, requeued=True
            ).run()
        return exit_of(folder.state())


def exit_of(state: RunState) -> int:
    """What a job exits with: 0 only where the run has succeeded, since no scheduler starts such a job again."""
    if state.reason is RunReason.PREEMPTED:
        return WorkerExit.PREEMPTED
    if state.reason is RunReason.BAD_INPUT:
        return WorkerExit.BAD_INPUT
    return _CODES.get(state.state, 1)
