"""Machines of a pretended cloud: processes of this one, which get SIGTERM and a grace as a cloud gives them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tonnage.values import dataclass

TICK_S: Final = 0.05


@dataclass(slots=True, kw_only=True)
class FakeMachine:
    """One, with what it runs."""

    process: subprocess.Popen[bytes]

    def ended(self) -> int | None:
        """The exit code; None while it runs."""
        return self.process.poll()

    def take_away(self, grace_s: float) -> None:
        """SIGTERM to its first process, then the end of all of them."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """At once, as a lost machine ends."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)


def start_machine(argv: Sequence[str], env: Mapping[str, str], log: Path) -> FakeMachine:
    """A machine that runs a command with these variables over those of this process, in a session of its own."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*argv], env={**os.environ, **env}, stdout=out, stderr=out, start_new_session=True
        )  # fmt: skip
    return FakeMachine(process=process)


class Ticker:
    """Calls something again and again in a thread, until it is stopped."""

    def __init__(self, tick: object, every_s: float = TICK_S) -> None:
        assert callable(tick)
        self._tick, self._every_s, self._stopped = tick, every_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._tick()
