"""The processes of one start, as the supervisor holds them: the workers, through their shim, and the one beside them
that measures and reports, which may fail or be killed while the run goes on.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Set
from pathlib import Path
from typing import Final

from tonnage.files import write_whole
from tonnage.runs.exits import VARIABLE, exits_folder, exits_left
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.requests import notice_request, write_request
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.processes import kill_below
from tonnage.supervisor.recording import complain

FIRST_DELAY_S: Final = 5.0
LONGEST_DELAY_S: Final = 300.0


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


class Telemetry:
    """Starts `tonnage.supervisor.reporting`, starts it again where it dies, and lets it finish at the end."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._delay_s, self._again_at = FIRST_DELAY_S, 0.0

    @property
    def pids(self) -> Set[int]:
        """Of the process, where it lives."""
        return frozenset() if self._process is None else frozenset({self._process.pid})

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tonnage.supervisor.reporting", str(self._folder.path)],
            stdin=subprocess.PIPE,  # its end says that the supervisor is done, or dead
            stdout=sys.stderr,
            stderr=sys.stderr,
            start_new_session=True,
        )

    def look(self) -> None:
        """Start it again where it has died, with growing patience."""
        if self._process is None or self._process.poll() is None:
            return
        if self._again_at == 0.0:
            self._again_at = time.monotonic() + self._delay_s
            self._delay_s = min(LONGEST_DELAY_S, 2 * self._delay_s)
        if time.monotonic() >= self._again_at:
            self._again_at = 0.0
            self.start()

    def finish(self, timeout_s: float) -> None:
        """Let it report the end, at most so long."""
        process = self._process
        if process is None:
            return
        if process.poll() is not None:  # it died before the end: one more chance to report it
            self.start()
            process = self._process
            assert process is not None
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            complain(f"reporting took more than {timeout_s:.0f} s and was ended")
            kill_below(process.pid)
            process.kill()
            process.wait()
