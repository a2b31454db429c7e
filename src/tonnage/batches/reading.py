"""The input of a batch, row by row in flat memory: JSON lines or Parquet. It is read twice: checked, then sent."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from tonnage.batches.objects import ObjectChanged, ObjectPlace, is_object_url
from tonnage.batches.records import Finished
from tonnage.errors import DataError, InputError, MissingExtra
from tonnage.traffic.batch import NO_MODEL, BadRow, BatchRow, RowFault, Task, read_row
from tonnage.values import dataclass

LONGEST_LINE_BYTES: Final = 64 * 2**20
READ_ROWS: Final = 1024  # at a time
COMPARED_ROWS: Final = 128  # with the record, at a time
PART_LINES: Final = 2000  # of the input, that one worker leases at a time
NAMED_DUPLICATES: Final = 3
_DECODER: Final = json.JSONDecoder()  # `json.loads` guesses at the encoding of bytes, which is UTF-8 here


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """The rows of a file or an object. `task` and `model` are for rows that do not say theirs."""

    path: Path | ObjectPlace
    task: Task
    model: str | None

    @property
    def in_lines(self) -> bool:
        return self.path.suffix != ".parquet"

    @property
    def size_bytes(self) -> int:
        return self.path.state.size_bytes if isinstance(self.path, ObjectPlace) else self.path.stat().st_size

    def rows(self, marks: Callable[[int, int], None] | None = None) -> Iterator[BatchRow | BadRow]:
        """One after another, in the file's order; `marks` is called where each line begins: its number, its byte.

        InputError where the file cannot be read.
        """
        if not self.in_lines:
            return (self._parsed(found, number, None) for number, found in enumerate(_parquet(self.path), start=1))
        return self._lines(marks=marks)

    def part(self, begin: int, first_line: int, lines: int) -> Iterator[BatchRow | BadRow]:
        """The rows among so many lines of a file of lines, from the byte `begin` on, where line `first_line` begins."""
        for row in self._lines(begin, first_line):
            if row.line >= first_line + lines:
                return
            yield row

    def _lines(
        self, begin: int = 0, first_line: int = 1, marks: Callable[[int, int], None] | None = None
    ) -> Iterator[BatchRow | BadRow]:
        """`marks` is called where each line begins: its number, its byte."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(begin)
                number, place = first_line - 1, begin
                while line := stream.readline(LONGEST_LINE_BYTES):
                    number += 1
                    if marks is not None:
                        marks(number, place)
                    place += len(line)
                    if len(line) == LONGEST_LINE_BYTES:
                        place += _skip_line(stream)
                        yield _bad(number, None, f"longer than {LONGEST_LINE_BYTES:,} bytes", line[:1024])
                    elif line.strip():
                        yield self._line(line, number)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}", hint="JSON lines or Parquet") from error
        except ObjectChanged as error:
            raise InputError(str(error), hint="the same command reads it again") from error

    def _line(self, line: bytes, number: int) -> BatchRow | BadRow:
        try:
            found = _DECODER.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
            return _bad(number, None, f"no JSON: {error}", line)
        return self._parsed(found, number, line)

    def _parsed(self, found: Any, number: int, line: bytes | None) -> BatchRow | BadRow:
        try:
            return read_row(found, number, task=self.task, model=self.model)
        except (RowFault, ValueError, TypeError) as error:  # NaN, a lone surrogate; a column of dates
            named = found.get("custom_id") if isinstance(found, Mapping) else None
            return _bad(number, named if isinstance(named, str) else None, str(error), line or repr(found).encode())


