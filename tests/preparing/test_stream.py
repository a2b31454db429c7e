"""Streams of `tonnage prepare`: what they refuse and why, each row once over kill -9, the rows of the batch."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.data_engines.delta import append_once
from tonnage.data_engines.spark_stream import preparation_digest
from tonnage.errors import DataError, InputError, WorkloadError
from tonnage.preparing.reading import read_preparation
from tonnage.preparing.streaming import streamed

pytest.importorskip("duckdb")
FILE = """prepare:
  name: arriving
  sources:
    orders:
      file: incoming
      format: csv
      key: id
      types: {id: integer, who: integer, day: date, amount: number, the kind: text}
    people: {file: people.jsonl, key: who, types: {who: integer, country: text}}
  from: orders
  steps:
    - {join: {source: people, on: who}}
    - {encode: {column: country, how: one-hot}}
    - {encode: {column: the kind, how: ordinal}}
  to: {TARGET}
  stream: {checkpoint: CHECKPOINT, files_at_once: 1, fitted: fitted.json}
"""
FILES, ROWS = 6, 30


def arriving(folder: Path, first: int = 0, last: int = FILES) -> None:
    """Files of orders, moved in whole, with quotes, line feeds and nulls."""
    (folder / "incoming").mkdir(exist_ok=True)
    words = ["plain", "a, b", 'said "no"', "two\nlines", "it's", ""]
    for number in range(first, last):
        draw = random.Random(number)
        beside = folder / "beside.csv"
        with beside.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", "who", "day", "amount", "the kind"])
            for one in range(number * ROWS, (number + 1) * ROWS):
                amount = "" if draw.random() < 0.1 else f"{draw.uniform(-1e3, 1e3):.6g}"
                writer.writerow([one, draw.randrange(12), f"2026-03-{draw.randrange(1, 29):02}", amount,
                                 draw.choice(words)])  # fmt: skip
        beside.rename(folder / "incoming" / f"{number:03}.csv")
    lines = [json.dumps({"who": who, "country": ["DE", "FR", "it"][who % 3]}) for who in range(9)]
    (folder / "people.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def written(folder: Path, to: str, checkpoint: str = "checkpoint") -> Path:
    file = folder / "arriving.prepare.yaml"
    file.write_text(FILE.replace("TARGET", to).replace("CHECKPOINT", checkpoint), encoding="utf-8")
    return file


def line(file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tonnage", "prepare", str(file), *more]


def stream_line(file: Path) -> list[str]:
    return line(file, "--stream", "--engine", "spark", "--master", "local[1]", "-o", "json")


def run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_folder_of_csv_is_read_as_one_table(tmp_path: Path) -> None:
    """By `format`; what is amiss is said with the file and the line, and an empty folder is no table."""
    arriving(tmp_path, 0, 3)
    file = written(tmp_path, "file: out.parquet")
    assert tonnage.prepare(file).found.made.rows_in["orders"] == 3 * ROWS
    with (tmp_path / "incoming" / "001.csv").open("a", encoding="utf-8", newline="") as stream:
        stream.write("99,1,2026-03-01,2O,x\r\n")
    with pytest.raises(DataError, match=r"'2O', which is no number \(.*001\.csv, line \d+\)"):
        tonnage.prepare(file)
    for one in (tmp_path / "incoming").iterdir():
        one.unlink()
    with pytest.raises(DataError, match=r"has no \*\.csv"):
        tonnage.prepare(file)
    with pytest.raises(WorkloadError, match="a Delta table has its own"):
        read_preparation(FILE.replace("TARGET", "file: o.csv").replace("file: incoming", "delta: incoming"))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{window: {column: amount, function: mean, by: who, order: day, rows: 2}}", "a stream has no window"),
        ("{encode: {column: the kind, how: frequency}}", "no share of 'the kind' in all rows"),
        ("{encode: {column: day, how: one-hot}}", "the categories of 'day' are found in all rows"),
    ],
)
def test_what_a_stream_cannot_do_is_refused_with_its_reason(step: str, said: str) -> None:
    """Before Spark starts, by the step's number."""
    text = FILE.replace("TARGET", "file: out.parquet").replace("{encode: {column: the kind, how: ordinal}}", step)
    with pytest.raises(InputError, match=rf"`prepare\.steps\[2\]`: .*{said}"):
        streamed(read_preparation(text), {"country": ("DE",)})


def test_what_a_stream_needs_is_said(tmp_path: Path) -> None:
    """A `stream` section, files that arrive, Spark, and a fitted file that is one."""
    file = written(tmp_path, "file: out.parquet")
    with pytest.raises(InputError, match="duckdb reads no streams"):
        tonnage.prepare(file, tonnage.PrepareOptions(stream=True))
    spark = tonnage.PrepareOptions(stream=True, engine="spark")
    with pytest.raises(WorkloadError, match="no such file"):
        tonnage.prepare(file, spark)
    for text, said in (("{}", "has no categories"), ("{", "no JSON"), ('{"categories": {"a": 1}}', "has no categ")):
        (tmp_path / "fitted.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=said):
            tonnage.prepare(file, spark)
    text = file.read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"has no `prepare\.stream`"):
        streamed(read_preparation(text[: text.index("  stream:")]), {})
    table = text.replace("file: incoming\n      format: csv", "delta: incoming")
    with pytest.raises(InputError, match="is a Delta table"):
        streamed(read_preparation(table), {})


