"""The output of a batch is its record: a line that is there whole says that its row is done.

Lines begin with the row's key and its tokens, so that a restart reads ten million of them without parsing JSON:
`{"id":"batch_req_KEY","tokens":[IN,OUT],"custom_id":...,"response":{...},"error":null}`, as in OpenAI's batch files.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from tonnage.errors import InputError, TonnageError
from tonnage.traffic.batch import BadRow, BatchRow
from tonnage.values import dataclass

_HEAD: Final = re.compile(rb'\{"id":"batch_req_([0-9a-f]{32})","tokens":\[(\d+),(\d+)\],')
_NO_FAULT: Final = b',"error":null}\n'
_READ_BYTES: Final = 2**22
MOST_TOKENS: Final = 2**53  # of one answer
MOST_UNWRITTEN: Final = 4096  # lines that wait for a slow disk or store before nothing more is sent


def answer_line(row: BatchRow, status: int, body: bytes, tokens: tuple[int, int]) -> bytes:
    """The line of an answer; `body` is JSON."""
    shown = body if b"\n" not in body and b"\r" not in body else _one_line(body)
    return (
        b'{"id":"batch_req_%b","tokens":[%d,%d],"custom_id":%b,"response":{"status_code":%d,"request_id":"%b","body":%b},'
        b'"error":null}\n' % (row.key.encode(), *tokens, _text(row.custom_id), status, row.key.encode(), shown.strip())
    )


def fault_line(row: BatchRow | BadRow, code: str, message: str, status: int | None) -> bytes:
    """The line of a row that has no answer, for the file of errors."""
    response = None if status is None else {"status_code": status, "request_id": row.key, "body": None}
    rest = {"custom_id": row.custom_id, "line": row.line, "response": response,
            "error": {"code": code, "message": message}}  # fmt: skip
    return b'{"id":"batch_req_%b","tokens":[0,0],%b\n' % (row.key.encode(), _dumped(rest)[1:])


def tokens_of(found: Any) -> tuple[int, int]:
    """(read, written) of an answer's usage; (0, 0) where it says none. ValueError for an error under status 200."""
    if not isinstance(found, dict):
        if isinstance(found, list) and found:  # TEI
            return 0, 0
        raise ValueError
    if found.get("error") or not found:
        raise ValueError
    usage = found.get("usage") or {}
    read = usage.get("prompt_tokens", usage.get("input_tokens")) or 0
    written = usage.get("completion_tokens", usage.get("output_tokens")) or 0
    return _count(read), _count(written)


def _count(value: Any) -> int:
    """A number of tokens; ValueError for what is none, since the line of an answer must be read back."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_TOKENS:
        raise ValueError
    return int(value)


def is_answer(line: bytes) -> bool:
    """Whether a line of the record is an answer, not the fault of a row."""
    return line.endswith(_NO_FAULT)


def line_key(line: bytes) -> bytes | None:
    """The key at the beginning of a line; None where it has none."""
    head = _HEAD.match(line)
    return None if head is None else head[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a record holds: the keys of its rows, by their first 64 bits and sorted; tokens; what was torn off.

    Two of ten million keys share 64 bits with a chance of 3 in a million; the second would then pass as done.
    """

    keys: np.ndarray[Any, np.dtype[np.uint64]]
    input_tokens: int
    output_tokens: int
    cut_bytes: int

    def holds(self, keys: Sequence[str]) -> list[bool]:
        """Which of some keys are done."""
        if not len(self.keys):
            return [False] * len(keys)
        asked = np.array([int(key[:16], 16) for key in keys], dtype=np.uint64)
        places = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        return (self.keys[places] == asked).tolist()  # type: ignore[no-any-return]


def read_finished(paths: Iterable[Path], *, cut: bool) -> Finished:
    """What the records at `paths` hold; `cut`: a last line without its end is cut off the file.

    InputError for a file that holds something else: it is not overwritten.
    """
    found, torn = FoundLines(), 0
    for path in paths:
        if not path.exists():
            continue
        if cut:
            torn += _cut_tail(path)
        with path.open("rb", buffering=_READ_BYTES) as stream:
            found.read(stream, path)
    return found.finished(cut_bytes=torn)


