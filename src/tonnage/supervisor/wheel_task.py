"""Entry points of this package by which a Python wheel task of Databricks begins its work.

`tonnage-run` is a submission's; `tonnage-verb` is any command, of jobs that an asset bundle defines. The task's own
process is a part of Spark's driver, whose signals are not ours: the work is a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tonnage.places.databricks.bundle import KEPT

PROGRAM: Final = "tonnage.supervisor.bucket"
PATIENCE_S: Final = 120.0


def main() -> None:
    """Return where the run has ended as asked; RuntimeError, which Databricks shows, where it failed."""
    code = _carried_out(("-m", PROGRAM, *sys.argv[1:]))
    if code:
        raise RuntimeError(f"the run ended with exit code {code}; its log says why")


def verb() -> None:
    """The same, of a command of `tonnage`; then the runs of the home are kept in a volume, whatever became of them."""
    try:
        code = _carried_out(("-m", "tonnage", *sys.argv[1:]))
    finally:
        kept = os.environ.get(KEPT)
        if kept:
            keep(Path(os.environ["TONNAGE_HOME"]) / "runs", Path(kept))
    if code:
        raise RuntimeError(f"tonnage {' '.join(sys.argv[1:2])} ended with exit code {code}; its output says why")


def keep(runs: Path, kept: Path) -> None:
    """Copy every file of the runs, each whole and in one go: volumes take no appends, and keep no permissions."""
    for path in sorted(one for one in runs.rglob("*") if one.is_file()):
        copy = kept / path.relative_to(runs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _carried_out(words: Sequence[str]) -> int:
    """The exit code of a process of this Python."""
    child = subprocess.Popen([sys.executable, *words])
    try:
        return child.wait()
    except BaseException:  # the task is cancelled: what it started saves and ends
        child.terminate()
        child.wait(PATIENCE_S)
        raise
