"""States of a run and the reasons it is in them, folded from its journal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from tonnage.runs.journal import Event, EventKind


class State(StrEnum):
    """Where a run stands."""

    PENDING = "pending"  # written down, no process yet
    STARTING = "starting"  # processes start, data and model load
    RUNNING = "running"
    RESTARTING = "restarting"  # its processes ended and will be started again
    STOPPING = "stopping"  # asked to save and end
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # saved and ended on request or by a guard; can be resumed
    CANCELLED = "cancelled"  # ended at once, without a save
    LOST = "lost"  # its supervisor is gone without a last word; can be resumed

    @property
    def ended(self) -> bool:
        return self in {State.SUCCEEDED, State.FAILED, State.STOPPED, State.CANCELLED, State.LOST}


class Reason(StrEnum):
    """Why a run is in its state, one word each as schedulers write them."""

    OUT_OF_MEMORY = "OutOfMemory"
    PREEMPTED = "Preempted"  # SIGTERM or a cloud's notice
    WORKER_KILLED = "WorkerKilled"  # a worker ended by a signal or an unexpected exit
    DIVERGED = "Diverged"  # loss is not a number
    BAD_INPUT = "BadInput"
    NETWORK = "Network"  # what it reads over a network cannot be reached
    DISK_FULL = "DiskFull"
    COST_LIMIT = "CostLimit"
    TIME_LIMIT = "TimeLimit"
    IDLE = "Idle"
    USER_STOPPED = "UserStopped"
    USER_CANCELLED = "UserCancelled"
    RESTARTS_SPENT = "RestartsSpent"
    SUPERVISOR_LOST = "SupervisorLost"


class WorkerExit:
    """Exit codes of a worker process: how the supervisor tells what to do next. Any other code is a crash."""

    DONE = 0
    BAD_INPUT = 2  # do not restart
    UNREACHABLE = 69  # EX_UNAVAILABLE: rows or weights behind a network that fails; start again later
    DISK_FULL = 73  # EX_CANTCREAT; do not restart
    PREEMPTED = 75  # EX_TEMPFAIL: saved after SIGTERM or a notice; start again
    STOPPED = 76  # saved on request; do not restart
    DIVERGED = 77  # the loss is not a number; do not restart
    OUT_OF_MEMORY = 79  # even one sample does not fit; do not restart


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What the journal says at its end."""

    state: State = State.PENDING
    reason: Reason | None = None
    message: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 0  # starts so far
    step: int = 0  # newest optimizer step the journal names
    total_steps: int | None = None  # None: it has not come to its first step
    checkpoint_step: int | None = None  # newest checkpoint known to be whole
    lost_steps: int = 0  # steps done again after restarts
    events: int = 0
    faults: tuple[str, ...] = ()  # lines of the journal that nobody can read


_STATES = {
    EventKind.SUBMITTED: State.PENDING,
    EventKind.STARTED: State.STARTING,
    EventKind.TRAINING: State.RUNNING,
    EventKind.RESTARTING: State.RESTARTING,
    EventKind.STOPPING: State.STOPPING,
    EventKind.SUCCEEDED: State.SUCCEEDED,
    EventKind.FAILED: State.FAILED,
    EventKind.STOPPED: State.STOPPED,
    EventKind.CANCELLED: State.CANCELLED,
    EventKind.LOST: State.LOST,
}


def state_of(events: Iterable[Event]) -> RunState:
    """Fold a journal, oldest first, into the run's state. An event with fields of another version changes nothing."""
    state = RunState()
    for event in events:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            state = _after(state, event)
    return state


def _after(state: RunState, event: Event) -> RunState:
    fields = event.fields
    new = _STATES.get(event.kind)
    state = replace(state, events=state.events + 1, step=max(state.step, int(fields.get("step", 0))))
    if new is not None:
        reason = Reason(fields["reason"]) if fields.get("reason") else None
        ended = event.at if new.ended else None
        state = replace(state, state=new, reason=reason, message=str(fields.get("message", "")), ended_at=ended)
    match event.kind:
        case EventKind.SUBMITTED if state.submitted_at is None:
            return replace(state, submitted_at=event.at)
        case EventKind.STARTED:
            return replace(state, attempt=state.attempt + 1, started_at=state.started_at or event.at)
        case EventKind.TRAINING if fields.get("total_steps"):
            return replace(state, total_steps=int(fields["total_steps"]))
        case EventKind.CHECKPOINT:
            return replace(state, checkpoint_step=int(fields["step"]))
        case EventKind.RESUMED:
            return replace(state, lost_steps=state.lost_steps + int(fields.get("lost_steps", 0)))
    return state
