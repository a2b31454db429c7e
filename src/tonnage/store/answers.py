"""What was answered to requests with an Idempotency-Key, so that a repeat after a restart is not carried out again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tonnage.store.database import Database
from tonnage.store.schema import ANSWERS
from tonnage.values import dataclass

KEPT_FOR: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOnce:
    """Which request it is: of whom, to which address, with which key."""

    caller: str
    address: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAnswer:
    """The request of a key that came before. `document` None: it was begun, and its answer is not known."""

    begun_at: datetime
    same_body: bool
    document: str | None


class AnswerStore:
    """The answers of one database; several servers may share it."""

    def __init__(self, url: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database, self._clock = Database(url), clock
        try:
            self._database.migrate()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def begin(self, asked: AskedOnce, body: str) -> EarlierAnswer | None:
        """Write down that a request is begun; the earlier one where its key was used in the last seven days."""
        now, place = self._clock(), _place(asked)
        with self._database.write() as connection:
            connection.execute(delete(ANSWERS).where(ANSWERS.c.begun_at < _text(now - KEPT_FOR)))
            row = connection.execute(select(ANSWERS).where(place)).one_or_none()
            if row is None:
                values = {
                    "caller": asked.caller, "address": asked.address, "key_sha256": _sha256(asked.key),
                    "body_sha256": _sha256(body), "begun_at": _text(now),
                }  # fmt: skip
                try:
                    with connection.begin_nested():
                        connection.execute(insert(ANSWERS).values(**values))
                except IntegrityError:  # another server was first
                    row = connection.execute(select(ANSWERS).where(place)).one()
        return None if row is None else _earlier(row, body)

    def finish(self, asked: AskedOnce, document: str) -> None:
        """Write down the answer of what was begun."""
        with self._database.write() as connection:
            connection.execute(update(ANSWERS).where(_place(asked)).values(document=document))

    def forget(self, asked: AskedOnce) -> None:
        """What was begun was refused before anything was done: its key is free again."""
        with self._database.write() as connection:
            connection.execute(delete(ANSWERS).where(_place(asked)))


def _place(asked: AskedOnce) -> ColumnElement[bool]:
    return and_(
        ANSWERS.c.caller == asked.caller,
        ANSWERS.c.address == asked.address,
        ANSWERS.c.key_sha256 == _sha256(asked.key),
    )


def _earlier(row: Any, body: str) -> EarlierAnswer:
    return EarlierAnswer(
        begun_at=datetime.fromisoformat(row.begun_at), same_body=row.body_sha256 == _sha256(body), document=row.document
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()
