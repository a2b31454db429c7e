"""Preparation: figures by hand, what is amiss with line and key, versions of Delta, the same result on both engines."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.errors import DataError, InputError, WorkloadError
from tonnage.preparing.reading import read_preparation
from tonnage.preparing.spec import Encode
from tonnage.preparing.sql import DUCKDB, SPARK, counts_sql, encode_sql, shares_sql

pytest.importorskip("duckdb")
EXAMPLE = Path(__file__).parents[2] / "examples" / "prepare"
ORDERS = """prepare:
  name: orders
  sources:
    orders: {{file: orders.csv, key: id, types: {{id: integer, who: integer, day: date, amount: number, kind: text}}}}
    people: {{file: people.jsonl, key: who, types: {{who: integer, country: text}}}}
  from: orders
  steps: [{steps}]
  to: {{{to}}}
"""
ROWS = "id,who,day,amount,kind\n1,7,2026-01-03,10,a\n2,7,2026-01-05,20,b\n3,8,2026-01-05,5,\n4,7,2026-01-05,40,a\n"
PEOPLE = '{"who": 7, "country": "DE"}\n{"who": 9, "country": "FR"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text(ROWS, encoding="utf-8")
    (tmp_path / "people.jsonl").write_text(PEOPLE, encoding="utf-8")
    return tmp_path


def prepared(folder: Path, *steps: str, to: str = "file: out.parquet") -> list[dict[str, Any]]:
    """The rows that come out, by their key."""
    import pyarrow.parquet

    file = folder / "orders.prepare.yaml"
    file.write_text(ORDERS.format(steps=", ".join(steps), to=to), encoding="utf-8")
    tonnage.prepare(file)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(folder / "out.parquet").to_pylist()
    return rows


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def test_a_join_keeps_rows_that_find_nothing(folder: Path) -> None:
    """A left join has null there, an inner one leaves them out."""
    left = prepared(folder, "{join: {source: people, on: who}}")
    assert column(left, "country") == ["DE", "DE", None, "DE"]
    inner = prepared(folder, "{join: {source: people, on: who, how: inner}}")
    assert column(inner, "id") == [1, 2, 4]


def test_windows_look_back_and_break_ties_by_the_key(folder: Path) -> None:
    """Rows of the same day follow one another by their key; the row itself counts only where asked."""
    window = "{{window: {{column: amount, function: {}, by: who, order: day, rows: 2{}}}}}"
    rows = prepared(
        folder, window.format("mean", ""), window.format("sum", ", current: true, name: with"),
        window.format("count", ""), "{window: {column: amount, function: previous, by: who, order: day, rows: 1}}",
    )  # fmt: skip
    assert column(rows, "amount_mean_2") == [None, 10.0, None, 15.0]
    assert column(rows, "with") == [10.0, 30.0, 5.0, 70.0]
    assert column(rows, "amount_count_2") == [0, 1, 0, 2]
    assert column(rows, "amount_previous_1") == [None, 10.0, None, 20.0]


def test_encodings_are_in_order_of_bytes_and_nulls_are_none_of_them(folder: Path) -> None:
    """One column a category, places, shares; the categories used are in the answer."""
    one_hot = prepared(folder, "{encode: {column: kind, how: one-hot}}")
    assert column(one_hot, "kind=a") == [1, 0, 0, 1]
    assert column(one_hot, "kind=b") == [0, 1, 0, 0]
    ordinal = prepared(folder, "{encode: {column: kind, how: ordinal, categories: [b]}}")
    assert column(ordinal, "kind_ordinal") == [-1, 0, -1, -1]
    share = prepared(folder, "{encode: {column: kind, how: frequency}}")
    assert column(share, "kind_frequency") == [0.5, 0.25, 0.0, 0.5]


def test_texts_become_the_tokenizers_numbers(folder: Path) -> None:
    """Cut at the most asked for; null stays null."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 3, "b": 5, "?": 0}, unk_token="?"))
    made.save(str(folder / "tokenizer.json"))
    rows = prepared(folder, "{tokens: {column: kind, tokenizer: ., most: 4}}")
    assert column(rows, "kind_tokens") == [[3], [5], None, [3]]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("orders.csv", "id,who,day,amount\n1,7,2026-01-03,10\n", "source 'orders': there is no column 'kind'"),
        ("orders.csv", ROWS.replace("20,b", "2O,b"), "column 'amount' has '2O', which is no number .*line 3"),
        ("orders.csv", ROWS.replace("2026-01-03", "2026-02-30"), "'2026-02-30', which is no date .*line 2"),
        ("orders.csv", ROWS.replace("4,7", "2,7"), "2 rows have the key id=2 .*lines 3, 5"),
        ("orders.csv", ROWS.replace("\n2,7", "\n,7"), "1 rows lack a part of their key .*line 3"),
        ("people.jsonl", PEOPLE + '{"who": 9, "country": "IT"}\n', "2 rows have the key who=9 .*lines 2, 3"),
        ("people.jsonl", PEOPLE.replace("7", '"x"'), "column 'who' has 'x', which is no integer .*line 1"),
    ],
)  # fmt: skip
def test_what_is_amiss_is_said_with_line_and_key(folder: Path, file: str, content: str, said: str) -> None:
    """And nothing is written."""
    (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        prepared(folder)
    assert not (folder / "out.parquet").exists()
    assert not list(folder.glob(".*part*"))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{join: {source: people, on: amount}}", "'amount' is number, 'who' of 'people' is integer"),
        ("{window: {column: kind, function: mean, by: who, order: day, rows: 2}}", "'kind' is text, and has no mean"),
        ("{window: {column: amonut, function: mean, by: who, order: day, rows: 2}}", "there is no column 'amonut'"),
        ("{window: {column: day, function: min, by: who, order: day, rows: 2, name: KIND}}", "a column 'KIND' already"),
        ("{encode: {column: kind, how: one-hot, most: 1}}", "more than 1 categories"),
        ("{drop: id}", "'id' is of the key"), ("{keep: [id, day, what]}", "there is no column 'what'"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_done_is_named(folder: Path, step: str, said: str) -> None:
    """By its number, before anything is written."""
    with pytest.raises(DataError, match=said):
        prepared(folder, step)


def test_categories_that_differ_in_case_alone_are_no_columns(folder: Path) -> None:
    """Spark would refuse them, DuckDB rename one in silence."""
    (folder / "orders.csv").write_text(ROWS.replace("20,b", "20,A"), encoding="utf-8")
    with pytest.raises(DataError, match="in case alone"):
        prepared(folder, "{encode: {column: kind, how: one-hot}}")


@pytest.mark.parametrize(
    ("steps", "to", "said"),
    [
        ("{join: {source: poeple, on: who}}", "file: out.parquet", "no source is named 'poeple'"),
        ("{join: {source: people, on: [who, id]}}", "file: out.parquet", "the key of 'people' is who"),
        ("{keep: [id], drop: [id]}", "file: out.parquet", "has keep and drop"),
        ("{tokens: {column: kind, tokenizer: t}}", "file: out.csv", "do not go into CSV"),
        ("", "file: out.xlsx", "ends in no known format"), ("", "file: a.csv, delta: b", "one of `file`, `delta`"),
        ("{encode: {column: kind, how: hot}}", "file: out.csv", "one-hot"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(steps: str, to: str, said: str) -> None:
    """With the line and the key, before any row is read."""
    with pytest.raises(WorkloadError, match=said) as caught:
        read_preparation(ORDERS.format(steps=steps, to=to), file="orders.prepare.yaml")
    assert caught.value.line is not None


def test_delta_tables_have_versions(folder: Path) -> None:
    """Each result is a new version; an older one is read by its number, one that is not there is refused."""
    deltalake = pytest.importorskip("deltalake")
    file = folder / "orders.prepare.yaml"
    file.write_text(ORDERS.format(steps="", to="delta: table"), encoding="utf-8")
    assert tonnage.prepare(file).found.made.version == 0
    (folder / "orders.csv").write_text(ROWS + "5,9,2026-01-06,1,a\n", encoding="utf-8")
    assert tonnage.prepare(file).found.made.version == 1
    assert deltalake.DeltaTable(str(folder / "table")).version() == 1
    sources = "{old: {delta: table, version: VERSION, key: id}}"
    again = f"prepare: {{name: again, sources: {sources}, from: old, to: {{file: out.parquet}}}}"
    for version, rows in ((0, 4), (1, 5)):
        file.write_text(again.replace("VERSION", str(version)), encoding="utf-8")
        assert tonnage.prepare(file).found.made.rows_out == rows
    file.write_text(again.replace("VERSION", "7"), encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read as a Delta table"):
        tonnage.prepare(file)


def test_partitioned_delta_tables(folder: Path) -> None:
    """A folder for each value on the way out, the same rows on the way in, null and odd texts too; partitions of a file
    and columns that are not there are refused, and so is another partitioning of the same table."""
    deltalake = pytest.importorskip("deltalake")
    odd = ROWS + "5,9,2026-01-06,1,a b/c=d%\n6,9,2026-01-07,2,it's\n"
    (folder / "orders.csv").write_text(odd, encoding="utf-8")
    file = folder / "orders.prepare.yaml"
    file.write_text(ORDERS.format(steps="", to="delta: table, partition_by: [kind, day]"), encoding="utf-8")
    tonnage.prepare(file)
    assert deltalake.DeltaTable(str(folder / "table")).metadata().partition_columns == ["kind", "day"]
    sources = "{old: {delta: table, key: id, types: {id: integer, day: date, kind: text}}}"
    again = f"prepare: {{name: again, sources: {sources}, from: old, to: {{file: out.csv}}}}"
    file.write_text(again, encoding="utf-8")
    assert tonnage.prepare(file).found.made.columns == ("id", "who", "day", "amount", "kind")
    with (folder / "out.csv").open(encoding="utf-8", newline="") as stream:
        found = [(row["id"], row["day"], row["kind"]) for row in csv.DictReader(stream)]
    with (folder / "orders.csv").open(encoding="utf-8", newline="") as stream:
        assert found == [(row["id"], row["day"], row["kind"]) for row in csv.DictReader(stream)]
    for to, words in (
        ("delta: table, partition_by: who", "is partitioned by kind, day"),
        ("delta: other, partition_by: wo", "no column 'wo'"),
        ("file: out.csv, partition_by: who", "a file has no partitions"),
    ):
        file.write_text(ORDERS.format(steps="", to=to), encoding="utf-8")
        with pytest.raises((DataError, WorkloadError), match=words):
            tonnage.prepare(file)


@pytest.mark.parametrize(
    ("name", "words"),
    [("ordrs.csv", r"there is no .*ordrs\.csv"), ("empty", r"has no \*\.parquet"), ("torn.parquet", "cannot be read")],
)
def test_a_source_that_is_not_there_is_said_without_sql(folder: Path, name: str, words: str) -> None:
    """With a name that is like its own, and none of the engine's statements."""
    (folder / "empty").mkdir()
    (folder / "torn.parquet").write_bytes(b"PAR1torn")
    file = folder / "orders.prepare.yaml"
    text = ORDERS.format(steps="", to="file: out.csv").replace("file: orders.csv", f"file: {name}")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=words) as failed:
        tonnage.prepare(file)
    said = f"{failed.value} {failed.value.hint}"
    assert "SELECT" not in said
    assert "LINE" not in said
    assert name != "ordrs.csv" or "did you mean 'orders.csv'" in said


def test_a_step_is_named_as_the_file_names_it(folder: Path) -> None:
    """What is found in the file and what is found in the rows count from the same number."""
    file = folder / "orders.prepare.yaml"
    for step in ("{join: {source: people, on: [who, day]}}", "{join: {source: people, on: wo}}"):
        file.write_text(ORDERS.format(steps="{drop: kind}, " + step, to="file: out.csv"), encoding="utf-8")
        with pytest.raises((DataError, WorkloadError), match=r"`prepare\.steps\[1\]"):
            tonnage.prepare(file)
    with pytest.raises(WorkloadError, match="no such file") as failed:
        tonnage.prepare(folder / "orders.prepar.yaml")
    assert "did you mean 'orders.prepare.yaml'" in str(failed.value.hint)


def test_types_that_a_parquet_file_carries_are_checked(folder: Path) -> None:
    """What the file says counts; another statement is an error, not a cast."""
    prepared(folder)
    file = folder / "again.yaml"
    text = (
        "prepare: {name: a, sources: {s: {file: out.parquet, key: id, types: {id: text}}}, from: s, to: {file: b.csv}}"
    )
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"column 'id' is integer in .*, not text"):
        tonnage.prepare(file)
    file.write_text(text.replace("id: text", "id: integer"), encoding="utf-8")
    tonnage.prepare(file)
    with (folder / "b.csv").open(encoding="utf-8", newline="") as stream:
        assert [row["id"] for row in csv.DictReader(stream)] == ["1", "2", "3", "4"]


def test_the_example_is_prepared(tmp_path: Path) -> None:
    """As its page shows it; the answer has rows, columns and categories."""
    for one in EXAMPLE.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    answer = tonnage.prepare(tmp_path / "orders.prepare.yaml")
    document = json.loads(answer.to_json())
    assert document["schema"] == "tonnage/prepare@1"
    assert document["rows"] == 6
    assert document["categories"] == {"channel": ["app", "shop", "web"], "country": ["DE", "FR"]}
    assert "spent_before" in document["columns"]
    with pytest.raises(InputError, match="no engine is named 'dask'"):
        tonnage.prepare(tmp_path / "orders.prepare.yaml", tonnage.PrepareOptions(engine="dask"))


def test_shares_of_counted_blocks() -> None:
    """Counted first and shared out afterwards, as an engine of blocks does, a column has the same frequencies."""
    duckdb = pytest.importorskip("duckdb")
    step = Encode(column="the kind", how="frequency")
    with duckdb.connect(":memory:") as database:
        database.execute("""CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'a'), (4, NULL))
                         AS rows(id, "the kind")""")
        whole = database.execute(encode_sql(DUCKDB, "t", ["id", "the kind"], step, ())).fetchall()
        database.execute(f"CREATE TABLE counts AS {counts_sql(DUCKDB, 't', step)}")
        apart = database.execute(shares_sql(DUCKDB, "t", ["id", "the kind"], step, "counts", total=4)).fetchall()
    assert sorted(whole) == sorted(apart) == [(1, 0.5), (2, 0.25), (3, 0.5), (4, 0.0)]


def test_ray_reads_no_streams(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ray reads no streams"):
        tonnage.prepare(tmp_path / "any.yaml", tonnage.PrepareOptions(engine="ray", stream=True))


def test_names_and_texts_are_quoted() -> None:
    """Whatever is in them."""
    assert DUCKDB.name('a"b') == '"a""b"'
    assert SPARK.name("a`b") == "`a``b`"
    assert DUCKDB.text("it's") == "'it''s'"
    assert SPARK.text("it's \\d") == "'it\\'s \\\\d'"


def drawn(folder: Path) -> None:
    """Orders with all that tells engines apart: quotes, line feeds, commas, nulls, ties, names with spaces."""
    draw = random.Random(5)
    words = ["plain", "a, b", 'said "no"', "two\nlines", "ümlaut", "it's", "back\\slash", "", "A", "a"]
    with (folder / "orders.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "who", "day", "amount", "the kind"])
        for number in range(400):
            amount = "" if draw.random() < 0.1 else f"{draw.uniform(-1e3, 1e3):.6g}"
            day = f"2026-{draw.randrange(1, 4):02}-{draw.randrange(1, 29):02}"
            writer.writerow([number, draw.randrange(12), day, amount, draw.choice(words)])
    lines = [json.dumps({"who": who, "country": draw.choice(["DE", "FR", "it"])}) for who in range(9)]
    (folder / "people.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


BOTH = """prepare:
  name: both
  sources:
    orders: {file: orders.csv, key: id,
             types: {id: integer, who: integer, day: date, amount: number, the kind: text}}
    people: {file: people.jsonl, key: who, types: {who: integer, country: text}}
  from: orders
  steps:
    - {join: {source: people, on: who}}
    - {window: {column: amount, function: mean, by: who, order: day, rows: 5}}
    - {window: {column: amount, function: sum, by: [who, the kind], order: day, rows: 3, current: true}}
    - {window: {column: amount, function: max, by: country, order: day, rows: 10}}
    - {window: {column: day, function: previous, by: who, order: day, rows: 2}}
    - {tokens: {column: the kind, tokenizer: ., most: 3, name: ids}}
    - {encode: {column: country, how: one-hot}}
    - {encode: {column: the kind, how: ordinal}}
  to: {file: TARGET}
"""


@pytest.mark.slow
def test_spark_gives_the_rows_of_duckdb(tmp_path: Path) -> None:
    """Column for column and row for row, sums of doubles to their last digits; bad rows with the same words."""
    pytest.importorskip("pyspark")
    tokenizers = pytest.importorskip("tokenizers")
    import pyarrow.parquet

    drawn(tmp_path)
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 1, "b": 2, "no": 3, "?": 0}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    file, documents, rows = tmp_path / "both.yaml", {}, {}
    for engine in ("duckdb", "spark"):
        file.write_text(BOTH.replace("TARGET", f"{engine}.parquet"), encoding="utf-8")
        line = [sys.executable, "-m", "tonnage", "prepare", str(file), "--engine", engine, "--master", "local[1]"]
        done = subprocess.run([*line, "-o", "json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        documents[engine] = json.loads(done.stdout)
        rows[engine] = pyarrow.parquet.read_table(tmp_path / f"{engine}.parquet").to_pylist()
    deltalake = pytest.importorskip("deltalake")
    table = pyarrow.parquet.read_table(tmp_path / "duckdb.parquet").select(["id", "who", "day", "amount"])
    deltalake.write_deltalake(str(tmp_path / "table"), table, partition_by=["who"])
    again = "prepare: {name: again, sources: {s: {delta: table, key: id}}, from: s, to: {file: TARGET}}"
    for engine in ("duckdb", "spark"):
        file.write_text(again.replace("TARGET", f"again-{engine}.parquet"), encoding="utf-8")
        line = [sys.executable, "-m", "tonnage", "prepare", str(file), "--engine", engine, "--master", "local[1]"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        read = pyarrow.parquet.read_table(tmp_path / f"again-{engine}.parquet")
        assert read.to_pylist() == table.sort_by("id").to_pylist()
    (ours, theirs), (first, second) = documents.values(), rows.values()
    assert ours["columns"] == theirs["columns"]
    assert ours["categories"] == theirs["categories"]
    assert len(first) == len(second) == 400
    for one, other in zip(first, second, strict=True):
        assert same(one, other), (one, other)


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        value == (pytest.approx(other[name], rel=1e-12) if isinstance(value, float) else other[name])
        for name, value in one.items()
    )
