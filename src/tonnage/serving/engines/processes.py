"""Replicas as processes of this machine: started, asked whether they are ready, drained and ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from tonnage.errors import InputError, TonnageError
from tonnage.files import write_whole
from tonnage.runs.devices import BUS_ORDER
from tonnage.serving.engines.engine import EngineCommand, EngineLoad
from tonnage.serving.engines.watchdog import WATCHDOG, processes_of, started_at
from tonnage.serving.running.meter import ServiceCounts
from tonnage.values import dataclass

LOG: Final = "engine.log"
ASK_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.1
TAIL_LINES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineProcess:
    """A replica that was started, and the folder of its files and its log."""

    command: EngineCommand
    process: subprocess.Popen[bytes]
    folder: Path
    started_at: float  # of time.monotonic
    start_ticks: int | None  # of its process, which with the pid names it forever (watchdog.started_at)

    @property
    def log_file(self) -> Path:
        return self.folder / LOG

    def last_words(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-TAIL_LINES:])


def start_engine(command: EngineCommand, folder: Path) -> EngineProcess:
    """Write the command's files and start it in a session of its own; its output goes to `engine.log`.

    CUDA's numbers of GPUs are by the PCI bus, as they are listed here, unless the environment says otherwise.
    It ends when the process that called this dies, whatever kills that (`watchdog`). Raises InputError where the
    program is not installed or a named secret is not set, TonnageError where the port is taken.
    """
    missing = [name for name in command.secrets if not os.environ.get(name)]
    if missing:
        raise InputError(f"{missing[0]} is not set", hint=f"export {missing[0]}=... before you start {command.engine}")
    if shutil.which(command.argv[0]) is None:
        raise InputError(f"{command.engine}: there is no program '{command.argv[0]}' on the PATH",
                         hint="install the engine, or start it in its container (--container)")  # fmt: skip
    _refuse_taken_port(command)
    folder.mkdir(parents=True, exist_ok=True)
    for file in command.files:
        write_whole(folder / file.path, file.text)
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            command.argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**dict([BUS_ORDER]), **os.environ, **dict(command.env)}, preexec_fn=WATCHDOG.announcer(folder / LOG),
        )  # fmt: skip
    WATCHDOG.started(process.pid, folder / LOG)
    return EngineProcess(command=command, process=process, folder=folder, started_at=time.monotonic(),
                         start_ticks=started_at(process.pid))  # fmt: skip


def _refuse_taken_port(command: EngineCommand) -> None:
    import socket

    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((command.host, command.port))
        except OSError as error:
            raise TonnageError(
                f"port {command.port} of {command.host} is taken", hint="name another: --port"
            ) from error


def is_ready(running: EngineProcess) -> bool:
    """Whether it takes requests now."""
    try:
        return _get(running.command, running.command.health)[0] == 200
    except (OSError, HTTPException):
        return False


def wait_ready(running: EngineProcess, *, timeout_s: float) -> float:
    """Seconds from its start until it took requests.

    Raises TonnageError, with the last lines of its log, where it ended first or took longer than `timeout_s`.
    """
    name = running.command.engine
    while True:
        if is_ready(running):
            return time.monotonic() - running.started_at
        code = running.process.poll()
        if code is not None:
            raise TonnageError(f"{name} ended with {code} before it was ready:\n{running.last_words()}",
                               hint=f"its whole log: {running.log_file}")  # fmt: skip
        if time.monotonic() - running.started_at > timeout_s:
            raise TonnageError(f"{name} is not ready after {timeout_s:g} s:\n{running.last_words()}",
                               hint=f"its whole log: {running.log_file}")  # fmt: skip
        time.sleep(POLL_S)


def read_load(running: EngineProcess) -> EngineLoad:
    """Requests it works on and that wait inside it, by its own metrics; TonnageError where it does not answer."""
    command = running.command
    if command.metrics is None:
        return EngineLoad(running=None, waiting=None)
    try:
        status, text = _get(command, command.metrics)
    except (OSError, HTTPException) as error:
        raise TonnageError(f"{command.engine} does not answer {command.url}{command.metrics}: {error}") from error
    if status != 200:
        raise TonnageError(f"{command.engine} answers {command.url}{command.metrics} with {status}")
    try:
        return parse_load(text, command)
    except ValueError as error:
        raise TonnageError(
            f"{command.engine} answers {command.url}{command.metrics} with no metrics: {error}"
        ) from error


def read_counts(running: EngineProcess) -> ServiceCounts | None:
    """What it has answered, by its own counters; None where it does not answer now."""
    command = running.command
    if command.metrics is None:
        return ServiceCounts()
    try:
        status, text = _get(command, command.metrics)
        return parse_counts(text, command) if status == 200 else None
    except (OSError, HTTPException, ValueError):  # it starts, ends, is busy, or says what is no number: asked again
        return None


def _get(command: EngineCommand, path: str) -> tuple[int, str]:
    """Status and text, over a connection of its own: no proxy, no TLS, a tenth of what a client of the web costs."""
    connection = HTTPConnection(command.host, command.port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", path, headers=_key(command))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def parse_load(text: str, command: EngineCommand) -> EngineLoad:
    """The two gauges out of Prometheus' text, summed over their labels; ValueError where one is no number."""
    return EngineLoad(running=_gauge(text, command.running), waiting=_gauge(text, command.waiting))


