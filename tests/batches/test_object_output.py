"""Input and output on an object store: a part is made once or not at all, the output joined whole, whatever ends it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from tests.killed import Killed

pytest.importorskip("fsspec")

from fsspec.implementations import memory

from tonnage.batches.fsspec_objects import FsspecObjects
from tonnage.batches.objects import ObjectChanged, ObjectState, open_object, open_store
from tonnage.batches.outputs import ObjectOutput
from tonnage.batches.records import answer_line, fault_line
from tonnage.errors import InputError, TonnageError
from tonnage.http.retries import TemporaryError
from tonnage.traffic.batch import BatchRow, row_key

ROWS = [
    BatchRow(line=at, custom_id=f"r{at}", path="/v1/x", body=b"{}", key=row_key(f"r{at}", "/v1/x", b"{}"))
    for at in range(5)
]
FAILED = 3


class Whole(memory.MemoryFileSystem):
    """As the file systems of stores are: a file that is written is there once it is closed, and not before."""

    def open(self, path: str, mode: str = "rb", **said: Any) -> Any:
        return Draft(self, path) if mode == "wb" and "data" not in said else super().open(path, mode, **said)


class Draft:
    def __init__(self, filesystem: Whole, path: str) -> None:
        self._to, self._blocks = (filesystem, path), list[bytes]()

    def write(self, block: bytes) -> None:
        self._blocks.append(block)

    def close(self) -> None:
        self._to[0].pipe_file(self._to[1], b"".join(self._blocks))

    def discard(self) -> None:
        self._blocks.clear()


class Memory(FsspecObjects):
    """A store in memory. `ends_at`: the process is killed at that call, `before` it does anything or after."""

    def __init__(self, *, bucket: str = "", ends_at: int = 0, before: bool = True) -> None:
        self.bucket = bucket or uuid4().hex
        super().__init__(Whole(), self.bucket, shown="memory://")
        self.calls, self._ends_at, self._before = 0, ends_at, before

    def look(self, key: str) -> ObjectState | None:
        return self._called(super().look, key)

    def create(self, key: str, data: bytes) -> bool:
        return self._called(super().create, key, data)

    def replace(self, key: str, blocks: Iterator[bytes], version: str | None) -> None:
        return self._called(super().replace, key, blocks, version)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._called(super().delete, [key])

    def _called(self, function: Any, *given: Any) -> Any:
        self.calls += 1
        if self.calls == self._ends_at and self._before:
            raise Killed
        found = function(*given)
        if self.calls == self._ends_at:
            raise Killed
        return found


def output_on(store: Memory) -> ObjectOutput:
    return ObjectOutput(store, "out.jsonl", shown="memory://out.jsonl")


def answer(row: BatchRow) -> bytes:
    return answer_line(row, 200, b"{}", (2, 1))


def carry(store: Memory, *, rows: Sequence[BatchRow] = ROWS, failing: int | None = FAILED) -> ObjectOutput:
    """What the command does: two rows a part, what is recorded left out, all joined."""
    output = output_on(store)
    held = output.finished().holds([row.key for row in rows])
    left = [row for row, done in zip(rows, held, strict=True) if not done]
    for begin in range(0, len(left), 2):
        some = left[begin : begin + 2]
        output.write(
            [answer(row) for row in some if row.line != failing],
            [fault_line(row, "x", "y", 500) for row in some if row.line == failing],
        )
    output.finish()
    return output


def content(store: Memory, name: str = "out.jsonl") -> Counter[str]:
    key = f"/{store.bucket}/{name}"
    held = memory.MemoryFileSystem.store
    return (
        Counter(json.loads(one)["custom_id"] for one in held[key].getvalue().splitlines()) if key in held else Counter()
    )


def once(rows: Sequence[BatchRow]) -> Counter[str]:
    return Counter(row.custom_id for row in rows)


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_at_any_call_loses_and_repeats_nothing(before: bool) -> None:
    """Before or after each call to the store, one kill after the other on one output, and once in each output."""
    whole = Memory()
    carry(whole)
    answered = [row for row in ROWS if row.line != FAILED]
    for call in range(1, whole.calls + 1):
        bucket = Memory(ends_at=call, before=before).bucket
        for ends_at in (call, max(1, call - 2), 0):
            try:
                carry(Memory(bucket=bucket, ends_at=ends_at, before=before))
            except Killed:
                continue
        store = Memory(bucket=bucket)
        assert content(store) == once(answered)
        assert content(store, "out.jsonl.errors.jsonl") == {"r3": 1}
        assert len(store.sizes("out.jsonl.parts/")) == 1
        found = output_on(store).finished()
        assert (len(found.keys), found.input_tokens, found.output_tokens) == (5, 8, 4)


def test_two_writers_are_distinguished() -> None:
    """Both know the same parts: one goes on, the other is stopped; a third that knows the new part goes on."""
    store = Memory()
    one, two = output_on(store), output_on(store)
    one.finished(), two.finished()
    one.write([answer(ROWS[0])], [])
    with pytest.raises(TonnageError, match="another process writes memory"):
        two.write([answer(ROWS[1])], [])
    three = output_on(store)
    three.finished()
    three.write([answer(ROWS[1])], [])
    with pytest.raises(TonnageError, match="another process writes"):
        one.write([answer(ROWS[2])], [])


def test_an_answer_that_was_lost_is_no_other_writer() -> None:
    """The part was made, the store's answer did not come, the request went out again: it finds its own part."""

    class Forgetful(Memory):
        def create(self, key: str, data: bytes) -> bool:
            super().create(key, data)
            return False

    carry(store := Forgetful())
    assert content(store) == once([row for row in ROWS if row.line != FAILED])


