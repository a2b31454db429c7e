"""Holds the processes of one start: their log, their signals, and that none of them outlives it.

`python -m tonnage.supervisor.shim --folder RUN_DIR --signal-to WHOM --grace-s S -- COMMAND ...` runs between the
supervisor and the command. It keeps the log, so that neither a full disk nor a dead supervisor breaks the workers'
output. It takes `term` and `kill` on its standard input; when that ends, the supervisor is dead: the workers are asked
to save and end, and what is left after the grace is killed, since nothing enforces their limits any more. On Linux
orphans of the command become its own children, so that workers in sessions of their own (torchrun's) are found too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tonnage.files import write_whole
from tonnage.http.urls import without_secrets
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import Held, hold_lock, workers_lock
from tonnage.runs.log_parts import LARGEST_PART_BYTES, newest_begins, turn
from tonnage.runs.logs import LogIndex
from tonnage.runs.requests import notice_request
from tonnage.runs.restarts import SIGNAL_BASE, describe_exit
from tonnage.runs.secrets import secret_values
from tonnage.runs.states import RunReason
from tonnage.supervisor.processes import (
    PR_SET_PDEATHSIG,
    become_subreaper,
    kill_below,
    set_process_attribute,
    signal_workers,
)

LOCKED: Final = 71  # EX_OSERR: processes of this run are still held by another shim
DRAIN_S: Final = 5.0
ASKED: Final = "asked"  # beside the ranks' exit codes: they were sent SIGTERM from here, not by their own launcher


def main(arguments: list[str]) -> int:
    """Run the command to its end and return its exit code; 128 + N where signal N ended it."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.supervisor.shim")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--signal-to", choices=["command", "children", "nobody"], required=True)
    parser.add_argument("--grace-s", type=float, required=True)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(arguments)
    folder = RunFolder(asked.folder)
    try:
        with hold_lock(workers_lock(folder), wait_s=1.0):
            return _Shim(folder, asked.signal_to, asked.grace_s).run(asked.command)
    except Held:
        return LOCKED


class _Shim:
    def __init__(self, folder: RunFolder, signal_to: str, grace_s: float) -> None:
        self._folder, self._signal_to, self._grace_s = folder, signal_to, grace_s
        self._exits = Path(os.environ["TONNAGE_EXITS"])
        self._code: int | None = None
        self._kill_at: float | None = None  # set when the supervisor is gone
        self._abandoned = False

    def run(self, command: list[str]) -> int:
        become_subreaper()
        wake, waker = os.pipe()
        for end in (wake, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._term())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process = self._start(command)
        self._pid = process.pid
        assert process.stdout is not None
        log = threading.Thread(
            target=LogKeeper(self._folder.log_file).keep, args=(process.stdout.fileno(),), daemon=True
        )
        log.start()
        orders = sys.stdin.fileno()
        watched = [orders, wake]
        while self._code is None:
            ready, _, _ = select.select(watched, [], [], self._timeout())
            if wake in ready:
                _drain(wake)
            if orders in ready and not self._take_orders(orders):
                watched.remove(orders)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill()
                self._kill_at = time.monotonic() + 1.0
            self._reap()
        kill_below(os.getpid())
        log.join(DRAIN_S)
        self._last_word()
        return self._code

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        except OSError as error:
            with contextlib.suppress(OSError), self._folder.log_file.open("a", encoding="utf-8") as file:
                file.write(f"tonnage: {command[0]} cannot be started: {error}\n")
            sys.exit(127)

    def _timeout(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _take_orders(self, orders: int) -> bool:
        """False where no more orders will come."""
        said = os.read(orders, 4096)
        if not said:
            self._abandoned = True
            self._kill_at = time.monotonic() + self._grace_s
            self._term()
            return False
        if b"kill" in said:
            self._kill()
        elif b"term" in said:
            self._term()
        return True

    def _term(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep the signal from the workers
            (self._exits / ASKED).touch(mode=0o600)
        if self._signal_to == "nobody":
            with contextlib.suppress(OSError):
                write_whole(notice_request(self._folder), f"{self._grace_s:.1f}\n")
        else:
            signal_workers(self._pid, signal.SIGTERM, children=self._signal_to == "children")

    def _kill(self) -> None:
        kill_below(os.getpid())

    def _reap(self) -> None:
        """Take the end of the command, and of orphans that became ours."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else SIGNAL_BASE - code

    def _last_word(self) -> None:
        """Where the supervisor died: say so in its place."""
        if not self._abandoned:
            return
        message = f"its supervisor died; the workers were asked to save and end: {describe_exit(self._code or 0)}"
        with contextlib.suppress(OSError):  # a full disk: `ps` sees from the locks that the run is lost
            self._folder.record(EventKind.LOST, who="shim", reason=RunReason.SUPERVISOR_LOST.value, message=message)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 512):
            pass


LONGEST_LINE: Final = 1 << 16  # a longer one is written in pieces


class LogKeeper:
    """Writes blocks of output. What cannot be written is counted, and said once there is room again."""

    def __init__(self, path: Path, *, largest_bytes: int = LARGEST_PART_BYTES) -> None:
        self._path, self._largest = path, largest_bytes
        self._secrets = tuple(value.encode() for value in secret_values(os.environ))
        self._file, self._lost, self._rest = -1, 0, b""

    def keep(self, source: int) -> None:
        """Copy all that comes from a descriptor, until it ends."""
        while block := os.read(source, 65536):
            self.write(block)
        rest, self._rest = self._rest, b""
        self._put(rest)

    def write(self, block: bytes) -> None:
        """Whole lines at once; the beginning of one waits for its end where it may hold half a secret."""
        block = self._rest + block
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        rest = block[end:]
        self._rest = rest if self._may_hold_secret(rest) and len(rest) < LONGEST_LINE else b""
        self._put(block[: len(block) - len(self._rest)])

    def _may_hold_secret(self, part: bytes) -> bool:
        return b":" in part or bool(self._secrets)

    def _put(self, block: bytes) -> None:
        block = self._masked(block)
        try:
            self._open()
            if self._lost:
                os.write(
                    self._file, f"\n[tonnage: {self._lost:,} bytes of log are missing: the disk was full]\n".encode()
                )
                self._lost = 0
            while block:
                block = block[os.write(self._file, block) :]
        except OSError:
            self._lost += len(block)

    def _masked(self, block: bytes) -> bytes:
        for secret in self._secrets:
            block = block.replace(secret, b"***")
        if b"://" not in block:
            return block
        return without_secrets(block.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _open(self) -> None:
        """The file to write to, a new one where the old is full; notes when what follows is written."""
        if self._file >= 0 and os.fstat(self._file).st_size >= self._largest:
            os.close(self._file)
            self._file = -1
            turn(str(self._path))
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._begins = newest_begins(str(self._path))
            self._index = LogIndex(self._path)
        self._index.note(self._begins + os.fstat(self._file).st_size)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