def parse_counts(text: str, command: EngineCommand) -> ServiceCounts:
    """Its counters of what was answered out of Prometheus' text, summed over their labels; ValueError as above."""
    return ServiceCounts(
        requests=_gauge(text, command.requests), input_tokens=_gauge(text, command.input_tokens),
        output_tokens=_gauge(text, command.output_tokens),
    )  # fmt: skip


def _gauge(text: str, named: str | None) -> float | None:
    """The sum over the series of a name, or of those with a label: `name`, `name{label="value"}`."""
    if named is None:
        return None
    name, _, label = named.rstrip("}").partition("{")
    found = [line for line in text.splitlines() if line.startswith((name + " ", name + "{")) and label in line]
    return sum(float(line.rpartition(" ")[2]) for line in found) if found else None


def _key(command: EngineCommand) -> dict[str, str]:
    keys = [os.environ[name] for name in command.secrets if name in os.environ]
    return {"Authorization": f"Bearer {keys[0]}"} if keys else {}


def drain_engine(running: EngineProcess, *, timeout_s: float) -> bool:
    """Wait until no request is in flight; the sender of requests has stopped before. False: it still does, or ended."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until and running.process.poll() is None:
        load = read_load(running)
        if load.running is None and load.waiting is None:
            return False
        if not load.running and not load.waiting:
            return True
        time.sleep(POLL_S)
    return False


def stop_engine(running: EngineProcess, *, grace_s: float = 30.0) -> int:
    """SIGTERM to its process group, SIGKILL after `grace_s` or where the wait is interrupted; its exit code.

    Workers that it leaves in its group are killed.
    """
    if running.process.poll() is None:
        _signal(running, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            running.process.wait(timeout=grace_s)
    kill_engine(running)
    code = running.process.wait()
    WATCHDOG.ended(running.process.pid)
    return code


def kill_engine(running: EngineProcess) -> None:
    """SIGKILL to its process group: the engine, and workers that outlived it. It is not waited for."""
    _signal(running, signal.SIGKILL)
    if running.process.poll() is not None:
        WATCHDOG.ended(running.process.pid)


def left_of(running: EngineProcess) -> frozenset[int]:
    """The pids of an engine that was asked to end which are still there: it, and workers of its session. Until none
    is, its memory on the devices may not be free."""
    if running.process.poll() is None:
        return frozenset({running.process.pid})
    return frozenset(processes_of({running.process.pid: running.start_ticks}))


def _signal(running: EngineProcess, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.process.pid, number)
