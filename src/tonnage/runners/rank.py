"""One worker under torchrun: `python -m tonnage.runners.rank --worker MODULE RUN_DIR`.

Runs the worker's module and writes its exit code down where the supervisor looks (TONNAGE_EXITS). To the elastic agent
an end that must not be repeated is exit code 0; a crash stays one, and the agent starts all workers again. So does a
worker that was interrupted by the agent itself, since another has crashed: only where the file `asked` is beside
the codes, or the run's folder has a notice, did the signal come from the supervisor. Where a rank has already ended
for good, those that were started again end at once instead of waiting for it, and one that still waits for it in a
collective ends a minute later.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tonnage.runs.exits import exits_left, leave_exit
from tonnage.runs.folder import RunFolder
from tonnage.runs.requests import notice_request
from tonnage.runs.states import WorkerExit

GRACE_S: Final = 60.0  # for a rank to end by itself after another has ended for good
LOOK_EVERY_S: Final = 1.0
FINAL: Final = frozenset(
    {
        WorkerExit.DONE, WorkerExit.BAD_INPUT, WorkerExit.DISK_FULL, WorkerExit.STOPPED, WorkerExit.DIVERGED,
        WorkerExit.OUT_OF_MEMORY, WorkerExit.UNREACHABLE, WorkerExit.START_FAILED,
    }
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """0 where the worker's end is final, else its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.runners.rank")
    parser.add_argument("--worker", required=True)
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="to end in after another rank has")
    parser.add_argument("folder")
    asked = parser.parse_args(arguments)
    exits = Path(os.environ["TONNAGE_EXITS"])
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and exits_left(exits):
        return 0
    rank = int(os.environ["RANK"])
    threading.Thread(target=end_after_others, args=(exits, rank, asked.grace_s), daemon=True).start()
    code = run_module(asked.worker, asked.folder)
    asked_to = (exits / "asked").exists() or notice_request(RunFolder(Path(asked.folder))).exists()
    if code not in FINAL and not (code == WorkerExit.PREEMPTED and asked_to):
        return code
    leave_exit(exits, rank, code)
    return 0


def end_after_others(exits: Path, rank: int, grace_s: float) -> None:
    """End this process some time after another rank has ended for good before the work was done.

    A rank that waits for a lost one in a collective of the device waits for that one's time-out, and takes no signals
    meanwhile: so it leaves the same code as the other and is gone.
    """
    while not (others := _ended_early(exits, rank)):
        time.sleep(min(LOOK_EVERY_S, grace_s))
    time.sleep(grace_s)
    first, code = next(iter(others.items()))
    sys.stderr.write(f"tonnage: rank {first} ended with code {code} {grace_s:g} s ago; rank {rank} waits no longer\n")
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        leave_exit(exits, rank, code)
    os._exit(0)


def _ended_early(exits: Path, rank: int) -> Mapping[int, int]:
    return {one: code for one, code in exits_left(exits).items() if one != rank and code != WorkerExit.DONE}


def run_module(module: str, folder: str) -> int:
    """Run a module as `python -m` does; its exit code. An uncaught exception propagates."""
    sys.argv = [module, folder]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
            return 1
        return end.code or 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