class FoundLines:
    """Keys and tokens of the lines that were read."""

    def __init__(self) -> None:
        self._keys, self._read, self._written = array("Q"), 0, 0

    def read(self, lines: Iterable[bytes], shown: object) -> None:
        """Lines of a record, up to one without its end: another process writes it now, or was killed there.

        InputError, with the number of the line, for what is no record.
        """
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            head = _HEAD.match(line)
            if head is None:
                raise InputError(f"{shown}:{number} is not a line of a batch", hint="name another output file")
            self._keys.append(int(head[1][:16], 16))
            self._read, self._written = self._read + int(head[2]), self._written + int(head[3])

    def finished(self, *, cut_bytes: int = 0) -> Finished:
        ordered = np.frombuffer(self._keys, dtype=np.uint64).copy() if self._keys else np.empty(0, dtype=np.uint64)
        ordered.sort()
        return Finished(keys=ordered, input_tokens=self._read, output_tokens=self._written, cut_bytes=cut_bytes)


def _cut_tail(path: Path) -> int:
    """Cut the bytes behind the last line end; how many bytes that was."""
    size = path.stat().st_size
    with path.open("rb+") as stream:
        end = size
        while end > 0:
            begin = max(0, end - _READ_BYTES)
            stream.seek(begin)
            found = stream.read(end - begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        if end < size:
            stream.truncate(end)
            os.fsync(stream.fileno())
    return size - end


class Record:
    """Appends lines to a file in groups: each group is on the disk (`fdatasync`) before its rows count as done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}", hint="name another output file") from error

    def write(self, lines: Sequence[bytes]) -> None:
        """Write whole lines and bring them to the disk. TonnageError where that cannot be done (a full disk)."""
        left = memoryview(b"".join(lines))
        try:
            while left:
                left = left[os.write(self._file, left) :]
            _to_disk(self._file)
        except OSError as error:
            raise TonnageError(
                f"{self.path} cannot be written: {error.strerror}", hint="make room; the same command goes on"
            ) from error

    def close(self) -> None:
        os.close(self._file)


class LineSink(Protocol):
    """Where the lines of answers and of faults go."""

    gather_s: float  # that lines wait for others, where each write is dear

    def write(self, answers: Sequence[bytes], faults: Sequence[bytes]) -> None:
        """Both are safe on return, or TonnageError says why not."""


class FileSink:
    """Two files of lines."""

    gather_s = 0.0

    def __init__(self, answers: Record, faults: Record) -> None:
        self._records = (answers, faults)

    def write(self, answers: Sequence[bytes], faults: Sequence[bytes]) -> None:
        for record, lines in zip(self._records, (answers, faults), strict=True):
            if lines:
                record.write(lines)


class GroupCommit:
    """Lines of many tasks, written by one thread: while a group is on its way to the disk the next one gathers."""

    def __init__(self, sink: LineSink, on_recorded: Callable[[Sequence[int]], None] | None = None) -> None:
        self._sink, self._on_recorded = sink, on_recorded
        self._numbers: list[int] = []
        self._waiting: tuple[list[bytes], list[bytes]] = ([], [])
        self._wake, self._enough = asyncio.Event(), asyncio.Event()
        self._closed = False
        self.answered = self.failed = 0  # on the disk

    @property
    def waiting(self) -> int:
        """Lines that no group has taken yet."""
        return len(self._waiting[0]) + len(self._waiting[1])

    def add(self, line: bytes, number: int, *, failed: bool) -> None:
        """A line of the record, and the number of its row in the input."""
        self._waiting[failed].append(line)
        self._numbers.append(number)
        self._wake.set()
        if self.waiting >= MOST_UNWRITTEN // 2:
            self._enough.set()

    async def run(self) -> None:
        """Write groups until `close` was called and all is on the disk."""
        while True:
            await self._wake.wait()
            await self._gather()
            self._wake.clear()
            groups = (self._waiting[0][:], self._waiting[1][:])
            numbers, self._numbers = self._numbers, []
            for waiting in self._waiting:
                waiting.clear()
            if numbers:
                await asyncio.to_thread(self._sink.write, *groups)
            self.answered += len(groups[0])
            self.failed += len(groups[1])
            if self._on_recorded is not None:
                self._on_recorded(numbers)
            if self._closed and not any(self._waiting):
                return

    async def _gather(self) -> None:
        """Wait for more lines, where the sink asks for it."""
        if self._sink.gather_s and not self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), self._sink.gather_s)
            self._enough.clear()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._enough.set()


def _to_disk(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def _text(text: str) -> bytes:
    return json.dumps(text).encode()


def _one_line(body: bytes) -> bytes:
    return _dumped(json.loads(body))
