"""Logs of a run: when which part was written (the times stand beside the workers' words), and those of each machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tonnage.errors import InputError
from tonnage.runs.folder import RunFolder, append_values
from tonnage.runs.tail import Tail

NOTE_EVERY_S: Final = 1.0
MACHINE_LOG: Final = re.compile(r"log-machine-\d+\.txt")  # of what the workers of a further machine print


def machine_log(number: int) -> str:
    """The log's name of a machine of a run; the first is 1, and has the run's own.

    >>> machine_log(2)
    'log-machine-2.txt'
    """
    return f"log-machine-{number}.txt"


def machine_logs(folder: RunFolder) -> list[str]:
    """Those of further machines that are in a run's folder."""
    return sorted(one.name for one in folder.path.glob("log-machine-*.txt") if MACHINE_LOG.fullmatch(one.name))


def log_of_machine(folder: RunFolder, number: int) -> Path:
    """The log of a machine, the first is 1. InputError where there is none."""
    found = folder.log_file if number == 1 else folder.path / machine_log(number)
    if found.exists():
        return found
    has = ", ".join(re.sub(r"\D", "", name) for name in machine_logs(folder))
    hint = f"--machine 1, {has}" if has else "places whose machines meet in a bucket have one for each further machine"
    raise InputError(f"the run has no log of machine {number}", hint=hint)


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
