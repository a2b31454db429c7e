"""Lines of the audit that the disk does not take are held in memory, and written in order once it takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from typing import Any, Final

from tonnage.monitoring.audit import AuditFile
from tonnage.values import dataclass

MOST_HELD: Final = 10_000  # lines of some 300 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldLine:
    at: datetime
    who: str
    what: str
    fields: dict[str, Any]


class LateAudit:
    """Writes to an audit for a program that goes on where the disk is full. A line that came late carries its own time
    in `at`, and in `written_at` when it was written. `say` hears when lines begin to be held and when none is any more.
    """

    def __init__(self, audit: AuditFile, say: Callable[[str], None], *, most: int = MOST_HELD) -> None:
        self._audit, self._say, self._most = audit, say, most
        self._held, self._lost, self._lock = deque[_HeldLine](), 0, Lock()

    def put(self, *, at: datetime, who: str, what: str, **fields: Any) -> None:
        """One line behind those that are held: written now, or held too. Of over `most` the oldest is lost, and the
        audit says later how many were."""
        with self._lock:
            line = _HeldLine(at=at, who=who, what=what, fields=fields)
            if self._held:
                self._hold(line)
                self._flush(at)
                return
            try:
                self._audit.append(at=at, who=who, what=what, **fields)
            except OSError as error:
                self._hold(line)
                self._say(f"audit: {error}: its lines are held in memory and written when the disk takes them")

    def flush(self, now: datetime) -> None:
        """Write what is held, as far as the disk takes it."""
        with self._lock:
            self._flush(now)

    def close(self, now: datetime) -> None:
        """Write what is held, and say how many lines the disk never took."""
        self.flush(now)
        if self._held:
            self._say(f"audit: {len(self._held)} lines could not be written, and are lost")

    def _hold(self, line: _HeldLine) -> None:
        if len(self._held) >= self._most:
            self._held.popleft()
            self._lost += 1
        self._held.append(line)

    def _flush(self, now: datetime) -> None:
        written, lost = 0, self._lost
        try:
            if self._held and lost:
                self._audit.append(at=now, who="watch", what="lines lost", lines=lost)
                self._lost = 0
            while self._held:
                one = self._held[0]
                self._audit.append(at=one.at, who=one.who, what=one.what, written_at=now.isoformat(), **one.fields)
                self._held.popleft()
                written += 1
        except OSError:  # said when the first was held
            return
        if written:
            self._say(f"audit: works again; {written} lines written late" + (f", {lost} lost" if lost else ""))
