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


class EngineWatchdog:
    """The side of the process that starts engines. The watchdog starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._engines: dict[int, Path] = {}

    def announcer(self, log_file: Path) -> Callable[[], None]:
        """What an engine's process does before it becomes the engine (`preexec_fn`): it tells the watchdog of itself,
        so that there is no moment in which nobody knows of it."""
        pipe = self._pipe()
        return lambda: _write(pipe, _said("+", os.getpid(), log_file))

    def started(self, pid: int, log_file: Path) -> None:
        """This engine runs: a watchdog that has to be started again is told of it."""
        with self._lock:
            self._engines[pid] = log_file

    def ended(self, pid: int) -> None:
        """This engine has ended."""
        with self._lock:
            if self._engines.pop(pid, None) is None or self._process is None or self._process.stdin is None:
                return
            with suppress(BrokenPipeError):  # a watchdog that is dead has nothing to forget
                _write(self._process.stdin.fileno(), _said("-", pid, Path()))

    def _pipe(self) -> int:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__, str(os.getpid())], stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                atexit.register(self._close)
                assert self._process.stdin is not None
                for pid, log_file in self._engines.items():
                    _write(self._process.stdin.fileno(), _said("+", pid, log_file))
            assert self._process.stdin is not None
            return self._process.stdin.fileno()

    def _close(self) -> None:
        """At this process's own end: the watchdog outlives it for as long as it needs to end what is left."""
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            self._process.stdin.close()
            self._process.returncode = 0  # nobody waits for it: no warning that it still runs


def _said(sign: str, pid: int, log_file: Path) -> bytes:
    return f"{sign}{pid} {log_file.absolute()}\n".encode(errors="surrogateescape")


def _write(pipe: int, words: bytes) -> None:
    os.write(pipe, words)  # shorter than PIPE_BUF: whole, whoever else writes


# the watchdog's own process


def watch(orders: int, parent: int) -> None:
    """Keep the list of engines until the parent is dead, then end what stands on it."""
    engines: dict[int, tuple[str, int | None]] = {}
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
            pid, _, log_file = line[1:].decode(errors="surrogateescape").partition(" ")
            if line[:1] == b"+":
                engines[int(pid)] = log_file, started_at(int(pid))
            else:
                engines.pop(int(pid), None)
    same = {pid: log for pid, (log, start) in engines.items() if started_at(pid) in (None, start)}
    end_engines(same, parent)


def end_engines(engines: Mapping[int, str], parent: int) -> None:
    """SIGTERM, after `GRACE_S` SIGKILL, to all processes of these engines; a line in each log."""
    if not engines:
        return
    for log_file in engines.values():
        with suppress(OSError), open(log_file, "a", encoding="utf-8") as log:
            log.write(f"tonnage: process {parent}, which had started this engine, died: the engine is ended\n")
    until, asked = time.monotonic() + GRACE_S, False
    while (living := set(processes_of(set(engines)))) and time.monotonic() < until + GRACE_S:
        if not asked or time.monotonic() > until:
            for pid in living:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if asked else signal.SIGTERM)
            asked = True
        time.sleep(POLL_S)


def processes_of(engines: set[int]) -> Iterator[int]:
    """Living processes of the engines' sessions, and all descendants. Where there is no /proc: the engines alone."""
    if not os.path.isdir("/proc/self"):
        yield from (pid for pid in engines if _is_there(pid))
        return
    below = dict(_table())
    ours = set(engines)
    while more := {pid for pid, (above, session) in below.items() if (above in ours or session in ours)} - ours:
        ours |= more
    yield from (pid for pid in ours if pid in below)


def _table() -> Iterator[tuple[int, tuple[int, int]]]:
    """Each process that is no zombie: its parent and its session (proc(5), /proc/PID/stat)."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, above, _, session = file.read().rpartition(b")")[2].split()[:4]
        except OSError:  # it has just ended
            continue
        if state not in (b"Z", b"X"):
            yield int(name), (int(above), int(session))


def started_at(pid: int) -> int | None:
    """Clock ticks from boot to the process's start, which tell it from a later one of the same pid; None: it is gone,
    or there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
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
