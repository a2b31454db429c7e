"""One database connection, SQLite or PostgreSQL, for statements that both understand (`?` stands for a value)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tonnage.errors import MissingExtra, TonnageError
from tonnage.files import make_database_file, make_private_folder
from tonnage.http.urls import without_secrets

BUSY_S: Final = 30.0


class AccountsError(TonnageError):
    """The shared accounts cannot be used now."""


class SqlStore:
    """For one thread. `url`: a file's path, or postgresql://…

    `durable`: a file has every commit on the disk before it is answered; a PostgreSQL server does so by itself.
    """

    def __init__(self, url: str, *, durable: bool = False) -> None:
        self.url, self._durable = url, durable
        self._postgres = url.startswith(("postgresql://", "postgres://"))
        self._connection: Any = None

    @property
    def exist(self) -> bool:
        """Whether a gateway has kept accounts here."""
        return self._postgres or Path(self.url).exists()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, cursor: Any, text: str, values: tuple[Any, ...]) -> Any:
        cursor.execute(self._text(text), values)
        return cursor

    def _text(self, text: str) -> str:
        return text.replace("?", "%s") if self._postgres else text

    @contextmanager
    def _read(self) -> Iterator[Any]:
        """The present amounts. AccountsError where the database fails; the next call connects again."""
        with self._transaction("BEGIN") as cursor:
            yield cursor

    @contextmanager
    def _write(self) -> Iterator[Any]:
        """A transaction that other writers wait for. AccountsError as `_read`."""
        with self._transaction("BEGIN IMMEDIATE") as cursor:
            yield cursor

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Any]:
        if self._connection is None:
            self._connection = self._connect_postgres() if self._postgres else self._connect_sqlite()
        cursor = None
        try:
            cursor = self._connection.cursor()
            if not self._postgres:
                cursor.execute(begin)
            yield cursor
            self._connection.commit()
        except BaseException as error:
            with suppress(Exception):  # the caller raises the error that led here; a lost connection cannot roll back
                self._connection.rollback()
            if self._is_fault(error):
                with suppress(Exception):
                    self._connection.close()
                self._connection = None
                raise AccountsError(f"the gateway's accounts in {self._where} failed: {error}",
                                    hint="check the disk or the server and its permissions") from error  # fmt: skip
            raise
        finally:
            if cursor is not None:
                with suppress(Exception):
                    cursor.close()

    @property
    def _where(self) -> str:
        return without_secrets(self.url)

    def _is_fault(self, error: BaseException) -> bool:
        if isinstance(error, sqlite3.Error):
            return True
        if not self._postgres:
            return False
        import psycopg

        return isinstance(error, psycopg.Error)

    def _connect_sqlite(self) -> Any:
        path = Path(self.url)
        try:
            make_private_folder(path.parent)
            make_database_file(path)
            made = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            made.execute("PRAGMA journal_mode=WAL")
            made.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        except (OSError, sqlite3.Error) as error:
            raise AccountsError(f"the gateway's accounts in {path} cannot be opened: {error}",
                                hint="name another file: `store:` in the gateway file") from error  # fmt: skip
        return made

    def _connect_postgres(self) -> Any:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtra("accounts on PostgreSQL", "postgres") from error
        try:
            return psycopg.connect(self.url, connect_timeout=10)
        except psycopg.Error as error:
            raise AccountsError(f"no connection to {self._where}: {error}", hint="check `store:`") from error
