"""Whether anybody looks after a run: a lock that ends with the process that holds it, and a heartbeat beside it.

The lock says who is alive on this machine, and that there are never two. The heartbeat says what a supervisor knew
last, and to other machines that share the folder, that it lives; that of a run elsewhere is kept here by this machine's
clock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tonnage.files import write_whole
from tonnage.runs.folder import RunFolder
from tonnage.runs.states import RunReason, RunState, RunStatus
from tonnage.values import dataclass

SILENT_AFTER_S: Final = 60.0  # a heartbeat on another machine that is older than this is that of a dead one
START_GRACE_S: Final = 15.0  # between «submitted» and the supervisor's own lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What the supervisor last knew."""

    at: datetime
    pid: int
    host: str
    shim_pid: int | None = None  # the process that holds the workers
    held_s: float = 0.0  # machines held, over all sessions
    spent_usd: float | None = None  # None: no price known
    forecast_usd: float | None = None
    forecast_end_at: datetime | None = None


def heartbeat_file(folder: RunFolder) -> Path:
    return folder.path / "heartbeat.json"


def write_heartbeat(folder: RunFolder, beat: Heartbeat) -> None:
    """Replace the file; not forced to the disk, since it says only what holds now."""
    values = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(beat).items()}
    write_whole(heartbeat_file(folder), json.dumps(values) + "\n", durable=False)


def read_heartbeat(folder: RunFolder) -> Heartbeat | None:
    """The newest heartbeat, or None where there is none that can be read."""
    return heartbeat_in(heartbeat_file(folder))


def heartbeat_in(path: Path) -> Heartbeat | None:
    """That of a file, wherever it lies."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        values["at"] = datetime.fromisoformat(values["at"])
        if values.get("forecast_end_at"):
            values["forecast_end_at"] = datetime.fromisoformat(values["forecast_end_at"])
        return Heartbeat(**values)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def workers_lock(folder: RunFolder) -> Path:
    """Held as long as processes of the run are held by a shim."""
    return folder.path / "workers.lock"


class Held(Exception):
    """The lock is another process's."""


@contextlib.contextmanager
def hold_lock(path: Path, *, wait_s: float = 0.0) -> Iterator[int]:
    """Hold a lock while the block runs, with our process id in the file. Held where another has it after `wait_s`.

    Gives the lock's file descriptor: a child that inherits it holds the lock too, and outlives us with it. (`filelock`,
    which takes the other locks, has no descriptor to hand on, and none that `is_held` could share.)
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, time.monotonic() + wait_s)
        with contextlib.suppress(OSError):  # a full disk: the lock holds without our name in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise Held from None
            time.sleep(0.05)


def is_held(path: Path) -> bool:
    """Whether a living process of this machine holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def has_supervisor(folder: RunFolder, *, now: datetime | None = None) -> bool:
    """Whether a supervisor lives: by its lock here, by its heartbeat on another machine."""
    if is_held(folder.pid_file):
        return True
    beat = read_heartbeat(folder)
    if beat is None or beat.host == platform.node():
        return False
    return ((now or datetime.now(UTC)) - beat.at).total_seconds() < SILENT_AFTER_S


def _works_alone(state: RunState) -> bool:
    """Whether the script that does the work lives; of one on another machine that is not known, and it counts."""
    if state.alone is None:
        return False
    host, pid = state.alone
    if host != platform.node():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def observed_state(folder: RunFolder, *, now: datetime | None = None) -> RunState:
    """The state by the journal, or `lost` where no process is left that would write its next line."""
    now = now or datetime.now(UTC)
    alive = has_supervisor(folder, now=now)  # asked first: a run that ends in between has its last line by then
    return without_witness(folder.state(), alive=alive, now=now)


def without_witness(state: RunState, *, alive: bool, now: datetime) -> RunState:
    """The state that a journal tells, or `lost`. `alive`: whether the supervisor lived just before it was read.

    A run elsewhere waits in a queue, or is started again there: only its place knows whether it is lost.
    """
    if state.state.ended or alive or _works_alone(state) or state.place is not None:
        return state
    submitted = state.submitted_at
    if state.state is RunStatus.PENDING and submitted and (now - submitted).total_seconds() < START_GRACE_S:
        return state
    message = "its supervisor is gone without a last word"
    return replace(state, state=RunStatus.LOST, reason=RunReason.SUPERVISOR_LOST, message=message)


def keep_beat(
    folder: RunFolder, beat: Mapping[str, Any], *, progress: bytes, age_s: float, supervised: bool, host: str
) -> None:
    """Write down what the supervisor there knew `age_s` ago; as of a dead one where nobody holds the run any more.

    `host` must not be the name of this machine: its own runs are known by their lock.
    """
    if progress:
        write_whole(folder.path / "progress", progress, durable=False)
    if not beat:
        return
    at = datetime.now(UTC) - timedelta(seconds=age_s if supervised else max(age_s, SILENT_AFTER_S + 1))
    write_whole(heartbeat_file(folder), json.dumps({**beat, "host": host, "at": at.isoformat()}) + "\n", durable=False)
