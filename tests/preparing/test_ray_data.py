"""Ray Data against DuckDB: the same rows from tables in several files, so that rows are shuffled; the same refusals."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.errors import DataError, InputError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ORDERS = "types: {id: integer, who: integer, day: date, at: timestamp, amount: number, the kind: text}"
PREPARE = """prepare:
  name: both
  sources:
    orders: {file: orders, format: csv, key: id, TYPES}
    people: {file: people, format: jsonl, key: [who, part], types: {who: integer, part: text, country: text}}
  from: orders
  steps:
    - {join: {source: people, on: [who, the kind]}}
    - {window: {column: amount, function: sum, by: [who, the kind], order: day, rows: 3, current: true}}
    - {window: {column: at, function: max, by: country, order: at, rows: 10}}
    - {window: {column: day, function: previous, by: who, order: day, rows: 2}}
    - {tokens: {column: the kind, tokenizer: ., most: 3, name: ids}}
    - {encode: {column: country, how: one-hot}}
    - {encode: {column: the kind, how: frequency}}
  to: {TARGET}
""".replace("TYPES", ORDERS)
ROW_BY_ROW = """prepare:
  name: rows
  sources:
    orders: {file: orders, format: csv, key: id, TYPES}
    people: {file: people, format: jsonl, key: [who, part], types: {who: integer, part: text, country: text}}
  from: orders
  steps:
    - {join: {source: people, on: [who, the kind]}}
    - {encode: {column: country, how: one-hot}}
    - {encode: {column: the kind, how: ordinal}}
  to: {TARGET}
""".replace("TYPES", ORDERS)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine, which all tests of this file share."""
    library = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    library.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False,
                 _system_config={"num_workers_soft_limit": 8},  # else processes that have just started are ended again
                 runtime_env={"env_vars": {"PYTHONPATH": str(Path(tonnage.__file__).parents[1])}})  # fmt: skip
    yield library
    library.shutdown()


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Orders in five files and people in two, with nulls, ties, quotes and line feeds."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 1, "b": 2, "no": 3, "?": 0}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    draw, words = random.Random(7), ["a, b", 'said "no"', "two\nlines", "ümlaut", "it's", "", "A", "a"]
    (tmp_path / "orders").mkdir()
    (tmp_path / "people").mkdir()
    for part in range(5):
        with (tmp_path / "orders" / f"{part}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", "who", "day", "at", "amount", "the kind"])
            for number in range(60):
                amount = "" if draw.random() < 0.1 else f"{draw.uniform(-1e3, 1e3):.6g}"
                who = "" if draw.random() < 0.05 else draw.randrange(12)
                day = f"2026-{draw.randrange(1, 4):02}-{draw.randrange(1, 29):02}"
                at = f"{day} {draw.randrange(24):02}:00:00.{draw.randrange(10**6):06}"
                writer.writerow([part + 5 * number, who, day, at, amount, draw.choice(words)])
    for part in range(2):
        lines = [json.dumps({"who": who, "part": word, "country": draw.choice(["DE", "FR", "it"])})
                 for who in range(part, 9, 2) for word in words[:-1] if word]  # fmt: skip
        (tmp_path / "people" / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def prepared(folder: Path, target: str, engine: str, *, text: str = ROW_BY_ROW) -> dict[str, Any]:
    """The answer of an engine."""
    file = folder / f"{engine}.yaml"
    file.write_text(text.replace("TARGET", target), encoding="utf-8")
    found: dict[str, Any] = json.loads(tonnage.prepare(file, tonnage.PrepareOptions(engine=engine)).to_json())
    return found


def columns(table: Any) -> list[tuple[str, Any]]:
    """Names and types: DuckDB says of some columns that they have no nulls."""
    return [(one.name, one.type) for one in table.schema]


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        value == (pytest.approx(other[name], rel=1e-12) if isinstance(value, float) else other[name])
        for name, value in one.items()
    )


def test_the_rows_of_duckdb(ray: Any, tables: Path) -> None:
    """Types, order, categories and every cell, sums of doubles to their last digits."""
    import pyarrow.parquet

    assert ray.is_initialized()
    documents, rows = {}, {}
    for engine in ("duckdb", "ray"):
        documents[engine] = prepared(tables, f"file: {engine}.parquet", engine, text=PREPARE)
        rows[engine] = pyarrow.parquet.read_table(tables / f"{engine}.parquet")
    ours, theirs = documents.values()
    assert all(ours[key] == theirs[key] for key in ("columns", "categories", "rows", "sources"))
    first, second = rows.values()
    assert columns(first) == columns(second)
    assert first.num_rows == second.num_rows == 300
    assert len(list((tables / "ray.parquet").iterdir())) > 1
    for one, other in zip(first.to_pylist(), second.to_pylist(), strict=True):
        assert same(one, other), (one, other)


