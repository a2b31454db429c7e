"""The output of a batch: a file and its errors beside it, or objects of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from tonnage.batches.records import FileSink, Finished, LineSink, Record, read_finished
from tonnage.errors import InputError


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
        from tonnage.batches.object_output import ObjectOutput

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
        """The files are as they shall be."""

    def close(self) -> None:
        for record in self._records:
            record.close()
        if self._errors.exists() and not self._errors.stat().st_size:
            self._errors.unlink()
