"""The process beside the workers that measures and reports: it may fail or be killed, the run goes on."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Set
from typing import Final

from tonnage.runs.folder import RunFolder
from tonnage.supervisor.processes import kill_below
from tonnage.supervisor.recording import complain

FIRST_DELAY_S: Final = 5.0
LONGEST_DELAY_S: Final = 300.0


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
