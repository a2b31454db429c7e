"""What every runner does, and what those share whose run lives in a folder under a supervisor; one process on this
machine.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Final, Protocol

from tonnage.errors import TonnageError
from tonnage.files import write_whole
from tonnage.runs.devices import BUS_ORDER
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import WAITING_THREADS, Job, SignalTo, dump_job
from tonnage.runs.liveness import has_supervisor, is_held, observed_state, read_heartbeat, workers_lock
from tonnage.runs.requests import cancel_request, clear_requests, write_request
from tonnage.runs.secrets import SECRETS, named_secrets
from tonnage.runs.spec import RunnerName, RunSpec
from tonnage.runs.states import RunState
from tonnage.values import dataclass

WORKER: Final = "tonnage.recipes.worker"
SUPERVISOR_LOG: Final = "supervisor.log"
START_TIMEOUT_S: Final = 20.0


class Runner(Protocol):
    """Carries out runs. Only `submit` starts anything."""

    @property
    def name(self) -> RunnerName: ...

    @property
    def extra(self) -> tuple[str, str] | None:
        """(module, extra) that must be installed, or None."""

    def render(self, spec: RunSpec, folder: RunFolder) -> Job:
        """The command, environment and files of a run: complete, readable, and nothing touched."""

    def submit(self, job: Job, folder: RunFolder) -> int:
        """Start the job under a supervisor; the supervisor's process id."""

    def status(self, folder: RunFolder) -> RunState:
        """The state of the run; `lost` where it has no supervisor any more."""

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        """Ask the run to save and end."""

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        """Ask for its end at once, without a save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """Runners whose run lives in a folder of this machine, under a supervisor. They differ in what they render."""

    name: ClassVar[RunnerName]
    extra: ClassVar[tuple[str, str] | None] = ("torch", "train")
    signal_to: ClassVar[SignalTo] = "command"
    cores: int
    gpus: int = 0
    threads: int | None = None  # of each process, where the specification says none; None: the cores shared out
    worker: str = WORKER  # the module that does the work: docs/adding-a-runner.md
    python: str = sys.executable
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))  # whose secrets are named

    def render(self, spec: RunSpec, folder: RunFolder) -> Job:
        threads = spec.launch.threads or self.threads or max(1, self.cores // spec.launch.processes)
        return Job(
            runner=self.name,
            argv=self.command(spec, folder),
            env=(
                ("OMP_NUM_THREADS", str(threads)),
                ("MKL_NUM_THREADS", str(threads)),  # one that is set in the environment would win over OpenMP's
                WAITING_THREADS,
                BUS_ORDER,  # a number is the same GPU to the workers and to NVML, which looks at them
                ("PYTHONUNBUFFERED", "1"),
                ("TOKENIZERS_PARALLELISM", "false"),
                *self.more_env(spec),
            ),
            secrets=(*(name for name in SECRETS if self.environ.get(name)), *named_secrets(spec)),
            processes=spec.launch.processes,
            signal_to=self.signal_to,
        )

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:
        """The arguments of the one process that the supervisor starts."""
        raise NotImplementedError

    def more_env(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:  # noqa: ARG002
        """Variables beyond those that every runner sets."""
        return ()

    def submit(self, job: Job, folder: RunFolder) -> int:
        clear_requests(folder)
        write_whole(folder.job_file, dump_job(job))
        for file in job.files:
            write_whole(folder.path / file.path, file.text)
        return start_supervisor(folder, python=self.python)

    def status(self, folder: RunFolder) -> RunState:
        return observed_state(folder)

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        write_request(folder.stop_request, by=by, reason=reason)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        write_request(cancel_request(folder), by=by, reason=reason)
        if not has_supervisor(folder) and is_held(workers_lock(folder)):
            _kill_shim(folder)


def start_supervisor(folder: RunFolder, *, python: str = sys.executable) -> int:
    """Start a supervisor that no terminal ends, and wait until it holds the run. TonnageError where it does not."""
    log = folder.path / SUPERVISOR_LOG
    pid = _spawn([python, "-m", "tonnage.supervisor", str(folder.path)], log)
    ended: list[int] = []
    # Collected by a thread, so that a long-lived caller keeps no dead processes.
    threading.Thread(target=_collect, args=(pid, ended), daemon=True).start()
    until = time.monotonic() + START_TIMEOUT_S
    while not ended and time.monotonic() < until:
        if is_held(folder.pid_file) and folder.pid_file.read_text().strip() == str(pid):
            return pid
        time.sleep(0.02)
    if ended == [0]:  # a run so short that it has ended
        return pid
    raise TonnageError(f"the supervisor of '{folder.path.name}' did not start", hint=f"{log} says why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(Supervised):
    """The worker itself, with no launcher between."""

    name: ClassVar[RunnerName] = "local"

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:  # noqa: ARG002
        return (self.python, "-m", self.worker, str(folder.path))


def _collect(pid: int, ended: list[int]) -> None:
    """Wait for a child; another part of the program (psutil) may have done so first."""
    with contextlib.suppress(ChildProcessError):
        ended.append(os.waitpid(pid, 0)[1])


def _spawn(command: list[str], log: Path) -> int:
    """A process in a session of its own, silent but for its log."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)


def _kill_shim(folder: RunFolder) -> None:
    """End workers whose supervisor died, by the process that holds them."""
    import psutil

    beat = read_heartbeat(folder)
    if beat is None or beat.shim_pid is None:
        return
    try:
        shim = psutil.Process(beat.shim_pid)
        below = shim.children(recursive=True)
        if "tonnage.supervisor.shim" not in shim.cmdline():
            return
    except psutil.NoSuchProcess:
        return
    for process in below:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
