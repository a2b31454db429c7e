"""Ends the engines of a process that died, so that none of them keeps a port or a GPU after `kill -9`.

The process that starts engines has one watchdog: this file, run with the standard library alone. Each engine tells the
watchdog its pid and its log before it becomes the engine. When the other end of the pipe closes, or the parent is
another one, the process is dead: every engine still listed gets SIGTERM, after `GRACE_S` SIGKILL, with all processes
of its session and all its descendants. Its log says why.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

GRACE_S: Final = 10.0
LOOK_S: Final = 1.0  # how often the watchdog asks who its parent is
POLL_S: Final = 0.05
_START: Final = 19  # of the fields of /proc/PID/stat behind the name: clock ticks from boot


class EngineWatchdog:
    """The side of the process that starts engines. The watchdog starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._engines: dict[int, tuple[int | None, Path]] = {}

    def announcer(self, log_file: Path) -> Callable[[], None]:
        """What an engine's process does before it becomes the engine (`preexec_fn`): it tells the watchdog of itself,
        so that there is no moment in which no process knows of it."""
        pipe = self._pipe()
        return lambda: _write(pipe, _said("+", os.getpid(), started_at(os.getpid()), log_file))

    def started(self, pid: int, log_file: Path) -> None:
        """This engine was started and is not reaped, so its pid is its own: a watchdog that has to be started again
        gets it."""
        with self._lock:
            self._engines[pid] = started_at(pid), log_file

    def ended(self, pid: int) -> None:
        """This engine has ended."""
        with self._lock:
            if self._engines.pop(pid, None) is None or self._process is None or self._process.stdin is None:
                return
            with suppress(BrokenPipeError):  # a watchdog that is dead has nothing to forget
                _write(self._process.stdin.fileno(), _said("-", pid, None, Path()))

    def _pipe(self) -> int:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__, str(os.getpid())], stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                atexit.register(self._close)
                assert self._process.stdin is not None
                for pid, (start, log_file) in self._engines.items():
                    _write(self._process.stdin.fileno(), _said("+", pid, start, log_file))
            assert self._process.stdin is not None
            return self._process.stdin.fileno()

    def _close(self) -> None:
        """At this process's own end: the watchdog outlives it for as long as it needs to end what is left."""
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            self._process.stdin.close()
            self._process.returncode = 0  # it is never waited for: no warning that it still runs


def _said(sign: str, pid: int, start: int | None, log_file: Path) -> bytes:
    return f"{sign}{pid} {start or 0} {log_file.absolute()}\n".encode(errors="surrogateescape")


def _write(pipe: int, words: bytes) -> None:
    os.write(pipe, words)  # shorter than PIPE_BUF: written whole beside other writers


# the watchdog's own process


def watch(orders: int, parent: int) -> None:
    """Keep the list of engines until the parent is dead, then end what is on it."""
    engines: dict[int, tuple[int | None, str]] = {}
    rest = b""
    while True:
        alive = os.getppid() == parent
        if not select.select([orders], [], [], LOOK_S if alive else 0)[0]:
            if alive:
                continue
            break  # what it said before it died has been read
        said = os.read(orders, 65536)
        if not said:
            break
        *lines, rest = (rest + said).split(b"\n")
        for line in lines:
            pid, start, log_file = line[1:].decode(errors="surrogateescape").split(" ", 2)
            if line[:1] == b"+":
                engines[int(pid)] = int(start) or None, log_file
            else:
                engines.pop(int(pid), None)
    end_engines(engines, parent)


def end_engines(engines: Mapping[int, tuple[int | None, str]], parent: int) -> None:
    """SIGTERM, after `GRACE_S` SIGKILL, to all processes of these engines; a line in each log. `engines`: pid -> its
    start (`started_at`) and its log."""
    if not engines:
        return
    ours: dict[int, int | None] = {pid: start for pid, (start, _) in engines.items()}
    for _, log_file in engines.values():
        with suppress(OSError), open(log_file, "a", encoding="utf-8") as log:
            log.write(f"tonnage: process {parent}, which had started this engine, died: the engine is ended\n")
    until, asked = time.monotonic() + GRACE_S, False
    while (living := processes_of(ours)) and time.monotonic() < until + GRACE_S:
        ours |= living  # a worker is one of ours even once its parent is gone
        if not asked or time.monotonic() > until:
            for pid in living:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if asked else signal.SIGTERM)
            asked = True
        time.sleep(POLL_S)


def processes_of(engines: Mapping[int, int | None]) -> dict[int, int | None]:
    """Living processes of the engines' sessions, and all descendants: pid -> its start (`started_at`), both ways.

    A pid of another start is another process, which got the number after the engine's end; no process of the engine's
    session can be left then, for as long as one is its number is not given again. Where there is no /proc: the engines
    alone, by their pid.
    """
    if not os.path.isdir("/proc/self"):
        return {pid: start for pid, start in engines.items() if _is_there(pid)}
    below = dict(_table())
    ours = {pid for pid, start in engines.items() if pid not in below or start in (None, below[pid][2])}
    while more := {pid for pid, (above, session, _) in below.items() if (above in ours or session in ours)} - ours:
        ours |= more
    return {pid: below[pid][2] for pid in ours if pid in below}


def _table() -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Each process that is no zombie: its parent, its session and its start (proc(5), /proc/PID/stat)."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, above, _, session, *rest = file.read().rpartition(b")")[2].split()
        except OSError:  # it has just ended
            continue
        if state not in (b"Z", b"X"):
            yield int(name), (int(above), int(session), int(rest[_START - 4]))


def started_at(pid: int) -> int | None:
    """Clock ticks from boot to the process's start, which tell it from a later one of the same pid; None: it is gone,
    or there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[_START])
    except OSError:
        return None


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


WATCHDOG: Final = EngineWatchdog()  # of this process

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch(sys.stdin.fileno(), int(sys.argv[1]))
