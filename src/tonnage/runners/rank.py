"""One worker under torchrun: `python -m tonnage.runners.rank --worker MODULE RUN_DIR`.

Runs the worker's module and writes its exit code down where the supervisor looks (TONNAGE_EXITS). To the elastic agent
an end that must not be repeated is exit code 0; a crash stays one, and the agent starts all workers anew. So does a
worker that was interrupted by the agent itself, since another has crashed: only where the file `asked` stands beside
the codes did the signal come from the supervisor. Where a rank has already ended for good, those that were started
anew end at once instead of waiting for it.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Final

from tonnage.files import write_whole
from tonnage.runs.states import WorkerExit

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
    parser.add_argument("folder")
    asked = parser.parse_args(arguments)
    exits = Path(os.environ["TONNAGE_EXITS"])
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and any(exits.glob("rank-*.json")):
        return 0
    code = run_module(asked.worker, asked.folder)
    if code not in FINAL and not (code == WorkerExit.PREEMPTED and (exits / "asked").exists()):
        return code
    write_whole(exits / f"rank-{int(os.environ['RANK']):04}.json", f'{{"code": {code}}}\n')
    return 0


def run_module(module: str, folder: str) -> int:
    """Run a module as `python -m` does; its exit code. An exception that nobody caught goes on its way."""
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
