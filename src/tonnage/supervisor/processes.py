"""Process trees: which processes to signal, and how to end all of them."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import time
from collections.abc import Set
from typing import Final

import psutil

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
KILL_WAIT_S: Final = 10.0


def signal_workers(pid: int, number: signal.Signals, *, children: bool) -> None:
    """Signal a command, or where it only starts workers (`children`), those it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        command = psutil.Process(pid)
        targets = command.children() if children else [command]
        for target in targets or [command]:
            with contextlib.suppress(psutil.NoSuchProcess):
                target.send_signal(number)


def become_subreaper() -> None:
    """Make orphans among our descendants our own children (Linux), so that none is out of sight."""
    set_process_attribute(PR_SET_CHILD_SUBREAPER, 1)


def set_process_attribute(option: int, value: int) -> None:
    """A Linux process attribute; other systems have none, and there only children in the tree are found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def kill_below(pid: int, *, spare: Set[int] = frozenset()) -> None:
    """Kill all descendants of a process but those spared and theirs. TimeoutError where one cannot be killed."""
    until = time.monotonic() + KILL_WAIT_S
    while living := _living_below(pid, spare):
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)  # not `wait_procs`: it would take the exit code of our own child
        if time.monotonic() > until:
            raise TimeoutError(f"processes that cannot be killed: {', '.join(str(one.pid) for one in living)}")


def continue_below(pid: int) -> None:
    """Wake descendants that were stopped (SIGSTOP, a terminal's Ctrl-Z): asked to save, they could not answer."""
    for process in _living_below(pid, frozenset()):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                process.send_signal(signal.SIGCONT)


def _living_below(pid: int, spare: Set[int]) -> list[psutil.Process]:
    try:
        below = psutil.Process(pid).children(recursive=True)
        if spare:
            below = [one for one in below if not spare & {one.pid, *(above.pid for above in one.parents())}]
    except psutil.NoSuchProcess:
        return []
    living = []
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living
