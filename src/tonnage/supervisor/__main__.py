"""`python -m tonnage.supervisor RUN_DIR`: look after this run until it has ended.

`--as-job`: as the job of a scheduler that starts it again when its machine is taken away. The exit code is then the
run's end, by which the scheduler's script decides; a run that has ended already is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import Held
from tonnage.supervisor.fence import Superseded
from tonnage.supervisor.supervising import SHUTDOWN_NOTICE_S, supervise


def main(arguments: list[str]) -> int:
    """0; as a job the exit code of the run's end."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.supervisor")
    parser.add_argument("folder")
    parser.add_argument("--as-job", action="store_true", help="exit with the run's end; a preemption is none")
    parser.add_argument("--notice-s", type=float, default=SHUTDOWN_NOTICE_S, help="what SIGTERM leaves to save in")
    asked = parser.parse_args(arguments)
    folder = RunFolder(Path(asked.folder).resolve())
    try:
        if asked.as_job:
            from tonnage.supervisor.jobs import supervise_job

            return supervise_job(folder, notice_s=asked.notice_s)
        supervise(folder)
    except Held:
        sys.stderr.write("another supervisor looks after this run\n")
        return 1
    except Superseded:
        sys.stderr.write("the run was submitted again: this supervisor ends, and nothing more of it counts\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
