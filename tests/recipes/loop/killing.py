"""A program for tests: runs a worker again and again in forked children, killed at random points, until it is done.

`python killing.py KILLS WHOLE_DIR SIGKILL_DIR SIGTERM_DIR` carries out one run without a kill and one per signal, and
prints for each how its attempts ended: exit codes, or minus the signal. Forking from a process that has torch loaded
spares each attempt the seconds of loading it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import accelerate  # noqa: F401  loaded before the fork, as torch is
import torch
import torch._dynamo  # which the first optimizer loads, for seconds

from tonnage.recipes import worker
from tonnage.runs.folder import RunFolder
from tonnage.runs.progress import read_progress

LAST_STEP = 60


def attempt(folder: RunFolder, number: signal.Signals, until: tuple[int, float] | None) -> int:
    """One forked worker, signalled some seconds after it passes a step; its wait status."""
    import tiny  # beside this program; loaded before the first fork

    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os._exit(worker.run_worker(folder, program=tiny.prepare))
    while until is not None:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        mark = read_progress(folder.path)
        if (mark.step if mark else 0) >= until[0]:
            time.sleep(until[1])
            os.kill(child, number)
            break
        time.sleep(0.001)
    return os.waitpid(child, 0)[1]


def kill_often(folder: RunFolder, number: signal.Signals, kills: int, chance: random.Random) -> list[int]:
    """How each attempt ended; the last one was left alone."""
    codes = []
    for step in sorted(chance.randrange(LAST_STEP) for _ in range(kills)):
        # between steps, in the middle of one, or while a checkpoint is being written
        codes.append(attempt(folder, number, (step, chance.uniform(0, 0.03))))
    return [os.waitstatus_to_exitcode(code) for code in (*codes, attempt(folder, number, None))]


def main() -> None:
    kills, chance = int(sys.argv[1]), random.Random(1)
    whole, killed, ended = (RunFolder(Path(path)) for path in sys.argv[2:])
    print("ended", *kill_often(whole, signal.SIGKILL, 0, chance), flush=True)
    print("ended", *kill_often(killed, signal.SIGKILL, kills, chance), flush=True)
    print("ended", *kill_often(ended, signal.SIGTERM, kills, chance), flush=True)


if __name__ == "__main__":
    main()
