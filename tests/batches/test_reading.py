"""Rows of a batch: formats, bad rows with their reason, duplicates, what an output already holds."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tonnage.batches.reading import BatchInput, check_input
from tonnage.batches.records import Record, answer_line, fault_line, read_finished
from tonnage.errors import DataError, InputError
from tonnage.traffic.batch import BadRow, BatchRow, Task

CHAT = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": [{"role": "user", "content": "hello"}]}}  # fmt: skip
NOTHING = read_finished((), cut=False)


def rows_of(tmp_path: Path, *lines: Any, task: Task = "chat", model: str | None = None) -> list[BatchRow | BadRow]:
    file = tmp_path / "in.jsonl"
    file.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    return list(BatchInput(path=file, task=task, model=model).rows())


@pytest.mark.parametrize(
    ("task", "body"),
    [
        ("chat", {"messages": [{"role": "user", "content": "hello"}], "model": "m"}),
        ("completions", {"prompt": "hello", "model": "m"}),
        ("embeddings", {"input": "hello", "model": "m"}),
        ("classify", {"inputs": "hello", "model": "m"}),
    ],
)
def test_plain_rows_become_requests(tmp_path: Path, task: Task, body: dict[str, Any]) -> None:
    """A text and an id; without an id the number of the row."""
    named, unnamed = rows_of(tmp_path, {"text": "hello", "id": 7}, {"prompt": "hello"}, task=task, model="m")
    assert isinstance(named, BatchRow)
    assert isinstance(unnamed, BatchRow)
    assert (named.custom_id, unnamed.custom_id) == ("7", "row-2")
    assert json.loads(named.body) == body
    assert named.key != unnamed.key


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    """Some editors put it before the first line."""
    (row,) = rows_of(tmp_path, b'\xef\xbb\xbf{"text":"a"}', model="m")
    assert isinstance(row, BatchRow)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "no JSON"), (b"\xff\xfe", "no JSON"), (b"[" * 100_000, "no JSON"), ([1], "expected an object"),
        ({"x": 1}, 'no "text"'), (CHAT | {"custom_id": ""}, "no custom_id"), (CHAT | {"custom_id": 5}, "no custom_id"),
        (CHAT | {"method": "GET"}, "expected POST"), (CHAT | {"url": "http://elsewhere/v1/chat"}, "is none of"),
        (CHAT | {"body": None}, "no body"), (CHAT | {"body": {}}, "no model"),
        (CHAT | {"body": {"model": "m", "stream": True}}, "does not stream"),
        (b'{"text":"a","id":"\\ud800"}', "surrogates"), (b'{"text":"a","temperature":NaN}', "Out of range"),
        ({"text": "a", "id": [1]}, "id"),
    ],
)  # fmt: skip
def test_bad_rows_say_why(tmp_path: Path, line: Any, reason: str) -> None:
    """The row before and after a bad one is read."""
    before, bad, after = rows_of(
        tmp_path, {"text": "a"}, line, {"text": "c"}, model=None if reason == "no model" else "m"
    )
    assert isinstance(bad, BadRow)
    assert reason in bad.reason
    assert bad.line == 2
    if reason != "no model":
        assert isinstance(before, BatchRow)
        assert isinstance(after, BatchRow)


def test_parquet_rows_are_read(tmp_path: Path) -> None:
    """Columns as the keys of a row; a body may be JSON in text."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "in.parquet"
    parquet.write_table(arrow.table({"id": ["a", "b"], "text": ["x", "y"]}), file)
    found = list(BatchInput(path=file, task="embeddings", model="m").rows())
    assert [(row.custom_id, json.loads(row.body)["input"]) for row in found] == [("a", "x"), ("b", "y")]  # type: ignore[union-attr]
    whole = {name: [json.dumps(value) if name == "body" else value] for name, value in CHAT.items()}
    parquet.write_table(arrow.table(whole), file)
    assert isinstance(next(BatchInput(path=file, task="chat", model=None).rows()), BatchRow)
    days = arrow.array([date(2026, 1, 1), None])
    parquet.write_table(arrow.table({"text": ["x", "y"], "temperature": days, "body": [None, None]}), file)
    dated, plain = BatchInput(path=file, task="chat", model="m").rows()
    assert isinstance(dated, BadRow)
    assert "not JSON serializable" in dated.reason
    assert isinstance(plain, BatchRow)
    file.write_bytes(b"no Parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(BatchInput(path=file, task="chat", model=None).rows())


def test_two_rows_of_one_custom_id_are_refused(tmp_path: Path) -> None:
    """Both lines are named; an input without a row is refused too, and one that is not there."""
    rows_of(tmp_path, CHAT, {"text": "x"}, CHAT | {"method": "POST"})
    source = BatchInput(path=tmp_path / "in.jsonl", task="chat", model="m")
    with pytest.raises(DataError, match=r"'a' \(rows 1 and 3\)"):
        check_input(source, NOTHING)
    rows_of(tmp_path)
    with pytest.raises(InputError, match="has no row"):
        check_input(source, NOTHING)
    with pytest.raises(InputError, match="cannot be read"):
        check_input(BatchInput(path=tmp_path / "none.jsonl", task="chat", model="m"), NOTHING)


def test_a_record_is_read_back_without_its_torn_end(tmp_path: Path) -> None:
    """Every way to tear the last line off: whole lines count, the rest is cut off the file, tokens are summed."""
    good, other, bad = rows_of(tmp_path, {"text": "a"}, {"text": "b"}, b"{", model="m")
    assert isinstance(good, BatchRow)
    assert isinstance(other, BatchRow)
    assert isinstance(bad, BadRow)
    body = b'{"choices":[{}],\r\n"usage":{}}'
    lines = [answer_line(good, 200, body, (3, 4)), fault_line(bad, "bad row", "no JSON", None)]
    last = answer_line(other, 200, b"{}", (1, 1))
    assert [json.loads(line)["custom_id"] for line in (*lines, last)] == ["row-1", None, "row-2"]
    assert all(line.count(b"\n") == 1 for line in (*lines, last))
    file = tmp_path / "out.jsonl"
    for torn in (0, 1, 20, len(last) - 1):
        file.write_bytes(b"".join(lines) + last[:torn])
        found = read_finished((file,), cut=True)
        assert (found.cut_bytes, found.input_tokens, found.output_tokens) == (torn, 3, 4)
        assert found.holds([good.key, bad.key, other.key]) == [True, True, False]
        assert file.read_bytes() == b"".join(lines)


def test_a_file_of_others_is_not_appended_to(tmp_path: Path) -> None:
    """What is no record is named with its line, and stays as it was; so is a record of another input."""
    file = tmp_path / "out.jsonl"
    file.write_bytes(b'{"mine": 1}\n')
    with pytest.raises(InputError, match=r"out.jsonl:1 is not a line of a batch"):
        read_finished((file,), cut=True)
    (row,) = rows_of(tmp_path, {"text": "other"}, model="m")
    assert isinstance(row, BatchRow)
    file.write_bytes(answer_line(row, 200, b"{}", (0, 0)))
    rows_of(tmp_path, {"text": "changed"})
    source = BatchInput(path=tmp_path / "in.jsonl", task="chat", model="m")
    with pytest.raises(InputError, match="holds 1 row that"):
        check_input(source, read_finished((file,), cut=True))


def test_a_folder_is_no_output(tmp_path: Path) -> None:
    """The operating system's reason is given."""
    with pytest.raises(InputError, match="cannot be written"):
        Record(tmp_path)
