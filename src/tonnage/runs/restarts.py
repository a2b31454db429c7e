"""When a run's processes have ended: start them again, after how long, or end the run, and why. Pure.

A restart counts against `max_restarts` until a checkpoint newer than any before has been written: a run that gains
ground may be interrupted as often as it likes, one that gains none ends. Ends at one and the same step count apart,
since a step that always fails will fail again.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from tonnage.runs.states import RunReason, RunStatus, WorkerExit
from tonnage.values import dataclass

SIGNAL_BASE: Final = 128  # a shell's way to write «ended by signal N»: 128 + N


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How patient a supervisor is."""

    max_restarts: int = 3  # in a row without a newer checkpoint
    same_step: int = 3  # ends in a row at the same step: the step itself fails
    first_delay_s: float = 1.0
    factor: float = 2.0
    longest_delay_s: float = 300.0
    jitter: float = 0.25  # of the delay, either way, so that many runs do not return at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """One start of the processes, from its beginning to its end."""

    code: int  # exit code; 128 + N for signal N
    step: int  # newest step it reached
    checkpoint_step: int | None  # newest whole checkpoint at its end
    changed: bool = False  # the worker has changed what it does next time, such as a smaller micro-batch
    said: str = ""  # the worker's own last words
    no_room: bool = False  # the run's disk was full when it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Start again after a while."""

    delay_s: float
    reason: RunReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run ends in this state."""

    state: RunStatus
    reason: RunReason | None = None
    message: str = ""


_FINAL: Final = {
    WorkerExit.BAD_INPUT: (RunReason.BAD_INPUT, "the run's input cannot be used; the log says what and where"),
    WorkerExit.DISK_FULL: (RunReason.DISK_FULL, "the disk is full: make room, then `tonnage resume`"),
    WorkerExit.START_FAILED: (RunReason.START_FAILED, "the start fails in the same way each time; the log has where"),
    WorkerExit.DIVERGED: (RunReason.DIVERGED, "the loss is no longer a number; a restart would repeat it"),
    WorkerExit.OUT_OF_MEMORY: (RunReason.OUT_OF_MEMORY, "even one sample does not fit the device"),
}


_RESTARTED: Final = {WorkerExit.PREEMPTED: RunReason.PREEMPTED, WorkerExit.UNREACHABLE: RunReason.NETWORK}


def describe_exit(code: int) -> str:
    """What an exit code says, in words.

    >>> describe_exit(137), describe_exit(1)
    ('killed by SIGKILL', 'ended with exit code 1')
    """
    if code > SIGNAL_BASE:
        try:
            return f"killed by {signal.Signals(code - SIGNAL_BASE).name}"
        except ValueError:
            pass
    return f"ended with exit code {code}"


def decide(
    history: Sequence[AttemptEnd], policy: RestartPolicy, *, asked: RunReason | None, random: float
) -> Restart | Finish:
    """What follows the newest end of `history`. `asked`: the supervisor had asked the workers to save and end, why.

    `random` is a number from 0 to 1, for the jitter.
    """
    code = history[-1].code
    if code == WorkerExit.DONE:
        return Finish(state=RunStatus.SUCCEEDED)
    if asked is not None:
        return end_as_asked(asked)
    if code == WorkerExit.STOPPED:
        return Finish(state=RunStatus.STOPPED, reason=RunReason.USER_STOPPED)
    if code in _FINAL:
        reason, message = _FINAL[code]
        return Finish(state=RunStatus.FAILED, reason=reason, message=history[-1].said or message)
    return _after_interruption(history, policy, random)


def end_as_asked(asked: RunReason) -> Finish:
    """The end of a run whose workers were asked to end."""
    return Finish(state=RunStatus.CANCELLED if asked is RunReason.USER_CANCELLED else RunStatus.STOPPED, reason=asked)


def _after_interruption(history: Sequence[AttemptEnd], policy: RestartPolicy, random: float) -> Restart | Finish:
    code = history[-1].code
    why = describe_exit(code)
    if history[-1].no_room and code != WorkerExit.PREEMPTED:  # a launcher says nothing of why its workers ended
        return Finish(
            state=RunStatus.FAILED, reason=RunReason.DISK_FULL, message=f"{why}; {_FINAL[WorkerExit.DISK_FULL][1]}"
        )
    without_gain = _ends_without_gain(history)
    at_one_step = _ends_at_one_step(history)
    if at_one_step >= policy.same_step and code != WorkerExit.UNREACHABLE:  # the network fails, not the step
        said = f" ({history[-1].said})" if history[-1].said else ""
        message = f"{why}{said}: {at_one_step} starts in a row ended at step {history[-1].step}; the log shows where"
        return Finish(state=RunStatus.FAILED, reason=RunReason.RESTARTS_SPENT, message=message)
    if without_gain > policy.max_restarts and code == WorkerExit.UNREACHABLE:
        return Finish(state=RunStatus.FAILED, reason=RunReason.NETWORK, message=history[-1].said or why)
    if without_gain > policy.max_restarts:
        message = (
            f"{why}: {without_gain} starts in a row without a newer checkpoint; "
            "write checkpoints more often, or see in the log what ends it"
        )
        return Finish(state=RunStatus.FAILED, reason=RunReason.RESTARTS_SPENT, message=message)
    reason = _RESTARTED.get(code, RunReason.WORKER_KILLED)
    message = history[-1].said if reason is RunReason.NETWORK and history[-1].said else why
    return Restart(delay_s=delay_s(without_gain, policy, random=random), reason=reason, message=message)


def delay_s(without_gain: int, policy: RestartPolicy, *, random: float) -> float:
    """Exponential back-off over the ends without gain, with jitter; none of it where the last start gained ground."""
    whole = min(policy.longest_delay_s, policy.first_delay_s * policy.factor ** max(0, without_gain - 1))
    return whole * (1 + policy.jitter * (2 * random - 1))


def _ends_without_gain(history: Sequence[AttemptEnd]) -> int:
    """Ends in a row, back from the newest, whose start gained nothing; 0 where the newest did."""
    count = 0
    for place in range(len(history) - 1, -1, -1):
        before = max((one.checkpoint_step or 0 for one in history[:place]), default=0)
        if history[place].changed or (history[place].checkpoint_step or 0) > before:
            break
        count += 1
    return count


def _ends_at_one_step(history: Sequence[AttemptEnd]) -> int:
    """Crashes in a row, back from the newest, at the newest's step and after the same checkpoint."""
    newest = history[-1]
    count = 0
    for one in reversed(history):
        if one.changed or (one.step, one.checkpoint_step) != (newest.step, newest.checkpoint_step):
            break
        count += one.code != WorkerExit.PREEMPTED
    return count
