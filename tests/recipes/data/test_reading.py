"""Rows are read from files, data sets and databases; what cannot be read is told with file and line."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError, InputError
from tonnage.recipes.data.reading import read_rows
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import load_splits
from tonnage.runs.locations import absolute, files_at
from tonnage.runs.spec import DataSource, DataSpec

pytest.importorskip("fsspec", reason="the extra `train`")
ROWS = [{"text": "one", "label": "a"}, {"text": "two", "label": "b"}, {"text": "drei, «3»", "label": "a"}]
WANTED = frozenset({"text", "label"})


def read(location: Path | str, form: Any = "jsonl", **more: Any) -> DatasetRows:
    return read_rows(DataSource(location=str(location), format=form, **more), name="train", wanted=WANTED)


def values(rows: DatasetRows) -> list[dict[str, Any]]:
    return [{name: rows.columns[name][at] for name in ("text", "label")} for at in range(len(rows))]


def as_jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_csv(path: Path, rows: list[dict[str, Any]], separator: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `train`")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.csv", "rows.csv.gz", "rows.tsv", "rows.parquet"])
def test_every_form_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    """JSONL, CSV, TSV and Parquet, packed or not; columns nobody asked for are not kept, but known."""
    path, rows = tmp_path / name, [{**row, "other": "x"} for row in ROWS]
    if "csv" in name or "tsv" in name:
        plain = path.with_suffix("") if name.endswith(".gz") else path
        write_csv(plain, rows, "\t" if "tsv" in name else ",")
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(plain.read_bytes()))
    elif name.endswith(".parquet"):
        write_parquet(path, rows)
    else:
        content = as_jsonl(rows).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    form = "csv" if "csv" in name or "tsv" in name else "parquet" if "parquet" in name else "jsonl"
    found = read(path, form)
    assert values(found) == ROWS
    assert set(found.columns) == WANTED
    assert "other" in found.seen


def test_a_pattern_reads_its_files_in_order(tmp_path: Path) -> None:
    """Files come in the order of their names, each row knows its own; a list of locations keeps the list's order."""
    for number in (2, 0, 1):
        (tmp_path / f"part-{number}.jsonl").write_text("\n" + as_jsonl([{**ROWS[0], "text": str(number)}]))
    found = read(tmp_path / "part-*.jsonl")
    assert found.columns["text"] == ["0", "1", "2"]
    assert found.where(1) == f"{tmp_path}/part-1.jsonl:2"
    assert found.part([2, 0], "some").where(0) == f"{tmp_path}/part-2.jsonl:2"
    listed = read(tmp_path / "part-2.jsonl", more=(str(tmp_path / "part-0.jsonl"),))
    assert listed.columns["text"] == ["2", "0"]


FAULTS = [
    ("rows.jsonl", '{"text": "a"}\n{"text": \n', ":2: not JSON"),
    ("rows.jsonl", '{"text": "a"}\n["a"]\n', ":2: not a JSON object"),
    ("rows.jsonl", "", "has no rows"),
    ("rows.jsonl", "\n\n", "has no rows"),
    ("rows.csv", "text,label\na,b\na,b,c\n", ":3: 3 values for 2 columns"),
    ("rows.csv", "text,text\na,b\n", "two columns are named 'text'"),
    ("rows.csv", "text,label\n", "has no rows"),
    ("rows.csv", 'text,label\n"a"b,c\n', ":2: not CSV"),
    ("rows.parquet", "not parquet", "not readable as Parquet"),
    ("rows.jsonl.gz", "not gzip", "cannot be read after line 0"),
]


@pytest.mark.parametrize(("name", "content", "said"), FAULTS, ids=[f"{name} {said}" for name, _, said in FAULTS])
def test_unreadable_rows_are_told_with_their_line(name: str, content: str, said: str, tmp_path: Path) -> None:
    """What is wrong, in which file and on which line, and what to do."""
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as caught:
        read(tmp_path / name, "csv" if "csv" in name else "parquet" if "parquet" in name else "jsonl")
    assert said in caught.value.message
    assert caught.value.hint


