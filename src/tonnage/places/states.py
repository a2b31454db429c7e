"""One state machine for runs at all places: what the place says of the job, joined with the run's own journal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tonnage.runs.states import RunReason, RunState, RunStatus
from tonnage.values import dataclass


class Phase(StrEnum):
    """The state of a job as its place sees it."""

    QUEUED = "queued"  # waits for machines
    PROVISIONING = "provisioning"  # machines are given to it and made ready
    RUNNING = "running"
    ENDING = "ending"  # its processes are being ended
    ENDED = "ended"  # by itself, whatever its exit code
    CANCELLED = "cancelled"  # by somebody at the place
    GONE = "gone"  # the place knows no such job


DRIVER_PHASES: Final[Mapping[str, Phase]] = {
    "queued": Phase.QUEUED, "provisioning": Phase.PROVISIONING, "running": Phase.RUNNING, "ending": Phase.ENDING,
}  # what the driver of a run says of itself, on a cluster that calls it running whatever it waits for  # fmt: skip


class PlaceStatus(StrEnum):
    """The state of a run, at any place."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"
    STARTING = "starting"  # the machines are there; data and model load
    RUNNING = "running"
    PREEMPTED = "preempted"  # its machines were taken away; it waits for its next start
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # saved and ended on request or at a limit
    CANCELLED = "cancelled"
    LOST = "lost"  # the place no longer has it, and it has no last word; can be resumed

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset(
    {PlaceStatus.SUCCEEDED, PlaceStatus.FAILED, PlaceStatus.STOPPED, PlaceStatus.CANCELLED, PlaceStatus.LOST}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as its place shows it."""

    phase: Phase
    job_id: str | None = None
    word: str = ""  # the place's own name of the state: PENDING, NODE_FAIL
    reason: str = ""  # the place's own reason: Priority, Resources, TimeLimit
    nodes: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceState:
    """A run at a place: one state, with the place's own words beside it."""

    status: PlaceStatus
    view: JobView
    message: str = ""


def joined(view: JobView, run: RunState) -> PlaceState:
    """The state of a run whose place shows `view` and whose journal tells `run`.

    The journal's last word goes before the place's: a scheduler calls a run that was stopped on request «failed».
    """
    status = _by_journal(run) or _by_place(view, run)
    message = run.message if _by_journal(run) or not view.word else _worded_end(view)
    return PlaceState(status=status, view=view, message=message)


def _worded_end(view: JobView) -> str:
    known = view.reason if view.reason not in {"", "None", view.word} else ""
    return f"{view.word}: {known}" if known else view.word


def _by_journal(run: RunState) -> PlaceStatus | None:
    """The end that the journal tells; None while it tells of none."""
    return PlaceStatus(run.state.value) if run.state.ended else None


def _by_place(view: JobView, run: RunState) -> PlaceStatus:
    started = run.attempt > 0
    waits = run.state is RunStatus.RESTARTING and run.reason is RunReason.PREEMPTED
    match view.phase:
        case Phase.QUEUED:
            return PlaceStatus.PREEMPTED if started else PlaceStatus.QUEUED
        case Phase.PROVISIONING:
            return PlaceStatus.PROVISIONING
        case Phase.RUNNING if waits:
            return PlaceStatus.PREEMPTED
        case Phase.RUNNING:
            return _running(run)
        case Phase.ENDING:
            return PlaceStatus.PREEMPTED if waits else PlaceStatus.STOPPING
        case Phase.CANCELLED:
            return PlaceStatus.CANCELLED
        case Phase.ENDED if not started:
            return PlaceStatus.FAILED  # its script ended before there was a supervisor
    return PlaceStatus.LOST


def _running(run: RunState) -> PlaceStatus:
    if run.state in {RunStatus.PENDING, RunStatus.STARTING}:
        return PlaceStatus.STARTING
    return PlaceStatus.STOPPING if run.state is RunStatus.STOPPING else PlaceStatus.RUNNING