def test_fitted_categories_are_used_and_stated_ones_win() -> None:
    """Of the file of an earlier answer; what rows a checkpoint has does not depend on how they are streamed."""
    text = FILE.replace("TARGET", "file: out.parquet")
    text = text.replace("{column: the kind, how: ordinal}", "{column: the kind, how: ordinal, categories: [b]}")
    asked, how = streamed(read_preparation(text), {"country": ("DE", "FR"), "the kind": ("a",)})
    assert [getattr(one, "categories", None) for one in asked.steps] == [None, ("DE", "FR"), ("b",)]
    assert (how.files_at_once, how.every_s) == (1, None)
    later = text.replace("files_at_once: 1", "files_at_once: 9, every: 30s")
    other, how = streamed(read_preparation(later), {"country": ("DE", "FR")})
    assert how.every_s == 30
    assert preparation_digest(other) == preparation_digest(asked)
    for change in (("{column: country, how: one-hot}", "{column: country, how: ordinal}"), ("out.p", "other.p")):
        changed, _ = streamed(read_preparation(text.replace(*change)), {"country": ("DE", "FR")})
        assert preparation_digest(changed) != preparation_digest(asked)


def test_a_delta_table_has_each_number_of_an_application_once(tmp_path: Path) -> None:
    """However often it is written; another application's numbers are its own."""
    deltalake = pytest.importorskip("deltalake")
    import pyarrow

    place = str(tmp_path / "table")
    rows = pyarrow.table({"id": [1, 2]})
    for application, number, version in (("a", 0, 0), ("a", 0, 0), ("a", 1, 1), ("b", 0, 2), ("a", 0, 2), ("a", 1, 2)):
        made = append_once(
            place, iter(rows.to_batches()), rows.schema, application=application, number=number, partition_by=()
        )
        assert made == version
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == 6


def fitted(folder: Path) -> list[dict[str, Any]]:
    """The batch's rows, its answer kept as the fitted file."""
    import pyarrow.parquet

    done = subprocess.run([*line(written(folder, "file: batch.parquet")), "-o", "json"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    (folder / "fitted.json").write_text(done.stdout, encoding="utf-8")
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(folder / "batch.parquet").to_pylist()
    return rows


def kill_after(command: list[str], commits: Path, *, count: int) -> None:
    """Kill -9 of the process and its Java process once so many micro-batches are done."""
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 240
    while len(list(commits.glob("[0-9]*"))) < count:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
def test_a_killed_stream_writes_each_row_once_and_as_the_batch(tmp_path: Path) -> None:
    """Killed in mid-stream, with the last written micro-batch made to run again; a bad file stops it with its line."""
    pytest.importorskip("pyspark")
    import pyarrow.parquet

    arriving(tmp_path)
    batch = fitted(tmp_path)
    file, commits = written(tmp_path, "file: out.parquet"), tmp_path / "checkpoint" / "spark" / "commits"
    kill_after(stream_line(file), commits, count=2)
    before = len(list((tmp_path / "out.parquet").glob("batch-*.parquet")))
    assert 2 <= before < FILES
    newest = max(commits.glob("[0-9]*"), key=lambda one: int(one.name))  # as if killed between the write and the commit
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    answer = run(stream_line(file))
    assert answer["batches"] == FILES - int(newest.name)
    assert answer["rows"] == answer["batches"] * ROWS

    def rows() -> list[dict[str, Any]]:
        table = pyarrow.parquet.read_table(tmp_path / "out.parquet").sort_by("id")
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    assert len(list((tmp_path / "out.parquet").iterdir())) == FILES
    assert rows() == batch

    (tmp_path / "incoming" / "bad.csv").write_text("id,who,day,amount,the kind\n900,1,2026-03-01,2O,x\n")
    failed = subprocess.run(stream_line(file), capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "'2O', which is no number" in failed.stderr
    assert "bad.csv, line 2" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert len(rows()) == FILES * ROWS
    (tmp_path / "incoming" / "bad.csv").write_text("id,who,day,amount,the kind\n900,1,2026-03-01,20,x\n")
    assert run(stream_line(file))["rows"] == 1
    assert run(stream_line(file))["batches"] == 0
    assert rows()[-1]["id"] == 900

    other = stream_line(written(tmp_path, "file: out.parquet", "other"))
    assert "is there already" in subprocess.run(other, capture_output=True, text=True, check=False).stderr
    written(tmp_path, "file: out.parquet")
    (tmp_path / "out.parquet").rename(tmp_path / "gone.parquet")
    failed = subprocess.run(stream_line(file), capture_output=True, text=True, check=False)
    assert "knows files as done" in failed.stderr


@pytest.mark.slow
def test_a_stream_goes_on_with_files_that_arrive_until_it_is_interrupted(tmp_path: Path) -> None:
    """Into a Delta table, a version a micro-batch; over kill -9 and with the interrupt's own answer."""
    pytest.importorskip("pyspark")
    deltalake = pytest.importorskip("deltalake")
    arriving(tmp_path)
    batch = fitted(tmp_path)
    for one in sorted((tmp_path / "incoming").iterdir())[4:]:
        one.unlink()
    file, commits = written(tmp_path, "delta: table"), tmp_path / "checkpoint" / "spark" / "commits"
    file.write_text(file.read_text().replace("files_at_once: 1", "files_at_once: 2, every: 0.2s"))
    kill_after(stream_line(file), commits, count=1)
    process = subprocess.Popen(stream_line(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    arriving(tmp_path, 4)
    while not (tmp_path / "table").exists() or deltalake.DeltaTable(str(tmp_path / "table")).count() < FILES * ROWS:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    while process.poll() is None and not len(list(commits.glob("[0-9]*"))) >= FILES // 2:
        time.sleep(0.1)
    second = subprocess.run(stream_line(file), capture_output=True, text=True, check=False)
    assert "another process streams" in second.stderr
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert json.loads(out)["to"]["version"] == deltalake.DeltaTable(str(tmp_path / "table")).version()
    rows = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == batch
