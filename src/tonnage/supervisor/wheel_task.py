"""The entry point `tonnage-run` of this package, by which a Python wheel task of Databricks begins a run.

The task's own process is a part of Spark's driver, whose signals are not ours: the work is a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

PROGRAM: Final = "tonnage.supervisor.bucket"
PATIENCE_S: Final = 120.0


def main() -> None:
    """Return where the run has ended as asked; RuntimeError, which Databricks shows, where it failed."""
    child = subprocess.Popen([sys.executable, "-m", PROGRAM, *sys.argv[1:]])
    try:
        code = child.wait()
    except BaseException:  # the task is cancelled: what it started saves and ends
        child.terminate()
        child.wait(PATIENCE_S)
        raise
    if code:
        raise RuntimeError(f"the run ended with exit code {code}; its log says why")
