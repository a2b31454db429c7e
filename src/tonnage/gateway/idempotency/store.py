"""Claims of idempotency keys and the answers that they stand for, in the gateway's store, for all its workers."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from tonnage.gateway.money.sql_store import SqlStore

SILENT_S: Final = 60.0  # a worker that was not heard of for so long no longer holds its claims
LOST_AFTER_S: Final = 86_400.0  # longer than any request takes
IN_FLIGHT: Final = 0  # as a status
NOT_KEPT: Final = -1  # answered, by more than is kept


class ReplayableAnswer(NamedTuple):
    """As it went to the client. `head`: header lines, each with its line end; `streamed`: in pieces."""

    status: int
    head: bytes
    body: bytes
    streamed: bool


class Claim(NamedTuple):
    """A key that a request has taken, until its answer is kept or it is released."""

    owner: str
    name: str
    worker: str
    at_s: float


class KeyLookup(NamedTuple):
    """What a key has met: "claimed" by this request; "in-flight", "another-body", "not-kept"; or "kept"."""

    met: Literal["claimed", "in-flight", "another-body", "not-kept", "kept"]
    answer: ReplayableAnswer | None = None


class IdempotencyStore(SqlStore):
    """For one thread. AccountsError from every method where the store fails."""

    def open(self) -> None:
        octets = "BYTEA" if self._postgres else "BLOB"
        with self._write() as cursor:
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS idempotency (owner TEXT NOT NULL, name TEXT NOT NULL, request TEXT NOT"
                " NULL, worker TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, until DOUBLE PRECISION NOT NULL, status"
                f" INTEGER NOT NULL, head {octets}, body {octets}, streamed INTEGER, PRIMARY KEY (owner, name))"
            )

    def claim(self, claim: Claim, request: str, ttl_s: float) -> KeyLookup:
        """Take a key for a request (the hash of its path and body), or say what it stands for already.

        The claim of a worker that has ended, or has not been heard of for a minute, is taken over.
        """
        with self._write() as cursor:
            values = (claim.owner, claim.name, request, claim.worker, claim.at_s, claim.at_s + ttl_s, IN_FLIGHT)
            made = self._run(
                cursor,
                "INSERT INTO idempotency VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)"
                " ON CONFLICT (owner, name) DO NOTHING",
                values,
            )
            if made.rowcount == 1:
                return KeyLookup("claimed")
            lock = " FOR UPDATE" if self._postgres else ""
            known, worker, until_s, status, head, body, streamed = self._run(
                cursor,
                "SELECT request, worker, until, status, head, body, streamed FROM idempotency"
                f" WHERE owner = ? AND name = ?{lock}",
                (claim.owner, claim.name),
            ).fetchone()
            over = until_s <= claim.at_s and status != IN_FLIGHT
            if over or (status == IN_FLIGHT and not self._lives(cursor, worker, claim.at_s)):
                self._run(
                    cursor,
                    "UPDATE idempotency SET request = ?, worker = ?, at = ?, until = ?, status = ?, head = NULL,"
                    " body = NULL, streamed = NULL WHERE owner = ? AND name = ?",
                    (*values[2:], claim.owner, claim.name),
                )
                return KeyLookup("claimed")
            if known != request:
                return KeyLookup("another-body")
            if status == IN_FLIGHT:
                return KeyLookup("in-flight")
            if status == NOT_KEPT:
                return KeyLookup("not-kept")
            return KeyLookup("kept", ReplayableAnswer(int(status), bytes(head), bytes(body), bool(streamed)))

    def keep(self, claim: Claim, answer: ReplayableAnswer | None, until_s: float) -> None:
        """The answer that the key stands for from now on; None: it has one that is not kept."""
        status, head, body, streamed = answer or ReplayableAnswer(NOT_KEPT, b"", b"", streamed=False)
        with self._write() as cursor:
            self._run(
                cursor,
                "UPDATE idempotency SET status = ?, head = ?, body = ?, streamed = ?, until = ?"
                " WHERE owner = ? AND name = ? AND worker = ? AND at = ?",
                (status, head, body, int(streamed), until_s, *claim),
            )

    def release(self, claim: Claim) -> None:
        """Nothing was answered that is worth repeating: the key is free."""
        with self._write() as cursor:
            self._run(
                cursor, "DELETE FROM idempotency WHERE owner = ? AND name = ? AND worker = ? AND at = ?", tuple(claim)
            )

    def forget(self, now_s: float) -> None:
        """Answers whose time is over leave the store, and claims that stay open for a day."""
        with self._write() as cursor:
            self._run(
                cursor,
                "DELETE FROM idempotency WHERE (until <= ? AND status <> ?) OR (at <= ? AND status = ?)",
                (now_s, IN_FLIGHT, now_s - LOST_AFTER_S, IN_FLIGHT),
            )

    def _lives(self, cursor: Any, worker: str, now_s: float) -> bool:
        found = self._run(
            cursor, "SELECT 1 FROM workers WHERE worker = ? AND seen >= ?", (worker, now_s - SILENT_S)
        ).fetchone()
        return found is not None
