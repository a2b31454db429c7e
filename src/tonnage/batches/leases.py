"""Several workers on one input, over a folder that all of them see: parts of the input are leased, renewed, taken back.

Files alone, no server: a lease is a file that only one can create. A worker that lives writes to a file of its own; how
old that is, by the clock of the file system, says whether it still does. A worker that comes back after its leases were
taken may answer rows twice: `merge_shards` keeps one answer of each.
"""

from __future__ import annotations

import os
import platform
import uuid
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np

from tonnage.batches.reading import BatchInput, CheckedInput, undone_rows
from tonnage.batches.records import line_key, read_finished
from tonnage.errors import TonnageError
from tonnage.files import move_whole
from tonnage.traffic.batch import BadRow, BatchRow

RENEWALS: Final = 4  # in the time of a lease
_READ_BYTES: Final = 2**22


def worker_name() -> str:
    """Of this process: host, process, and what tells it from an earlier one of the same number."""
    return f"{platform.node() or 'host'}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class LeaseBook:
    """The leases of a folder, as one worker sees them. Parts are counted from 0."""

    def __init__(self, folder: Path, worker: str, parts: int, lease_s: float) -> None:
        self._folder, self.worker, self._parts, self._lease_s = folder, worker, parts, lease_s
        self._beat = folder / f"{worker}.beat"
        self._renewed_s = -lease_s
        self.held: set[int] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TonnageError(f"{folder} cannot be made: {error.strerror}") from error
        self.renew()

    def claim(self) -> tuple[int, bool] | None:
        """A part without a holder, and whether someone held it before; None where there is none now."""
        names = set(os.listdir(self._folder))
        before = {name.partition(".")[0] for name in names if ".lost-" in name}
        for part in range(self._parts):
            taken_back = self._claim_one(part, names)
            if taken_back is not None:
                return part, taken_back or _stem(part) in before
        return None

    def claim_merge(self) -> bool:
        """Whether this worker is the one to merge, now that all parts are done: held as a part behind the last."""
        return self._claim_one(self._parts, set(os.listdir(self._folder))) is not None

    def finish_merge(self) -> None:
        self.finish(self._parts)

    @property
    def merged(self) -> bool:
        return (self._folder / f"{_stem(self._parts)}.done").exists()

    def _claim_one(self, part: int, names: set[str]) -> bool | None:
        """Claim a part: True where it was taken back for that, None where it cannot be had."""
        stem, taken_back = _stem(part), False
        if f"{stem}.done" in names:
            return None
        if f"{stem}.lease" in names:
            if part in self.held or not self._take_back(part):
                return None
            taken_back = True
        if not self._create(part):
            return None
        self.held.add(part)
        return taken_back

    def finish(self, part: int) -> None:
        """All rows of a part are on the disk."""
        (self._folder / f"{_stem(part)}.done").touch()
        (self._folder / f"{_stem(part)}.lease").unlink(missing_ok=True)
        self.held.discard(part)

    def renew(self) -> None:
        """Say that this worker lives, a few times in the time of a lease; parts that were taken are held no more."""
        now_s = monotonic()
        if now_s - self._renewed_s < self._lease_s / RENEWALS:
            return
        self._renewed_s = now_s
        self._beat.write_bytes(b".")
        self.held = {part for part in self.held if self._owner(part) == self.worker}

    def release(self) -> None:
        """Give back what is not finished, for others to take at once."""
        for part in sorted(self.held):
            if self._owner(part) == self.worker:
                self._mark_lost(part)
        self.held.clear()
        self._beat.unlink(missing_ok=True)

    @property
    def all_done(self) -> bool:
        names = set(os.listdir(self._folder))
        return all(f"{_stem(part)}.done" in names for part in range(self._parts))

    def _create(self, part: int) -> bool:
        try:
            file = os.open(self._folder / f"{_stem(part)}.lease", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(file, "w") as stream:
            stream.write(self.worker)
        return True

    def _take_back(self, part: int) -> bool:
        """Whether the part is free now, since its holder lives no more."""
        owner = self._owner(part)
        if owner == self.worker or not self._is_gone(owner, part):
            return False
        return self._mark_lost(part)

    def _is_gone(self, owner: str | None, part: int) -> bool:
        """Nothing was heard of the owner for the time of a lease, by the file system's own clock. A lease whose owner
        is not written yet, or who never wrote, is as old as its file."""
        self._beat.write_bytes(b".")
        now_s = self._beat.stat().st_mtime
        for file in ([self._folder / f"{owner}.beat"] if owner else []) + [self._folder / f"{_stem(part)}.lease"]:
            with suppress(FileNotFoundError):
                return now_s - file.stat().st_mtime > self._lease_s
        return False  # it was finished or taken this moment

    def _mark_lost(self, part: int) -> bool:
        """Take the lease off; one of several that try has done it."""
        try:
            name = _stem(part)
            os.rename(self._folder / f"{name}.lease", self._folder / f"{name}.lost-{uuid.uuid4().hex[:8]}")
        except FileNotFoundError:
            return False
        return True

    def _owner(self, part: int) -> str | None:
        try:
            return (self._folder / f"{_stem(part)}.lease").read_text() or None
        except FileNotFoundError:
            return None


def _stem(part: int) -> str:
    return f"{part:07d}"


class LeasedRows:
    """The rows of leased parts; `recorded` is called with the lines that are on the disk, so that parts are
    finished."""

    def __init__(
        self, source: BatchInput, checked: CheckedInput, book: LeaseBook, shards: Callable[[], Sequence[Path]]
    ) -> None:
        self._source, self._checked, self._book, self._shards = source, checked, book, shards
        self._open: dict[int, set[int]] = {}  # lines of a part that are given out and not on the disk
        self._given: set[int] = set()  # parts of which all rows are given out

    def rows(self) -> Iterator[BatchRow | BadRow | None]:
        """Rows of one part after another; None while all parts left are held by others."""
        while True:
            self._book.renew()
            claim = self._book.claim()
            if claim is None:
                if self._book.all_done:
                    return
                yield None
                continue
            part, taken_back = claim
            self._open[part] = set()
            for row in self._undone(part, taken_back):
                self._open[part].add(row.line)
                yield row
            self._given.add(part)
            self._finish_if_whole(part)

    def recorded(self, lines: Sequence[int]) -> None:
        """These are on the disk."""
        parts = {(line - 1) // self._checked.part_lines for line in lines}
        for line in lines:
            self._open.get((line - 1) // self._checked.part_lines, set()).discard(line)
        for part in parts:
            self._finish_if_whole(part)

    def _undone(self, part: int, taken_back: bool) -> Iterator[BatchRow | BadRow]:
        lines = self._checked.part_lines
        rows = self._source.part(self._checked.begins[part], part * lines + 1, lines)
        return undone_rows(rows, read_finished(self._shards(), cut=False)) if taken_back else rows

    def _finish_if_whole(self, part: int) -> None:
        if part in self._given and not self._open.get(part, ()):
            self._given.discard(part)
            self._open.pop(part, None)
            if part in self._book.held:
                self._book.finish(part)


def merge_shards(answers: Sequence[Path], errors: Sequence[Path], output: Path, output_errors: Path) -> None:
    """Write both files whole. A row with an answer is not among the errors; of two answers the first one counts.

    Eight bytes a row are kept in memory. Raises OSError.
    """
    answered = _keys(answers)
    _write(answers, output, _repeated(answered), frozenset())
    failed = _keys(errors)
    both = frozenset(np.intersect1d(answered, failed).tolist())
    _write(errors, output_errors, _repeated(failed), both)
    if not output_errors.stat().st_size:
        output_errors.unlink()


def _keys(shards: Sequence[Path]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    found = array("Q", (int(key[:16], 16) for key, _ in _lines(shards)))
    keys = np.frombuffer(found, dtype=np.uint64).copy() if found else np.empty(0, dtype=np.uint64)
    keys.sort()
    return keys


def _repeated(keys: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> frozenset[int]:
    return frozenset(keys[1:][keys[1:] == keys[:-1]].tolist()) if len(keys) > 1 else frozenset()


def _write(shards: Sequence[Path], place: Path, repeated: frozenset[int], left_out: frozenset[int]) -> None:
    beside = place.with_name(f".{place.name}.{os.getpid()}.merging")
    seen: set[bytes] = set()
    with beside.open("wb", buffering=_READ_BYTES) as stream:
        for key, line in _lines(shards):
            short = int(key[:16], 16)
            if short in left_out or key in seen:
                continue
            if short in repeated:
                seen.add(key)
            stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())
    move_whole(beside, place)


def _lines(shards: Sequence[Path]) -> Iterator[tuple[bytes, bytes]]:
    """(key, line) of all whole lines."""
    for shard in shards:
        with shard.open("rb", buffering=_READ_BYTES) as stream:
            for line in stream:
                key = line_key(line)
                if key is not None and line.endswith(b"\n"):
                    yield key, line
