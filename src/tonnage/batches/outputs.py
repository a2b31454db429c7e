"""The output of a batch: a file and its errors beside it, or objects of a store.

A store cannot append: its parts are made whole and only once, and joined at the end.
`OUT.parts/0000001.jsonl` and so on are the record: part n is made under the condition that there is no part n, so that
of two writers that know the same n-1 parts one goes on and the other is stopped. A kill leaves a part or none of it.
They hold answers and faults together. At the end an empty part, the seal, stops writers that are late; OUT and
OUT.errors.jsonl are written whole from all parts, each row once; then all parts before the seal are deleted. A kill on
that way leaves parts and their seal: they are joined again before anything is written behind it. So where parts are
behind a seal, what precedes it is in the joined objects, or is of a writer that slept since: it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from tonnage.batches.objects import ObjectChanged, ObjectStore, open_object
from tonnage.batches.records import FileSink, Finished, FoundLines, LineSink, Record, is_answer, line_key, read_finished
from tonnage.errors import InputError, TonnageError
from tonnage.values import dataclass

JOIN_TRIES: Final = 5
GATHER_S: Final = 2.0  # a part is made after this time, or once 2,048 lines wait
BLOCK_BYTES: Final = 2**20
Keys = np.ndarray[Any, np.dtype[np.uint64]]


class BatchOutput(LineSink, Protocol):
    """The answers of a batch and its faults, as one process writes them."""

    shown: str
    errors_shown: str

    def alone(self) -> AbstractContextManager[None]:
        """Keep other writers away, as far as that can be known beforehand; InputError where one is at work."""

    def forget_errors(self) -> None:
        """Rows that failed are to be asked again."""

    def finished(self) -> Finished:
        """What is recorded already; what is written afterwards goes behind it."""

    def open(self) -> None:
        """Make ready for `write`; InputError where that cannot be."""

    def finish(self) -> None:
        """All rows are recorded: bring the output into its last form."""

    def close(self) -> None: ...


def open_output(text: Path | str) -> BatchOutput:
    """The output of that name; InputError where there can be none."""
    from tonnage.batches.objects import is_object_url, open_store

    if isinstance(text, str) and is_object_url(text):
        return ObjectOutput(*open_store(text), shown=text)
    return FileOutput(Path(text))


class FileOutput:
    """Two local files that lines are appended to."""

    gather_s = 0.0

    def __init__(self, place: Path) -> None:
        self._answers, self._errors = place, place.with_name(place.name + ".errors.jsonl")
        self.shown, self.errors_shown = str(self._answers), str(self._errors)
        self._records: tuple[Record, ...] = ()

    @contextmanager
    def alone(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        place = self._answers
        if not place.parent.is_dir():
            raise InputError(f"{place.parent} is not a folder", hint="make it first, or name another output")
        lock = FileLock(place.with_name(f".{place.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise InputError(f"another process writes {place}", hint="wait for it, or name another output") from error
        except OSError as error:
            raise InputError(f"{place} cannot be written: {error.strerror}", hint="name another output file") from error
        try:
            yield
        finally:
            lock.release()

    def forget_errors(self) -> None:
        self._errors.unlink(missing_ok=True)

    def finished(self) -> Finished:
        return read_finished((self._answers, self._errors), cut=True)

    def open(self) -> None:
        self._records = (Record(self._answers), Record(self._errors))

    def write(self, answers: Sequence[bytes], faults: Sequence[bytes]) -> None:
        FileSink(*self._records).write(answers, faults)

    def finish(self) -> None:
        """Bring the files into their final state."""

    def close(self) -> None:
        for record in self._records:
            record.close()
        if self._errors.exists() and not self._errors.stat().st_size:
            self._errors.unlink()


class ObjectOutput:
    """One output. `finished` is called before the first `write`."""

    def __init__(self, store: ObjectStore, key: str, *, shown: str, gather_s: float = GATHER_S) -> None:
        self._store, self._answers, self._errors = store, key, f"{key}.errors.jsonl"
        self._parts = f"{key}.parts/"
        self.shown, self.errors_shown, self.gather_s = shown, f"{shown}.errors.jsonl", gather_s
        self._next = 1

    def alone(self) -> nullcontext[None]:
        """Nothing tells of other writers before the first part is made."""
        return nullcontext()

    def forget_errors(self) -> None:
        """Join what is there without its faults."""
        live = self._live()
        self._next = live.next_number
        if live.parts:
            self._join(with_errors=False)
        self._store.delete([self._errors])

    def finished(self) -> Finished:
        """What joined objects and parts hold, each row once. A joining that was killed is done first."""
        live = self._live()
        if live.sealed and len(live.parts) > 1:
            self._join(with_errors=True)
            live = self._live()
        self._next = live.next_number
        found = FoundLines()
        for key in (self._answers, self._errors, *live.parts):
            found.read(self._lines(key), self._shown(key))
        return found.finished()

    def open(self) -> None:
        """Objects are made as they are written."""

    def write(self, answers: Sequence[bytes], faults: Sequence[bytes]) -> None:
        part, data = f"{self._parts}{self._next:07d}.jsonl", b"".join((*answers, *faults))
        if not self._store.create(part, data) and self._content(part) != data:  # equal: our own, its answer was lost
            raise TonnageError(
                f"another process writes {self.shown}: this one stops",
                hint="rows that it was answered in the last seconds are asked again when the batch goes on",
            )
        self._next += 1

    def finish(self) -> None:
        self._join(with_errors=True)

    def close(self) -> None:
        """Nothing is kept open."""

    # joining

    def _join(self, *, with_errors: bool) -> None:
        """Write the joined objects, then delete the parts; again from the start where another process joins too."""
        for _ in range(JOIN_TRIES):
            live = self._live()
            if not live.sealed:
                self.write((), ())
                live = self._live()
            try:
                self._join_one(self._answers, live.parts, is_answer, always=True)
                if with_errors:
                    self._join_one(self._errors, live.parts, lambda line: not is_answer(line), always=False)
            except ObjectChanged:
                continue
            self._store.delete([*live.late, *live.parts[:-1]])
            return
        raise TonnageError(f"another process joins {self.shown} too", hint="the same command goes on")

    def _join_one(self, key: str, parts: Sequence[str], wanted: Callable[[bytes], bool], *, always: bool) -> None:
        """Write one object again: what it holds, and the wanted lines of the parts that it does not hold."""
        state = self._store.look(key)
        found = FoundLines()
        found.read(self._lines(key), self._shown(key))
        keys = found.finished().keys
        fresh = (line for part in parts for line in _unknown(self._lines(part, must=True), keys) if wanted(line))
        first = next(fresh, None)
        if first is None and (state is not None or not always):
            return

        def all_lines() -> Iterator[bytes]:
            if state is not None:
                yield from open_object(self._store, key, state, shown=self._shown(key))
            if first is not None:
                yield first
                yield from fresh

        self._store.replace(key, _blocks(all_lines()), None if state is None else state.version)

    # reading

    def _live(self) -> _Live:
        sizes = {key: size for key, size in self._store.sizes(self._parts).items() if key.endswith(".jsonl")}
        parts = list(sizes)
        seals = [at for at, part in enumerate(parts) if not sizes[part]]
        sealed = bool(seals) and seals[-1] == len(parts) - 1
        before = seals[:-1] if sealed else seals
        begin = before[-1] + 1 if before else 0
        last = int(parts[-1].removeprefix(self._parts).partition(".")[0]) if parts else 0
        return _Live(parts=parts[begin:], late=parts[:begin], sealed=sealed, next_number=last + 1)

    def _lines(self, key: str, *, must: bool = False) -> Iterator[bytes]:
        """None of an object that is not there; `must`: ObjectChanged then."""
        state = self._store.look(key)
        if state is not None:
            with open_object(self._store, key, state, shown=self._shown(key)) as stream:
                yield from stream
        elif must:
            raise ObjectChanged

    def _content(self, key: str) -> bytes:
        return b"".join(self._lines(key))

    def _shown(self, key: str) -> str:
        return self.shown + key.removeprefix(self._answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """The parts that count, the seal among them where `sealed`; `late`: what does not count."""

    parts: Sequence[str]
    late: Sequence[str]
    sealed: bool
    next_number: int


def _unknown(lines: Iterator[bytes], known: Keys) -> Iterator[bytes]:
    """Lines whose key is not among those, which are sorted; what is no line of a batch passes."""
    if not len(known):
        yield from lines
        return
    for line in lines:
        key = line_key(line)
        short = None if key is None else np.uint64(int(key[:16], 16))
        if short is not None:
            place = int(np.searchsorted(known, short))
            if place < len(known) and known[place] == short:
                continue
        yield line


def _blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces."""
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