def test_a_writer_that_slept_repeats_nothing() -> None:
    """Another finished and joined meanwhile, and a third goes on: what the sleeper writes before it meets the seal does
    not count, before and after the third one's own parts."""
    for sleeper_first in (True, False):
        store = Memory()
        late = output_on(store)
        late.finished()
        carry(store, rows=ROWS[:4])
        output_on(store).forget_errors()
        third = output_on(store)
        if sleeper_first:
            late.write([answer(ROWS[0]), answer(ROWS[FAILED])], [])
        held = third.finished().holds([row.key for row in ROWS])
        if not sleeper_first:
            late.write([answer(ROWS[0]), answer(ROWS[FAILED])], [])
        third.write([answer(row) for row, done in zip(ROWS, held, strict=True) if not done], [])
        late.write([answer(ROWS[1])], [])
        third.finish()
        assert content(store) == once(ROWS)
        with pytest.raises(TonnageError, match="another process writes"):
            all(late.write([answer(ROWS[2])], []) is None for _ in range(5))
        assert carry(store).finished().holds([row.key for row in ROWS]) == [True] * len(ROWS)
        assert content(store) == once(ROWS)


def test_an_output_grows_and_failed_rows_are_asked_again() -> None:
    """New rows of the input go behind the old ones; failed rows are forgotten, and what is answered stays."""
    store = Memory()
    carry(store, rows=ROWS[:4])
    carry(store)
    assert content(store, "out.jsonl.errors.jsonl") == {"r3": 1}
    output_on(store).forget_errors()
    assert content(store, "out.jsonl.errors.jsonl") == {}
    carry(store, failing=None)
    assert content(store) == once(ROWS)


def test_joining_over_what_another_wrote_is_refused() -> None:
    """A replacement under the version it was made from."""
    store = Memory()
    store.replace("a", iter([b"1"]), None)
    with pytest.raises(ObjectChanged):
        store.replace("a", iter([b"2"]), None)
    state = store.look("a")
    assert state is not None
    store.replace("a", iter([b"2", b"3"]), state.version)
    assert b"".join(store.read("a", 1, store.look("a").version)) == b"3"  # type: ignore[union-attr]


def test_a_broken_connection_is_taken_up_where_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few bytes, and after a seek; an object that was changed meanwhile is an error, not a mixture."""
    monkeypatch.setattr("tonnage.batches.objects._sleep", lambda _: None)

    class Breaking(Memory):
        def read(self, key: str, start: int, version: str) -> Iterator[bytes]:
            yield next(iter(super().read(key, start, version)))[:7]
            raise TemporaryError("connection reset")

    store, data = Breaking(), bytes(range(200))
    store.create("in", data)
    state = store.look("in")
    assert state is not None
    with open_object(store, "in", state, shown="in") as stream:
        assert stream.read() == data
        assert stream.seek(150) == 150
        assert stream.read(20) == data[150:170]
    store.replace("in", iter([data[::-1]]), state.version)
    with open_object(store, "in", state, shown="in") as stream, pytest.raises(ObjectChanged):
        stream.read()


def test_a_network_error_while_the_version_is_asked_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first byte and before the last: a question of the version that breaks off is asked again; a
    store that stays away is an error that says so."""
    monkeypatch.setattr("tonnage.batches.objects._sleep", lambda _: None)
    store, asked = Memory(), list[str]()
    store.create("in", b"content")
    state = store.look("in")
    assert state is not None
    info = store._fs.info

    def breaking(path: str) -> Any:
        asked.append(path)
        if len(asked) in (1, 3) or away:
            raise ConnectionResetError("connection reset")
        return info(path)

    away = False
    monkeypatch.setattr(store._fs, "info", breaking)
    with open_object(store, "in", state, shown="in") as stream:
        assert stream.read() == b"content"
    assert len(asked) >= 3
    away = True
    with open_object(store, "in", state, shown="in") as stream, pytest.raises(TonnageError, match="times in a row"):
        stream.read()


@pytest.mark.parametrize("url", ["s3://bucket", "ftp://host/a", "s3:///a"])
def test_what_names_no_object_is_refused(url: str) -> None:
    """With the forms that do."""
    with pytest.raises(InputError) as refused:
        open_store(url)
    assert "s3://BUCKET/KEY" in str(refused.value.hint)
