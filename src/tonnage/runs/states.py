"""States of a run and the reasons it is in them, folded from its journal."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from tonnage.runs.journal import Event, EventKind
from tonnage.runs.progress import StepMark
from tonnage.values import dataclass


class RunStatus(StrEnum):
    """The state of a run."""

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
        return self in {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.STOPPED, RunStatus.CANCELLED, RunStatus.LOST}


class RunReason(StrEnum):
    """Why a run is in its state, one word each as schedulers write them."""

    OUT_OF_MEMORY = "OutOfMemory"
    PREEMPTED = "Preempted"  # SIGTERM or a cloud's notice
    WORKER_KILLED = "WorkerKilled"  # a worker ended by a signal or an unexpected exit
    START_FAILED = "StartFailed"  # before the first step, twice with the same error
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
    START_FAILED = 78  # EX_CONFIG; before the first step, twice with the same exception; do not restart
    DIVERGED = 77  # the loss is not a number; do not restart
    OUT_OF_MEMORY = 79  # even one sample does not fit; do not restart


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What the journal says at its end."""

    state: RunStatus = RunStatus.PENDING
    reason: RunReason | None = None
    message: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 0  # starts so far
    step: int = 0  # newest optimizer step done since the newest start, which begins at its checkpoint
    placed_at: datetime | None = None  # when a start, or the end, last gave the step of the run
    total_steps: int | None = None  # None: it has not come to its first step
    checkpoint_step: int | None = None  # newest checkpoint known to be whole
    lost_steps: int = 0  # steps done again after restarts
    events: int = 0
    alone: tuple[str, int] | None = None  # host and process of a script that does the work without a supervisor
    place: str | None = None  # whose scheduler starts it, perhaps more than once; None: this machine
    faults: tuple[str, ...] = ()  # unreadable lines of the journal


_PLACING = frozenset(  # events that set the position of the run, whatever was reached before
    {
        EventKind.RESUMED, EventKind.TRAINING, EventKind.SUCCEEDED, EventKind.FAILED, EventKind.STOPPED,
        EventKind.CANCELLED,
    }
)  # fmt: skip
_STATES = {
    EventKind.SUBMITTED: RunStatus.PENDING,
    EventKind.STARTED: RunStatus.STARTING,
    EventKind.TRAINING: RunStatus.RUNNING,
    EventKind.RESTARTING: RunStatus.RESTARTING,
    EventKind.STOPPING: RunStatus.STOPPING,
    EventKind.SUCCEEDED: RunStatus.SUCCEEDED,
    EventKind.FAILED: RunStatus.FAILED,
    EventKind.STOPPED: RunStatus.STOPPED,
    EventKind.CANCELLED: RunStatus.CANCELLED,
    EventKind.LOST: RunStatus.LOST,
}


def state_of(events: Iterable[Event]) -> RunState:
    """Fold a journal, oldest first, into the run's state. An event with fields of another version changes nothing."""
    said: dict[str, Any] = {one.name: one.default for one in dataclasses.fields(RunState)}
    for event in events:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said |= _changes(said, event)
    return RunState(**said)


def with_mark(state: RunState, mark: StepMark | None) -> RunState:
    """The state at the step that the workers have marked since, where the journal has not come so far."""
    old = mark is None or (state.placed_at is not None and mark.at <= state.placed_at.timestamp())
    return state if mark is None or old else replace(state, step=max(state.step, mark.step))


def _changes(said: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """What an event changes of the fields of a state."""
    fields = event.fields
    new = _STATES.get(event.kind)
    found = {"events": said["events"] + 1, **_place(said["step"], event)}
    if new is not None:
        reason = RunReason(fields["reason"]) if fields.get("reason") else None
        ended = event.at if new.ended else None
        found |= {"state": new, "reason": reason, "message": str(fields.get("message", "")), "ended_at": ended}
    match event.kind:
        case EventKind.SUBMITTED:
            alone = (str(fields["host"]), int(fields["alone_pid"])) if "alone_pid" in fields else None
            found |= {"submitted_at": said["submitted_at"] or event.at, "alone": alone, "place": fields.get("place")}
        case EventKind.STARTED:
            found |= {"attempt": said["attempt"] + 1, "started_at": said["started_at"] or event.at}
        case EventKind.TRAINING if fields.get("total_steps"):
            found["total_steps"] = int(fields["total_steps"])
        case EventKind.CHECKPOINT:
            found["checkpoint_step"] = int(fields["step"])
        case EventKind.RESUMED:
            found["lost_steps"] = said["lost_steps"] + int(fields.get("lost_steps", 0))
    return found


def _place(step: int, event: Event) -> dict[str, Any]:
    """The step of the run that an event gives, where it gives one."""
    if event.fields.get("step") is None:
        return {}
    reported = int(event.fields["step"])
    return {"step": reported, "placed_at": event.at} if event.kind in _PLACING else {"step": max(step, reported)}