def test_text_must_be_utf8(tmp_path: Path) -> None:
    """The line that is not is named."""
    (tmp_path / "rows.jsonl").write_bytes(as_jsonl(ROWS[:2]).encode() + b'{"text": "\xff"}\n')
    with pytest.raises(DataError, match=r"rows.jsonl:3: not UTF-8"):
        read(tmp_path / "rows.jsonl")


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    """The columns most like it, and where the mapping is."""
    (tmp_path / "rows.jsonl").write_text(as_jsonl([{"txt": "a", "label": "x"}]))
    with pytest.raises(DataError, match="no column 'text'") as caught:
        read(tmp_path / "rows.jsonl").column("text", "text")
    assert "'txt'" in (caught.value.hint or "")


def test_missing_shards_are_reported(tmp_path: Path) -> None:
    """A pattern that matches nothing, a file not there, and a set named -of-00003 that is not whole."""
    for number in (0, 2):
        (tmp_path / f"rows-{number:05}-of-00003.jsonl").write_text(as_jsonl(ROWS))
    with pytest.raises(InputError, match="shard 1 of 3 is missing"):
        files_at(str(tmp_path / "rows-*.jsonl"))
    (tmp_path / "rows-00001-of-00003.jsonl").write_text(as_jsonl(ROWS))
    assert len(files_at(str(tmp_path / "rows-*.jsonl"))) == 3
    with pytest.raises(InputError, match="no file matches"):
        files_at(str(tmp_path / "other-*.jsonl"))
    with pytest.raises(InputError, match="no such file") as caught:
        files_at(str(tmp_path / "rows-00001-of-0003.jsonl"))
    assert "rows-00001-of-00003.jsonl" in (caught.value.hint or "")


def test_a_query_gives_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite file by its URL; a secret comes from the environment and stands in no error."""
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(tmp_path / "rows.db") as base:
        base.execute("create table messages (body text, label text)")
        base.executemany("insert into messages values (?, ?)", [(row["text"], row["label"]) for row in ROWS])
    base.close()
    url = absolute("sqlite:///${BASE}.db", tmp_path)
    monkeypatch.setenv("BASE", "rows")
    query = "select body as text, label from messages order by rowid"
    assert values(read(url, "sql", query=query)) == ROWS
    with pytest.raises(DataError, match=r"query .* failed"):
        read(url, "sql", query="select nothing from nowhere")
    monkeypatch.delenv("BASE")
    with pytest.raises(DataError, match="no variable BASE"):
        read(url, "sql", query=query)
    with pytest.raises(DataError) as caught:
        read("nosuchbase://me:secret@host/db", "sql", query=query)
    assert "secret" not in str(caught.value)


def test_a_data_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hf://org/name` is read by the datasets library, here from a folder of that name; a missing one is told."""
    pytest.importorskip("datasets", reason="the extra `train`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "acme" / "notes").mkdir(parents=True)
    (tmp_path / "acme" / "notes" / "train.jsonl").write_text(as_jsonl(ROWS))
    assert values(read("hf://acme/notes", "hf", split="train")) == ROWS
    with pytest.raises(DataError, match=r"cannot load the data set hf://acme/notes \(split dev\)"):
        read("hf://acme/notes", "hf", split="dev")


def test_the_same_text_stays_on_one_side(tmp_path: Path) -> None:
    """Rows held out share no text with train, and no value of the group where one is named."""
    rows = [{"text": f"t{at % 50}", "label": "ab"[at % 2], "who": at % 10} for at in range(200)]
    (tmp_path / "rows.jsonl").write_text(as_jsonl(rows))
    source = DataSource(location=str(tmp_path / "rows.jsonl"), format="jsonl")
    columns = (("text", "text"), ("label", "label"))
    for group, column in ((None, "text"), ("who", "who")):
        data = DataSpec(train=source, columns=columns, validation_fraction=0.2, group=group)
        splits = load_splits(data, roles=("text", "label"), same=("text",), stratify="label")
        assert len(splits.train) == 160
        assert not set(splits.train.columns[column]) & set(splits.validation.columns[column])
