"""Rows of a bench from a query: the same parts whatever the order they come in, from files and from a database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tonnage.benchmarks.engines.data import SplitRows, prepare_data
from tonnage.errors import InputError, WorkloadError
from tonnage.side_by_side.reading import read_bench

ROWS = [(number, number % 7 / 2, "yes" if number % 2 else "no") for number in range(60)]


def prepared(folder: Path, sql: str, name: str) -> SplitRows:
    text = "bench: {name: t, data: [{name: d, label: bought, sql: {SQL}}], engines: [{engine: xgboost}]}"
    spec = read_bench(text.replace("SQL", sql), folder=folder)
    return prepare_data(spec, spec.data[0], folder / name, memory_bytes=1e9)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rows as a CSV, and backwards in a database that a variable names."""
    lines = "\n".join(",".join(map(str, row)) for row in ROWS)
    (tmp_path / "rows.csv").write_text(f"id,size,bought\n{lines}\n", encoding="utf-8")
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE sold (id INTEGER, size REAL, bought TEXT)")
        database.executemany("INSERT INTO sold VALUES (?, ?, ?)", reversed(ROWS))
    database.close()
    monkeypatch.setenv("BENCH_ROWS", f"sqlite:///{tmp_path / 'rows.db'}")
    return tmp_path


def test_files_and_databases_give_the_same_parts(tables: Path) -> None:
    """Forwards from DuckDB, backwards from SQLite: the same bytes; the key is no feature."""
    pytest.importorskip("duckdb")
    files = prepared(tables, "query: \"SELECT * FROM 'rows.csv'\", order_by: id", "one")
    database = prepared(tables, 'query: "SELECT * FROM sold", order_by: [id], database: "${BENCH_ROWS}"', "two")
    assert files.digests == database.digests
    assert files.columns == 1
    assert len(np.load(files.folder / "train_features.npy")) == 42


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ('query: "SELECT * FROM sold", order_by: size, database: "${BENCH_ROWS}"', "53 rows that `order_by` does not"),
        ('query: "SELECT * FROM sold", order_by: no, database: "${BENCH_ROWS}"', "no column 'no' to order by"),
        ('query: "SELECT * FROM gone", order_by: id, database: "${BENCH_ROWS}"', "no such table"),
        ('query: "SELECT * FROM sold", order_by: id, database: "${NOT_THERE}"', "no variable NOT_THERE"),
        ('query: "SELECT * FROM sold", order_by: id, database: "nosuch://a"', "cannot use the database"),
        ('query: "SELECT id, size FROM sold", order_by: id, database: "${BENCH_ROWS}"', "no column 'bought'"),
        (
            'query: "SELECT NULL AS id, bought FROM sold", order_by: id, database: "${BENCH_ROWS}"',
            "empty cells in `order_by`",
        ),
    ],
)
def test_a_query_that_cannot_be_used_says_why(tables: Path, sql: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        prepared(tables, sql, "d")


def test_a_query_over_files_that_fails_says_why(tables: Path) -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(InputError, match="the query failed"):
        prepared(tables, "query: \"SELECT * FROM 'gone.csv'\", order_by: id", "d")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("query: SELECT 1, order_by: id, database: 'postgresql://me:hunter2@host/db'", "has a secret in it"),
        ("query: SELECT 1, order_by: [bought]", "names the target"),
        ("query: SELECT 1, order_by: []", "order_by"),
        ("query: SELECT 1", "order_by"),
    ],
)
def test_what_is_wrong_in_the_file_is_refused(tmp_path: Path, sql: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words) as caught:
        prepared(tmp_path, sql, "d")
    assert "hunter2" not in str(caught.value)
