"""When which part of a run's log was written: the log is the workers' own words, its times stand beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tonnage.runs.folder import append_values
from tonnage.runs.tail import Tail

NOTE_EVERY_S: Final = 1.0


def index_file(log: Path) -> Path:
    return log.with_name(log.name + ".index")


class LogIndex:
    """Notes at most once a second how long the log was."""

    def __init__(self, log: Path) -> None:
        self._path = index_file(log)
        self._next = 0.0

    def note(self, offset: int) -> None:
        """What comes after `offset` bytes is written now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + NOTE_EVERY_S
        append_values(self._path, {"at": datetime.now(UTC).isoformat(), "offset": offset})


def timed_lines(log: Path, offset: int = 0) -> Iterator[str]:
    """Lines of a log from an offset on, each with the time (UTC) its part was written, to the second."""
    notes = [(int(one["offset"]), str(one["at"])) for one in Tail(index_file(log)).values()]
    with log.open("rb") as file:
        file.seek(offset)
        for raw in file:
            while len(notes) > 1 and notes[1][0] <= offset:
                notes.pop(0)
            at = notes[0][1][:19].replace("T", " ") if notes else "?"
            yield f"{at}  {raw.decode('utf-8', errors='replace')}"
            offset += len(raw)


def offset_since(log: Path, since: datetime) -> int:
    """Where in a log the lines written at `since` or later begin, to the second; its end where there are none."""
    for noted in Tail(index_file(log)).values():
        if datetime.fromisoformat(noted["at"]) >= since:
            return int(noted["offset"])
    return log.stat().st_size if log.exists() else 0
