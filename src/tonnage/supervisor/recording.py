"""The supervisor's own lines in the journal. A full disk delays them; it never ends the supervisor."""

from __future__ import annotations

import sys
from collections import deque
from datetime import datetime
from typing import Any

from tonnage.runs.folder import RunFolder, append_line
from tonnage.runs.journal import Event, EventKind

WHO = "supervisor"


class Recorder:
    """Writes events in order; those that could not be written wait and keep their time."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._waiting: deque[Event] = deque()

    def record(self, kind: EventKind, at: datetime, **fields: Any) -> None:
        """Append an event, now or as soon as the disk takes it."""
        given = {name: value for name, value in fields.items() if value is not None}
        self._waiting.append(Event(kind=kind, at=at, who=WHO, fields=given))
        self.flush()

    def flush(self) -> bool:
        """Write what waits; whether nothing waits any more."""
        while self._waiting:
            try:
                append_line(self._folder.journal_file, self._waiting[0].to_json(), sync=True)
            except OSError as error:
                sys.stderr.write(f"the journal cannot be written: {error.strerror or error}\n")
                return False
            self._waiting.popleft()
        return True
