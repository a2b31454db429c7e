"""A program for tests: the worker of the tiny task as several processes that learn together.

`python ranks.py PROCESSES PORT RUN_DIR` forks one child per rank, tells it its place as torchrun does, and exits with
the first exit code that is not 0. Forking from a process that has torch loaded spares each rank the seconds of loading
it, and torchrun's own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import accelerate  # noqa: F401  loaded before the fork, as torch is
import tiny  # beside this program
import torch
import torch._dynamo  # which the first optimizer loads, for seconds

from tonnage.recipes import worker
from tonnage.runs.folder import RunFolder


def start(rank: int, processes: int, port: str, folder: RunFolder) -> int:
    """One forked worker; its process id."""
    child = os.fork()
    if child:
        return child
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    os._exit(worker.run_worker(folder, program=tiny.prepare))


def main() -> int:
    processes, port, folder = int(sys.argv[1]), sys.argv[2], RunFolder(Path(sys.argv[3]))
    children = [start(rank, processes, port, folder) for rank in range(processes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
