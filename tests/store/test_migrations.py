"""Databases of other days: older ones are brought up to date, newer and damaged ones are named and left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from tonnage.errors import InputError
from tonnage.runs import RunFolder
from tonnage.store import StoreError, open_store
from tonnage.store.database import Database
from tonnage.store.schema import METADATA


def tables(database: Database) -> set[str]:
    with database.read() as connection:
        return set(inspect(connection).get_table_names()) - {"alembic_version"}


def test_migrations_lead_to_the_tables_of_the_schema(url: str) -> None:
    """Tables, columns, indexes and constraints after all migrations are those that the code works with."""
    database = Database(url)
    database.migrate()
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA) == []
    database.close()


def test_each_migration_goes_up_and_down(url: str) -> None:
    """Up, one step down, all the way down, and up again."""
    database = Database(url)
    database.migrate()
    database.migrate("0002")
    with database.read() as connection:
        names = {column["name"] for column in inspect(connection).get_columns("training_measurements")}
    assert "quality" in names
    assert "program" not in names
    database.migrate("0001")
    assert tables(database) == {"runs", "events", "training_measurements", "inference_measurements"}
    database.migrate("base")
    assert tables(database) == set()
    database.migrate()
    assert tables(database) == set(METADATA.tables)
    database.close()


def test_an_older_file_is_brought_up_to_date(url: str, folder: RunFolder) -> None:
    """What an older tonnage wrote is there after the first opening by this one, which then can do what it could not."""
    older = Database(url)
    older.migrate("0001")
    older.close()
    file = sqlite3.connect(url.removeprefix("sqlite:///"))
    columns = [row[1] for row in file.execute("PRAGMA table_info(training_measurements)")]
    values = {"number": 1, "run": None} | {name: name for name in columns if name not in {"number", "run"}}
    marks = ", ".join("?" * len(columns))
    file.execute(f"INSERT INTO training_measurements VALUES ({marks})", [values[name] for name in columns])
    file.commit()
    file.close()
    with open_store(url) as store:
        assert [row["gpu"] for row in store.measurements()] == ["gpu"]
        store.index_run(folder)
        assert len(store.spend()) == 1


def test_a_newer_database_is_left_alone(url: str) -> None:
    """The error names the revisions and what to do; nothing is changed."""
    open_store(url).close()
    path = Path(url.removeprefix("sqlite:///"))
    file = sqlite3.connect(path)
    file.execute("UPDATE alembic_version SET version_num = '9999'")
    file.commit()
    file.close()
    with pytest.raises(StoreError, match=r"newer tonnage .*9999.* up to 0008") as caught:
        open_store(url)
    assert "upgrade" in str(caught.value.hint)


@pytest.mark.parametrize("keep", [0, 4096])
def test_a_damaged_database_is_named(url: str, folder: RunFolder, keep: int) -> None:
    """Overwritten from its first byte or behind its first page: the error names the file and how it is rebuilt."""
    with open_store(url) as store:
        store.index_run(folder)
    path = Path(url.removeprefix("sqlite:///"))
    whole = path.read_bytes()
    path.write_bytes(whole[:keep] + b"\x07" * (len(whole) - keep))
    with pytest.raises(StoreError, match="damaged") as caught, open_store(url) as store:
        store.index_run(folder)
    assert str(path) in caught.value.message
    assert "tonnage runs reindex" in str(caught.value.hint)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """A file stands where the home should be."""
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        open_store(f"sqlite:///{tmp_path}/home/below/tonnage.db")


@pytest.mark.parametrize("url", ["mysql://me@host/name", "sqlite:/x", "oracle+what://x"])
def test_other_databases_are_refused(url: str) -> None:
    """Only SQLite and PostgreSQL; the hint says so."""
    with pytest.raises(InputError) as caught:
        open_store(url)
    assert "postgresql://" in str(caught.value.hint)


def test_the_log_is_written_ahead(url: str) -> None:
    """Readers do not wait for writers: the file is in WAL mode."""
    database = Database(url)
    with database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    database.close()
