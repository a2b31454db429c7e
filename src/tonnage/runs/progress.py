"""The step a run is at, noted by rank 0 after every step at the price of a memory write.

Metrics are logged every so many steps; this mark is of each. It outlives the death of the process, not of the machine.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final

from tonnage.values import dataclass

_FORM: Final = struct.Struct("<qd")  # optimizer steps done, seconds since 1970 when the last one ended
NAME: Final = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """The newest step, and when it ended."""

    step: int
    at: float  # seconds since 1970


class ProgressWriter:
    """Writes the mark of a run folder."""

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        if not path.exists() or path.stat().st_size != _FORM.size:
            path.touch(mode=0o600)
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)

    def note(self, step: int) -> None:
        _FORM.pack_into(self._memory, 0, step, time.time())

    def close(self) -> None:
        self._memory.close()


def read_progress(folder: Path) -> StepMark | None:
    """The mark, or None before the first step."""
    try:
        content = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != _FORM.size:
        return None
    step, at = _FORM.unpack(content)
    return StepMark(step=step, at=at) if step else None
