"""Data keys of a gateway, wrapped, in its store: all workers and hosts of one store read the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tonnage.encryption.data_keys import DataKeys, WrappedKey, new_wrapped, open_keys, rewrapped
from tonnage.errors import InputError
from tonnage.gateway.money.sql_store import SqlStore

_TABLE = (
    "CREATE TABLE IF NOT EXISTS data_keys (identity TEXT PRIMARY KEY, made_at TEXT NOT NULL, salt TEXT NOT NULL,"
    " nonce TEXT NOT NULL, wrapped TEXT NOT NULL)"
)


class StateKeyStore(SqlStore):
    """For one thread. AccountsError from every method where the store fails."""

    def opened(self, secret: str, *, what: str, now: datetime) -> DataKeys:
        """The data keys; the first one is made where there is none. DataError where the secret is another."""
        with self._write() as cursor:
            self._run(cursor, _TABLE, ())
            wrapped = self._every(cursor)
            if not wrapped:
                wrapped = [new_wrapped(secret, now=now)]
                self._put(cursor, wrapped)
            return open_keys(wrapped, secret, what=what)

    def rotate(self, before: str, after: str, *, what: str, now: datetime) -> int:
        """Wrap every data key with the secret `after`, and make a new one for what is written from now on; how many
        there are then. All or nothing. DataError where `before` is not the secret of now, InputError without keys."""
        with self._write() as cursor:
            self._run(cursor, _TABLE, ())
            known = self._every(cursor)
            if not known:
                raise InputError("nothing is encrypted here yet", hint="`encrypt:` in the gateway file, then start it")
            kept = rewrapped(known, before, after, what=what)
            made = (*kept, new_wrapped(after, now=now, like=kept[0]))
            self._run(cursor, "DELETE FROM data_keys", ())
            self._put(cursor, made)
            return len(made)

    def made(self) -> list[datetime]:
        """When each data key was made; AccountsError where there is no table of them."""
        with self._read() as cursor:
            return [one.made_at for one in self._every(cursor)]

    def _every(self, cursor: object) -> list[WrappedKey]:
        rows = self._run(cursor, "SELECT identity, made_at, salt, nonce, wrapped FROM data_keys", ()).fetchall()
        return [
            WrappedKey(
                identity=bytes.fromhex(identity), made_at=datetime.fromisoformat(at), salt=bytes.fromhex(salt),
                nonce=bytes.fromhex(nonce), wrapped=bytes.fromhex(wrapped),
            )
            for identity, at, salt, nonce, wrapped in rows
        ]  # fmt: skip

    def _put(self, cursor: object, keys: Sequence[WrappedKey]) -> None:
        for one in keys:
            row = (one.identity.hex(), one.made_at.isoformat(), one.salt.hex(), one.nonce.hex(), one.wrapped.hex())
            self._run(cursor, "INSERT INTO data_keys VALUES (?, ?, ?, ?, ?)", row)


def open_state_keys(store: str, secret: str, *, what: str) -> DataKeys:
    """The data keys of a gateway's store. Raises AccountsError, DataError, MissingExtra."""
    keys = StateKeyStore(store, durable=True)
    try:
        return keys.opened(secret, what=what, now=datetime.now(UTC))
    finally:
        keys.close()


def state_keys_made(store: str) -> list[datetime]:
    """When each data key of a store was made, a key each. Raises AccountsError."""
    keys = StateKeyStore(store)
    try:
        return keys.made()
    finally:
        keys.close()


def rotate_state_keys(store: str, before: str, after: str, *, what: str) -> int:
    """`StateKeyStore.rotate`. Raises as it does."""
    keys = StateKeyStore(store, durable=True)
    try:
        return keys.rotate(before, after, what=what, now=datetime.now(UTC))
    finally:
        keys.close()
