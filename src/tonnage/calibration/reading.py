"""Measured-facts tables row by row: typed values, a reason where a row cannot be used, an error on a broken table.

A file of any length is streamed: what stays in memory is one batch of rows and eight bytes for each id seen.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from hashlib import blake2b
from itertools import islice
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import InferenceRow, TrainingRow
from tonnage.errors import InputError

_RECENT: Final = 65_536


class SeenIds:
    """A growing set of texts that keeps a 64-bit digest of each: two ids of a million collide with odds of 1 in 10⁷."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def add(self, text: str) -> bool:
        """Remember `text`; True when it was there before.

        >>> seen = SeenIds()
        >>> seen.add("t1"), seen.add("t2"), seen.add("t1")
        (False, False, True)
        """
        digest = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
        if digest in self._recent or self._holds(digest):
            return True
        self._recent.add(digest)
        if len(self._recent) >= _RECENT:
            fresh = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
            self._sorted = np.union1d(self._sorted, fresh)
            self._recent.clear()
        return False

    def _holds(self, digest: int) -> bool:
        place = int(self._sorted.searchsorted(np.uint64(digest)))
        return place < len(self._sorted) and int(self._sorted[place]) == digest


T = TypeVar("T")
R = TypeVar("R", bound=TrainingRow | InferenceRow)

BATCH_ROWS: Final = 5_000
DUPLICATE_ID: Final = "duplicate id"
NO_VALUE: Final = "no value"
ZERO_MEANS: Final = frozenset({"fits", "max_seq_len"})  # metrics where 0 says something: it does not fit at all
_OPTIONAL: Final = frozenset(
    {"config_id", "source", "n_kv_heads", "mfu_reported", "note", "mem_kind", "family", "source_group", "quality",
     "compile", "attention", "optimizer", "grad_accum", "gpus_per_node", "concurrency", "weights_quant"}
)  # fmt: skip


def read_training_rows(path: str | Path) -> Iterator[TrainingRow | SkippedRow]:
    """Rows of a training table in file order; a row that cannot be used comes as `SkippedRow` with its reason (the
    column of a cell that is no number) and line.

    Raises InputError (file, line, column) when the file cannot be read as a table of these columns.
    """
    return _TableReader(TrainingRow, Path(path)).rows()


def read_inference_rows(path: str | Path) -> Iterator[InferenceRow | SkippedRow]:
    """The same for an inference table."""
    return _TableReader(InferenceRow, Path(path)).rows()


def in_batches(items: Iterable[T], size: int = BATCH_ROWS) -> Iterator[list[T]]:
    """Lists of up to `size` items.

    >>> list(in_batches("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


class _Unusable(Exception):
    """A row that says nothing one can judge."""


class _TableReader(Generic[R]):
    """One file read as rows of one type, columns found by the names in its header."""

    def __init__(self, row_type: type[R], path: Path) -> None:
        self.row_type, self.path = row_type, path
        self.line = 1
        self.header: list[str] = []
        hints = get_type_hints(row_type)
        self.kinds = {field.name: _kind(hints[field.name]) for field in fields(row_type)}
        self.defaults = {field.name: field.default for field in fields(row_type) if field.default is not MISSING}
        self.seen = SeenIds()

    def rows(self) -> Iterator[R | SkippedRow]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as stream:
                reader = csv.reader(stream, strict=True)
                yield from self._typed(reader)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}, after line {self.line}: not UTF-8 text ({error.reason})",
                hint="save the table as CSV in UTF-8",
            ) from error
        except csv.Error as error:
            column = self._quoted_column()
            raise InputError(
                f"{self.path}, line {self.line + 1}{column}: not readable as CSV: {error}",
                hint="a cell in quotes ends with one, and a quote inside it is doubled",
            ) from error

    def _typed(self, reader: Any) -> Iterator[R | SkippedRow]:
        header = next(reader, None)
        if header is None:
            raise InputError(
                f"{self.path} is empty", hint=f"its first line names columns: {','.join(self._required())}"
            )
        self.header = [name.strip() for name in header]
        place = self._places(self.header)
        for cells in reader:
            start, self.line = self.line + 1, reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                short = len(cells) < len(header)
                where = f"column '{header[len(cells)]}' is missing" if short else f"cells after column '{header[-1]}'"
                raise InputError(
                    f"{self.path}, line {start}: {len(cells)} cells, but the header names {len(header)} columns: "
                    f"{where}",
                    hint="quote a cell that holds a comma, and leave no column out",
                )
            yield self._row(start, {name: cells[at].strip() for name, at in place.items()})

    def _quoted_column(self) -> str:
        """Which column the quote that CSV cannot read is in, as far as the line tells."""
        with self.path.open(encoding="utf-8-sig", newline="") as stream:
            text = next(islice(stream, self.line, None), "")
        before = text[: text.find('"')] if '"' in text else ""
        at = before.count(",")
        return f", column '{self.header[at]}'" if '"' in text and at < len(self.header) else ""

    def _places(self, header: list[str]) -> dict[str, int]:
        twice = sorted({name for name in header if name in self.kinds and header.count(name) > 1})
        missing = [name for name in self._required() if name not in header]
        if twice or missing:
            what = f"column '{twice[0]}' stands twice" if twice else f"no column {', '.join(map(repr, missing))}"
            needed = ",".join(self._required())
            raise InputError(f"{self.path}, line 1: {what}", hint=f"the table needs the columns {needed}")
        return {name: header.index(name) for name in self.kinds if name in header}

    def _required(self) -> list[str]:
        return [name for name in self.kinds if name not in _OPTIONAL and name not in self.defaults]

    def _row(self, line: int, cells: dict[str, str]) -> R | SkippedRow:
        identity = cells["id"] or f"line {line}"
        suspect = cells.get("quality", "") == "suspect"
        try:
            row = self._value(cells | {"id": identity})
            if self.seen.add(identity):
                raise _Unusable(DUPLICATE_ID)
        except _Unusable as reason:
            return SkippedRow(row_id=identity, metric=cells["metric"], reason=str(reason), suspect=suspect, line=line)
        return row

    def _value(self, cells: dict[str, str]) -> R:
        values: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            cell = cells.get(name, "")
            if kind is str:
                values[name] = cell or self.defaults.get(name, "")
            elif cell:
                values[name] = _number(name, cell, whole=kind is int)
            else:
                values[name] = None
        _check_value(values["metric"], values["value"])
        return self.row_type(**values)


def _number(name: str, cell: str, *, whole: bool) -> float:
    try:
        number = float(cell)
    except ValueError:
        raise _Unusable(f"{name} is not a number") from None
    if not isfinite(number):
        raise _Unusable(f"{name} is not finite")
    if number < 0:
        raise _Unusable(f"{name} is negative")
    if not whole:
        return number
    if not number.is_integer():
        raise _Unusable(f"{name} is not a whole number")
    return int(number)


def _check_value(metric: str, value: float | None) -> None:
    if value is None:
        raise _Unusable(NO_VALUE)
    if value == 0 and metric not in ZERO_MEANS:
        raise _Unusable("value is zero")


def _kind(hint: Any) -> type:
    """str, int or float: what a column holds, blank or not."""
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))  # type: ignore[no-any-return]
    return hint  # type: ignore[no-any-return]
