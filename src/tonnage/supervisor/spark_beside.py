"""`python -m tonnage.supervisor.spark_beside`: the workers of a further executor of a run on a Spark cluster.

The first executor has the supervisor, and lays the run into the folder that they share. Here the same command is
started, and started again, until the first one says that the start is over or another start has the folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tonnage.runs.exits import VARIABLE, exits_folder
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import load_job
from tonnage.supervisor.bucket import writer_in
from tonnage.supervisor.processes import PR_SET_PDEATHSIG, become_subreaper, kill_below, set_process_attribute

TICK_S: Final = 0.2
AGAIN_S: Final = 1.0  # before workers that ended are started again
GRACE_S: Final = 20.0  # for workers, once the start is over


def main(arguments: Sequence[str]) -> int:
    """0 once the start is over."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.supervisor.spark_beside")
    parser.add_argument("--run", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--over", type=Path, required=True, help="a file that is there once the start is over")
    asked = parser.parse_args(arguments)
    folder, ours = RunFolder(Path(asked.run)), (asked.token, asked.epoch)
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: ended.append(number))
    become_subreaper()

    def over() -> bool:
        return bool(ended) or asked.over.exists()

    while writer_in(folder) != ours or not exits_now(folder).is_dir():  # the first has not started its workers yet
        if over():
            return 0
        time.sleep(TICK_S)
    job = load_job(folder.job_file.read_text(encoding="utf-8"), where=str(folder.job_file))
    while not over() and writer_in(folder) == ours:
        env = {**dict(job.env), VARIABLE: str(exits_now(folder))}
        work(job.argv, env, lambda: over() or writer_in(folder) != ours)
        kill_below(os.getpid())
        time.sleep(AGAIN_S)
    return 0


def exits_now(folder: RunFolder) -> Path:
    """Where the ranks of the newest start leave their exit codes."""
    return exits_folder(folder.path, folder.state().attempt)


def work(argv: Sequence[str], env: dict[str, str], over: Callable[[], bool]) -> None:
    """Run the workers until they end; asked to end, and then ended, once it is over."""
    process = subprocess.Popen(
        argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
        preexec_fn=lambda: set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM),
    )  # fmt: skip
    while process.poll() is None and not over():
        time.sleep(TICK_S)
    until = time.monotonic() + GRACE_S
    if process.poll() is None:
        process.terminate()
    while process.poll() is None and time.monotonic() < until:
        time.sleep(TICK_S)
    if process.poll() is None:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
