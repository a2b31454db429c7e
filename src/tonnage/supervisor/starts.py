"""A run's starts on machines that may be lost: one after another, each with an epoch of its own, until the run ends.

A node that a cluster has given up may still work: the epoch tells its writes from those of the newest start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from tonnage.runs.states import WorkerExit

SHORT_S: Final = 600.0  # a start that was lost sooner counts as one of a row
MOST_LOSSES: Final = 8  # in a row
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0


class Lost(Exception):
    """The machine is gone, in Ray's words."""


class HeldMachine(Protocol):
    """A node's part that is held, or those of all nodes of the run."""

    @property
    def node(self) -> str: ...

    def work(self, words: Sequence[str], *, longest_s: float, notice_s: float) -> tuple[int, str]:
        """Exit code and last words of the work, which is asked to save and end after `longest_s`. Lost."""


class Machines(Protocol):
    """Where machines are had."""

    def hold(self, epoch: int, say: Say) -> AbstractContextManager[HeldMachine]:
        """Wait for a machine, and give it back afterwards. Lost."""


Say = Callable[..., None]


def carry_out(
    machines: Machines, words: Sequence[str], *, limit_s: float, notice_s: float, say: Say, epoch: int = 0,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """The work's exit code; started again where its machine is lost, with the next epoch, until its time is over.

    `epoch`: of the newest start that there was before.
    `limit_s`: of all starts together, without the time in which it waits for a machine.
    """
    worked_s, losses, why = 0.0, 0, ""
    while True:
        epoch += 1
        say("queued", reason=why)
        began = None
        try:
            with machines.hold(epoch, say) as machine:
                began = clock()
                say("running", node=machine.node)
                started = [*words, "--epoch", str(epoch)]
                code, said = machine.work(started, longest_s=limit_s - worked_s, notice_s=notice_s)
                why = f"{machine.node} is taken away"
        except Lost as error:
            code, said, why = WorkerExit.PREEMPTED, "", f"the machine was lost: {error}"
        start_s = 0.0 if began is None else clock() - began
        worked_s += start_s
        if code != WorkerExit.PREEMPTED:
            say("ended", reason="" if code == WorkerExit.DONE else last_line(said))
            return code
        if worked_s >= limit_s:
            say("ended", reason=f"its {limit_s / 60:g} minutes are over")
            return code
        losses = losses + 1 if start_s < SHORT_S else 1
        if losses > MOST_LOSSES:
            say("ended", reason=f"{why}; {losses} starts in a row were lost")
            return code
        sleep(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (losses - 1)))


def last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