def undone_rows(rows: Iterator[BatchRow | BadRow], finished: Finished) -> Iterator[BatchRow | BadRow]:
    """Those that a record does not hold."""
    while group := list(islice(rows, COMPARED_ROWS)):
        done = finished.holds([row.key for row in group])
        yield from (row for row, known in zip(group, done, strict=True) if not known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInput:
    """An input that was read once: how many rows it has, how many of them are no requests, and of a file of lines the
    byte where each part of `part_lines` lines begins."""

    rows: int
    bad: int
    part_lines: int
    begins: tuple[int, ...]


def check_input(
    source: BatchInput,
    finished: Finished,
    on_rows: Callable[[int], None] | None = None,
    *,
    part_lines: int = PART_LINES,
    unlisted: str | None = None,
) -> CheckedInput:
    """Read all rows once. DataError where two have one custom_id; InputError where there is no row, and where
    `finished` holds rows that this input has not: it is another input, or was changed; also where rows name no model
    and `unlisted` says why that of the service is not known.

    Eight bytes a row are kept meanwhile, a hash of the custom_id; equal hashes are resolved by a second reading.
    """
    hashes, bad, without_model, count, done = array("Q"), 0, 0, 0, 0
    begins: list[int] = []

    def mark(number: int, place: int) -> None:
        if (number - 1) % part_lines == 0:
            begins.append(place)

    rows = source.rows(mark)
    while group := list(islice(rows, READ_ROWS)):
        count += len(group)
        faults = [row.reason for row in group if isinstance(row, BadRow)]
        bad, without_model = bad + len(faults), without_model + faults.count(NO_MODEL)
        hashes.extend(_short_hash(row.custom_id) for row in group if isinstance(row, BatchRow))
        done += sum(finished.holds([row.key for row in group]))
        if on_rows is not None:
            on_rows(count)
    if not count:
        raise InputError(f"{source.path} has no row")
    if without_model and unlisted is not None:
        raise InputError(
            f"{_rows_words(without_model)} without a model, and {unlisted}",
            hint="start the service, or name the model: with --model, or in each row; nothing was recorded",
        )
    _refuse_duplicates(source, hashes)
    if done < len(finished.keys):
        raise InputError(
            f"the output holds {_rows_words(len(finished.keys) - done)} that {source.path} does not hold as asked",
            hint="the input, --task or --model was changed: --retry-errors where failed rows were mended, else name "
            "another output",
        )
    return CheckedInput(rows=count, bad=bad, part_lines=part_lines, begins=tuple(begins))


def _rows_words(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _refuse_duplicates(source: BatchInput, hashes: array[int]) -> None:
    ordered = np.frombuffer(hashes, dtype=np.uint64) if hashes else np.empty(0, dtype=np.uint64)
    ordered.sort()  # in place: a copy would be as large again
    met = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist()) if len(ordered) > 1 else set()
    if not met:
        return
    first: dict[str, int] = {}
    twice: list[str] = []
    for row in source.rows():
        if isinstance(row, BatchRow) and _short_hash(row.custom_id) in met:
            if row.custom_id in first:
                twice.append(f"'{row.custom_id}' (rows {first[row.custom_id]} and {row.line})")
                if len(twice) >= NAMED_DUPLICATES:
                    break
            first.setdefault(row.custom_id, row.line)
    if twice:
        hint = "an answer is found by its custom_id"
        raise DataError(f"{source.path}: two rows have one custom_id: {', '.join(twice)}", hint=hint)


def _short_hash(custom_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _bad(line: int, custom_id: str | None, reason: str, content: bytes) -> BadRow:
    digest = hashlib.blake2b(f"{line}\0".encode() + content, digest_size=16).hexdigest()
    return BadRow(line=line, custom_id=custom_id, reason=reason, key=digest)


def _skip_line(stream: Any) -> int:
    """Go behind the end of the line; how many bytes that was."""
    skipped = 0
    while rest := stream.readline(LONGEST_LINE_BYTES):
        skipped += len(rest)
        if rest.endswith(b"\n"):
            break
    return skipped


def open_input(text: Path | str) -> Path | ObjectPlace:
    """The location behind a name. InputError where an object is not there."""
    return ObjectPlace(text) if isinstance(text, str) and is_object_url(text) else Path(text)


def _parquet(path: Path | ObjectPlace) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("a Parquet input", "load") from error
    try:
        with path.open("rb") as stream, pyarrow.parquet.ParquetFile(stream) as file:
            for batch in file.iter_batches(batch_size=READ_ROWS):
                for row in batch.to_pylist():
                    yield {name: value for name, value in row.items() if value is not None}
    except (OSError, ObjectChanged, pyarrow.ArrowInvalid) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}") from error
