"""A driver of the Ray place with this machine instead of a cluster: `python -m tonnage.testing.ray_machines`.

It takes the arguments of `tonnage.supervisor.ray`, and has its loop; the node's part is an actor's, in this process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tonnage.places.ray.jobs import OUTPUT
from tonnage.supervisor.node import NodeWork
from tonnage.supervisor.ray import arguments_of, say
from tonnage.supervisor.starts import HeldMachine, Say, carry_out


class OneMachine:
    """This machine, as often as it is asked for."""

    @contextmanager
    def hold(self, epoch: int, say: Say) -> Iterator[HeldMachine]:
        say("provisioning", reason=f"start {epoch}")
        yield Here()


class Here:
    """The node's part of a run."""

    def __init__(self) -> None:
        self._node = NodeWork()

    @property
    def node(self) -> str:
        return self._node.where()

    def work(self, words: Sequence[str], *, longest_s: float, notice_s: float) -> tuple[int, str]:  # noqa: ARG002
        over = threading.Timer(longest_s, self._node.end)
        over.start()
        try:
            return self._node.work(words)
        finally:
            over.cancel()


def main(arguments: Sequence[str]) -> int:
    """The work's end, or that of the command beside it."""
    asked = arguments_of(arguments)
    if asked.exec:
        folder, *argv = asked.command
        if not Path(folder).is_dir():
            sys.stdout.write("the run has no node now\n")
            return 1
        code, said = NodeWork().beside(argv, folder)
        sys.stdout.write(OUTPUT + said)
        return code
    return carry_out(OneMachine(), asked.command, limit_s=asked.limit_s, notice_s=asked.notice_s, say=say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
