"""Machines of a pretended cloud: processes of this one, which get SIGTERM and a grace as a cloud gives them. They boot
by the script that their first script lays down for systemd, with a `docker` beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tonnage.values import dataclass

TICK_S: Final = 0.05
FILES: Final = re.compile(r"cat > (\S+) <<'([^']+)'\n(.*?)\n?\2\n", re.DOTALL)
SCRIPT: Final = re.compile(r"cat > /opt/tonnage/run\.sh <<'([^']+)'\n(.*?)\1\n", re.DOTALL)
DISK_TOOLS: Final = ("blkid", "mkfs.ext4", "fsck.ext4", "mount", "mountpoint", "umount")
DOCKER: Final = '''#!{python}
"""`docker run`: the container's command, without a container."""
import os
import sys

words, env, entry = sys.argv[2:], dict(os.environ), ""
while words and "@sha256:" not in words[0]:
    word = words.pop(0)
    if word == "--env":
        name, given, value = words.pop(0).partition("=")
        if given:
            env[name] = value
    elif word == "--env-file":
        with open(os.environ.get("TONNAGE_FAKE_ROOT", "") + words.pop(0)) as file:
            env.update(line.strip().split("=", 1) for line in file if line.strip())
    elif word == "--entrypoint":
        entry = words.pop(0)
os.execvpe(entry, [entry, *words[1:]], env)
'''


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


def lay_docker(folder: Path) -> Path:
    """A folder for PATH with a `docker` that runs a container's command without a container."""
    docker = folder / "bin" / "docker"
    docker.parent.mkdir(parents=True)
    docker.write_text(DOCKER.replace("{python}", sys.executable))
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    return docker.parent


def lay_tools(folder: Path) -> None:
    """Tools of disks that do nothing: a pretended machine has its disks in a folder."""
    for name in DISK_TOOLS:
        tool = folder / name
        tool.write_text("#!/bin/sh\nexit 0\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def laid_script(first: str) -> str:
    """What the unit would run. AssertionError where the first script lays nothing down."""
    script = SCRIPT.search(first)
    assert script is not None, "the machine's first script lays no script down"
    return script[2]


def lay_files(first: str, root: Path) -> None:
    """The files that the first script lays down, below a folder; the machine's `docker` looks for them there
    (`TONNAGE_FAKE_ROOT`).
    """
    for path, _, text in FILES.findall(first):
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def lay_curl(folder: Path, answers: str) -> None:
    """A `curl` beside the `docker` of a machine: `answers` are the arms of a shell `case` over its words."""
    curl = folder / "bin" / "curl"
    curl.write_text(f'#!/bin/sh\ncase "$*" in\n{answers}\n*) exit 22;;\nesac\n')
    curl.chmod(curl.stat().st_mode | stat.S_IXUSR)
