"""The part of a run that is on a node of a cluster: an actor of Ray or a task of Spark that starts the work.

The actor or task may end at any moment, and the cluster kills what it has started. The work is to save then, so a
process in between holds it: `python -m tonnage.supervisor.node --parent PID -- COMMAND...` has the command's exit code,
and passes on SIGTERM, which the kernel sends it when its parent is gone. Where the cluster kills that process too, the
command has the signal from the kernel itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import tonnage
from tonnage.supervisor.pod import until_its_end
from tonnage.supervisor.processes import PR_SET_PDEATHSIG, set_process_attribute

HOLDER: Final = "tonnage.supervisor.node"
MOST_SAID: Final = 2000  # bytes of the output that go with a failure
START_WAIT_S: Final = 30.0


class NodeWork:
    """One node's part of a run.

    `code`: the folder that has this package for the work, where it is not the one that runs here; `more`: variables of
    the work.
    """

    def __init__(self, *, code: Path | None = None, more: Mapping[str, str] | None = None) -> None:
        self._environ = {**environment(code or Path(tonnage.__file__).parents[1]), **(more or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def where(self) -> str:
        """The node's name."""
        return socket.gethostname()

    def work(self, words: Sequence[str]) -> tuple[int, str]:
        """Start the work, and wait for its end: exit code, and the last that it said."""
        holder = [sys.executable, "-m", HOLDER, "--parent", str(os.getpid()), "--", *words]
        with tempfile.TemporaryFile() as output:  # not a pipe: it would break with the actor
            self._process = subprocess.Popen(
                holder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._environ, cwd="/",
                start_new_session=True,
            )  # fmt: skip
            code = self._process.wait()
            output.seek(max(0, output.seek(0, os.SEEK_END) - MOST_SAID))
            return code, output.read().decode(errors="replace")

    def end(self) -> None:
        """Ask the work to save and end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def beside(self, argv: Sequence[str], folder: str) -> tuple[int, str]:
        """A command beside the work, in the run's folder: exit code and output."""
        until = time.monotonic() + START_WAIT_S
        while not Path(folder).is_dir() and time.monotonic() < until:
            time.sleep(0.1)  # the work has just been started
        try:
            done = subprocess.run(
                argv, cwd=folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except OSError as error:
            return 127, f"{error}\n"
        return done.returncode, done.stdout.decode(errors="replace")


def environment(code: Path) -> dict[str, str]:
    """Of the work: `python` is the one that runs here, and its tonnage is the one that was sent."""
    paths = (str(code), *filter(None, [os.environ.get("PYTHONPATH")]))
    path = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")]))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PATH": path}


def main(arguments: Sequence[str]) -> int:
    """Hold a command; its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {HOLDER}")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(arguments)
    set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != asked.parent:  # it ended before the kernel knew
        return 128 + signal.SIGTERM
    return until_its_end(asked.command, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
