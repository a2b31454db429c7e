"""`python -m tonnage.supervisor RUN_DIR`: look after this run until it has ended."""

from __future__ import annotations

import sys
from pathlib import Path

from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import Held
from tonnage.supervisor.supervising import supervise

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m tonnage.supervisor RUN_DIR\n")
        sys.exit(2)
    try:
        supervise(RunFolder(Path(sys.argv[1]).resolve()))
    except Held:
        sys.stderr.write("another supervisor looks after this run\n")
        sys.exit(1)
