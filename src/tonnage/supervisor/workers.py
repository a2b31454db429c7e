"""The workers of one start, as the supervisor holds them: through their shim."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tonnage.files import write_whole
from tonnage.runs.exits import VARIABLE, exits_folder, exits_left
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.requests import notice_request, write_request
from tonnage.runs.states import WorkerExit


class Workers:
    """Started when made. They end on their own, on `save_and_end`, or on `kill`."""

    def __init__(self, folder: RunFolder, job: Job, *, attempt: int, grace_s: float, umask: int = -1) -> None:
        self._folder, self._job = folder, job
        self._exits = exits_folder(folder.path, attempt)
        with contextlib.suppress(OSError):  # a full disk: only launchers look for it
            self._exits.mkdir(parents=True, exist_ok=True)
        shim = [sys.executable, "-m", "tonnage.supervisor.shim", "--folder", str(folder.path), "--signal-to",
                 job.signal_to, "--grace-s", str(grace_s), "--", *job.argv]  # fmt: skip
        self._process = subprocess.Popen(
            shim,
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            stderr=sys.stderr,
            env={**os.environ, **dict(job.env), VARIABLE: str(self._exits)},
            start_new_session=True,
            umask=umask,
        )

    @property
    def pid(self) -> int:
        """Of the shim; the workers are below it."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while they run."""
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:  # the shim itself was killed
            code = 128 - code
        return worst_exit(self._exits, code)

    def wait(self, timeout_s: float) -> None:
        """Wait for their end, at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def save_and_end(self, *, reason: str) -> None:
        """Ask for a checkpoint and an end, at the next step; by a signal where the disk takes no request."""
        if self._folder.stop_request.exists():
            return
        try:
            write_request(self._folder.stop_request, by="supervisor", reason=reason)
        except OSError:
            self._order(b"term\n")

    def give_notice(self, deadline_s: float) -> None:
        """The same since the machine goes: the workers learn when, and are interrupted in what they do."""
        with contextlib.suppress(OSError):  # a full disk: the signal says the same, with the usual notice
            write_whole(notice_request(self._folder), f"{deadline_s:.1f}\n")
        if self._job.signal_to != "nobody":
            self._order(b"term\n")

    def kill(self) -> None:
        """End all of them now."""
        self._order(b"kill\n")

    def _order(self, words: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # they have just ended
            self._process.stdin.write(words)
            self._process.stdin.flush()


def worst_exit(exits: Path, code: int) -> int:
    """A launcher's exit code, or where it says «done», the worst code that a rank of it left behind."""
    if code != WorkerExit.DONE:
        return code
    return max(exits_left(exits).values(), default=WorkerExit.DONE)
