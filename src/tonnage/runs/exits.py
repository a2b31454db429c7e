"""Exit codes that ranks leave beside one another, where their launcher keeps only its own.

The name of an empty file says rank and code: a disk without a free block still takes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tonnage.files import PRIVATE

EXITS: Final = "exits"  # folder of a run
VARIABLE: Final = "TONNAGE_EXITS"  # by which ranks know the folder of their start
_NAME: Final = re.compile(r"rank-(\d+)\.exit-(\d+)")


def exits_folder(run: Path, attempt: int) -> Path:
    """Of a start of a run."""
    return run / EXITS / f"attempt-{attempt:04}"


def leave_exit(exits: Path, rank: int, code: int) -> None:
    """Write down that a rank has ended for good, and how. OSError where even that is not possible."""
    (exits / f"rank-{rank:04}.exit-{code}").touch(mode=PRIVATE)


def exits_left(exits: Path) -> Mapping[int, int]:
    """The codes that were left, by rank."""
    named = (_NAME.fullmatch(path.name) for path in sorted(exits.glob("rank-*")))
    return {int(found[1]): int(found[2]) for found in named if found is not None}
