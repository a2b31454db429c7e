"""The supervisor's own lines in the journal. A full disk delays them; it never ends the supervisor."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tonnage.runs.folder import RunFolder, append_line
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.secrets import masked

WHO = "supervisor"
RESERVE_BYTES: Final = 64 << 10  # a last word is some 300 bytes; file systems give room in blocks


def complain(text: str) -> None:
    """A line in the supervisor's own log. It is on the same disk: a line that cannot be written is dropped."""
    with contextlib.suppress(OSError):
        os.write(2, f"{datetime.now(UTC).isoformat(timespec='seconds')} {masked(text)}\n".encode())


class Trouble:
    """A repeated failure: logged when it begins, not every time."""

    def __init__(self, what: str) -> None:
        self._what, self._reason = what, ""

    def met(self, error: OSError) -> None:
        """It failed."""
        why = error.strerror or str(error)
        if why != self._reason:
            self._reason = why
            complain(f"{self._what}: {why}")

    def over(self) -> None:
        """It worked."""
        self._reason = ""


class Reserve:
    """Room on the run's disk, held from the start and given up for the last words."""

    def __init__(self, folder: RunFolder) -> None:
        self._path: Path = folder.path / "reserve"

    def keep(self) -> None:
        """Take the room, where there is any."""
        with contextlib.suppress(OSError):
            self._path.write_bytes(bytes(RESERVE_BYTES))

    def release(self) -> None:
        """Give it up."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class Recorder:
    """Writes events in order; those that could not be written wait and keep their time."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._waiting: deque[Event] = deque()
        self._trouble = Trouble("the journal cannot be written")

    def record(self, kind: EventKind, at: datetime, **fields: Any) -> None:
        """Append an event, now or as soon as the disk takes it."""
        given = {name: value for name, value in fields.items() if value is not None}
        self._waiting.append(Event(kind=kind, at=at, who=WHO, fields=given))
        self.flush()

    def flush(self) -> bool:
        """Write what waits; whether nothing waits any more."""
        while self._waiting:
            try:
                append_line(self._folder.journal_file, masked(self._waiting[0].to_json()), sync=True)
            except OSError as error:
                self._trouble.met(error)
                return False
            self._trouble.over()
            self._waiting.popleft()
        return True
