"""The real training loop on a task of a few seconds, as a worker module that every runner can start."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes" / "loop"))

import tiny

from tonnage.recipes.worker import run_worker as run_loop
from tonnage.runs.folder import RunFolder


def run_worker(folder: RunFolder) -> int:
    """Train the tiny task."""
    return run_loop(folder, program=tiny.prepare)


if __name__ == "__main__":
    sys.exit(run_worker(RunFolder(Path(sys.argv[1]))))