def test_the_csv_of_duckdb(ray: Any, tables: Path) -> None:
    """The same text, in parts of which each has the header; a result that was there is replaced whole."""
    assert ray.is_initialized()
    for _ in range(2):
        prepared(tables, "file: ray.csv", "ray")
    prepared(tables, "file: duckdb.csv", "duckdb")
    parts = [one.read_text(encoding="utf-8") for one in sorted((tables / "ray.csv").iterdir())]
    header = parts[0].partition("\n")[0] + "\n"
    whole = header + "".join(one.removeprefix(header) for one in parts)
    ours, theirs = (list(csv.reader(io.StringIO(one))) for one in (whole, (tables / "duckdb.csv").read_text()))
    assert len(ours) == len(theirs) == 301
    for one, other in zip(ours, theirs, strict=True):
        assert [_figure(cell) for cell in one] == [_figure(cell) for cell in other]


def _figure(cell: str) -> Any:
    try:
        return pytest.approx(float(cell), rel=1e-12)
    except ValueError:
        return cell


def test_delta_in_and_out(ray: Any, tables: Path) -> None:
    """A partitioned table with a null partition is read as DuckDB reads it; the result is a new version."""
    deltalake = pytest.importorskip("deltalake")
    assert ray.is_initialized()
    first = prepared(tables, "delta: table, partition_by: [who]", "ray")
    assert first["to"]["version"] == 0
    again = "prepare: {name: again, sources: {s: {delta: table, key: id}}, from: s, steps: [], to: {TARGET}}"
    rows = {}
    for engine in ("duckdb", "ray"):
        prepared(tables, f"delta: {engine}-table", engine, text=again)
        rows[engine] = deltalake.DeltaTable(str(tables / f"{engine}-table")).to_pyarrow_table().sort_by("id")
    assert rows["duckdb"].to_pylist() == rows["ray"].to_pylist()
    assert prepared(tables, "delta: ray-table", "ray", text=again)["to"]["version"] == 1


def test_nothing_is_left_of_an_inner_join(ray: Any, tables: Path) -> None:
    """A table with its columns and no rows."""
    import pyarrow.parquet

    assert ray.is_initialized()
    (tables / "people" / "0.jsonl").write_text('{"who": 77, "part": "none", "country": "DE"}\n')
    (tables / "people" / "1.jsonl").write_text('{"who": 78, "part": "none", "country": "DE"}\n')
    text = ROW_BY_ROW.replace("on: [who, the kind]", "on: [who, the kind], how: inner")
    shapes = []
    for engine in ("duckdb", "ray"):
        assert prepared(tables, f"file: {engine}.parquet", engine, text=text)["rows"] == 0
        shapes.append(pyarrow.parquet.read_table(tables / f"{engine}.parquet"))
    assert columns(shapes[0]) == columns(shapes[1])


def spoil(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: spoil(folder, "orders/3.csv", "\n8,", "\n1,"),  # a key that another file has
        lambda folder: spoil(folder, "orders/2.csv", "\n7,", "\n,"),
        lambda folder: spoil(folder, "orders/4.csv", "\n9,", "\nnine,"),
        lambda folder: spoil(folder, "people/1.jsonl", '"who": 1', '"who": "1x"'),
    ],
)
def test_what_is_amiss_has_the_same_words(ray: Any, tables: Path, change: Callable[[Path], None]) -> None:
    """Source, column, key and line; nothing is written."""
    assert ray.is_initialized()
    change(tables)
    said = []
    for engine in ("duckdb", "ray"):
        with pytest.raises(DataError) as raised:
            prepared(tables, f"file: {engine}.parquet", engine)
        said.append((raised.value.message, raised.value.hint))
    assert said[0] == said[1]
    assert not (tables / "ray.parquet").exists()


def test_a_table_too_large_to_go_to_each_worker(ray: Any, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tonnage.data_engines import ray_engine

    assert ray.is_initialized()
    monkeypatch.setattr(ray_engine, "MOST_BESIDE_BYTES", 100)
    with pytest.raises(InputError, match="of columns that are joined") as raised:
        prepared(tables, "file: out.parquet", "ray")
    assert "--engine spark" in (raised.value.hint or "")
