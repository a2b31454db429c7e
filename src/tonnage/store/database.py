"""A database at a URL: opened, brought up to date, its faults put into words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.files import make_database_file, make_private_folder

BUSY_S: Final = 30.0  # a writer waits this long for another
_WAL_TRIES: Final = 50
_LOCK: Final = 7_486_637  # any number: advisory lock of migrations on PostgreSQL
_MIGRATIONS: Final = Path(__file__).parent / "migrations"
REBUILD: Final = "run folders hold the truth: move it away, then `tonnage runs reindex` rebuilds the index"


class StoreError(TonnageError):
    """The database cannot be used: not there, damaged, or made by a newer tonnage."""


class Database:
    """One engine. `read` and `write` give a connection in a transaction; two writers wait for each other."""

    def __init__(self, url: str) -> None:
        self.url = _parsed(url)
        self.engine = _engine(self.url)
        self.reading = self.engine.execution_options(tonnage_begin="BEGIN")

    @property
    def where(self) -> str:
        """The file or the server, without a password."""
        return self.url.database or "memory" if self.is_sqlite else self.url.render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._explained(), self.reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._explained(), self.engine.begin() as connection:
            yield connection

    def migrate(self, revision: str = "head") -> None:
        """Bring the tables to a revision, in one transaction; a database of a newer tonnage is left alone."""
        config = migration_config()
        script = ScriptDirectory.from_config(config)
        if revision == "head" and self._revisions() == script.get_heads():
            return
        with self.write() as connection:
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            known = {one.revision for one in script.walk_revisions()}
            heads = MigrationContext.configure(connection).get_current_heads()
            if not set(heads) <= known:
                raise StoreError(
                    f"{self.where} was written by a newer tonnage (its tables are at revision {', '.join(heads)}, "
                    f"this one knows up to {', '.join(script.get_heads())})",
                    hint="upgrade tonnage, or name another database by TONNAGE_DATABASE_URL",
                )
            config.attributes["connection"] = connection
            older = revision == "base" or (heads and revision != "head" and revision < heads[0])
            (command.downgrade if older else command.upgrade)(config, revision)

    def close(self) -> None:
        self.engine.dispose()

    def _revisions(self) -> list[str]:
        with self.read() as connection:
            return list(MigrationContext.configure(connection).get_current_heads())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._fault(error) from error

    def _fault(self, error: DBAPIError) -> StoreError:
        said = str(error.orig).strip().splitlines()[0]
        if not self.is_sqlite:
            return StoreError(f"the database {self.where} failed: {said}", hint="check TONNAGE_DATABASE_URL")
        if "not a database" in said or "malformed" in said:
            return StoreError(f"the database {self.where} is damaged: {said}", hint=REBUILD)
        if isinstance(error, OperationalError) and "locked" in said:
            hint = "another process writes to it; try again"
            return StoreError(f"the database {self.where} was busy for {BUSY_S:.0f} s", hint=hint)
        return StoreError(f"the database {self.where} failed: {said}", hint="check the disk and its permissions")


def migration_config() -> Config:
    """Alembic's settings, without a file of its own."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError("the database URL cannot be read", hint="sqlite:////path/file.db, postgresql://…") from None
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise InputError(
            f"no store on '{parsed.drivername}'", hint="TONNAGE_DATABASE_URL takes sqlite:// and postgresql://"
        )
    return parsed


def _engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
        engine = create_engine(url, connect_args={"timeout": BUSY_S})
    except NoSuchModuleError as error:
        raise InputError(f"no driver for '{url.drivername}'", hint="use sqlite:// or postgresql://") from error
    except ModuleNotFoundError as error:
        raise MissingExtra("a store on PostgreSQL", "postgres") from error
    if url.database and url.database != ":memory:":
        _make_folder(Path(url.database).parent)
        with suppress(OSError):  # SQLite says what is wrong with the place
            make_database_file(Path(url.database))
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin)
    return engine


def _make_folder(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made: {error.strerror}", hint="set TONNAGE_HOME or TONNAGE_DATABASE_URL"
        ) from error


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Write-ahead log: readers never wait. The driver's own transactions are off, ours begin in `_begin`."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=NORMAL")
    for _ in range(_WAL_TRIES):  # the switch does not wait for other processes by itself
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except Exception as error:
            if "locked" not in str(error):
                raise
            time.sleep(0.1)
        else:
            return


def _begin(connection: Connection) -> None:
    """A writer takes its lock at once, so that it never fails half-way for a reader that turned writer."""
    options = connection.get_execution_options()
    connection.exec_driver_sql(options.get("tonnage_begin", "BEGIN IMMEDIATE"))
