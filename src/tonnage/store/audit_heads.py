"""The newest line of each audit, kept in the store: an audit whose end was cut off is shorter than this says."""

from __future__ import annotations

from threading import Lock
from typing import Final

from sqlalchemy import insert, select, update

from tonnage.store.database import Database
from tonnage.store.schema import AUDIT_HEADS
from tonnage.values import dataclass

_COLUMNS: Final = (AUDIT_HEADS.c.first_hash, AUDIT_HEADS.c.number, AUDIT_HEADS.c.hash, AUDIT_HEADS.c.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """A line of an audit. An audit is known by the hash of its first line, wherever its file lies."""

    first_hash: str
    number: int
    hash: str
    at: str


class AuditHeads:
    """Opened when it is first asked. Raises StoreError."""

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, Lock()
        self._opened: Database | None = None

    def put(self, head: AuditHead) -> None:
        """Write down that an audit has come so far; it never goes back."""
        values = {"number": head.number, "hash": head.hash, "at": head.at}
        here = AUDIT_HEADS.c.first_hash == head.first_hash
        with self._database().write() as connection:
            known = connection.execute(select(AUDIT_HEADS.c.number).where(here)).scalar_one_or_none()
            if known is None:
                connection.execute(insert(AUDIT_HEADS).values(first_hash=head.first_hash, **values))
            elif known < head.number:
                connection.execute(update(AUDIT_HEADS).where(here).values(**values))

    def every(self) -> tuple[AuditHead, ...]:
        """All that are known, the newest line first."""
        with self._database().read() as connection:
            rows = connection.execute(select(*_COLUMNS).order_by(AUDIT_HEADS.c.at.desc())).all()
        return tuple(AuditHead(first_hash=one, number=number, hash=end, at=at) for one, number, end, at in rows)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _database(self) -> Database:
        with self._lock:
            if self._opened is None:
                opened = Database(self._url)
                try:
                    opened.migrate()
                except BaseException:
                    opened.close()
                    raise
                self._opened = opened
            return self._opened
