"""The finished model of a run over any number of rows: one line of JSON each, in order, gone on with after a kill.

Rows are read, answered and written some thousands at a time, so memory does not grow with the file. The model is
called directly rather than through a transformers pipeline: rows are sorted by length inside what is held, so that
little is padded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tonnage.errors import InputError, TonnageError, did_you_mean, nearest
from tonnage.files import move_whole, sync, write_whole
from tonnage.recipes.answering import Answerer, PlacedRow, make_answerer
from tonnage.recipes.data.reading import stream_json, stream_rows
from tonnage.recipes.judging import default_batch, source_of, with_columns
from tonnage.recipes.out_of_memory import is_out_of_memory, release_memory
from tonnage.recipes.trained import Trained, finished_folder, load_finished
from tonnage.runs.folder import RunFolder
from tonnage.runs.locations import files_at, is_remote
from tonnage.runs.spec import DataSource, Device
from tonnage.values import dataclass

STDIN: Final = "-"
OWN_KEYS: Final = frozenset({"row", "id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest:
    """What is to be answered, and how."""

    data: str  # a file, a pattern, a URL, hf://name, or `-`
    out: Path
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> column, where it has another name here
    keep: Mapping[str, str] = field(default_factory=dict)  # column -> the key it has in the answers
    batch: int | None = None
    limit: int | None = None
    max_new_tokens: int = 64
    device: Device = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of it."""

    rows: int  # lines of the file
    resumed_at: int  # rows that an earlier attempt had answered
    seconds: float  # of answering, without loading the model
    device: str
    thrown_away: bool  # a part of another model, other rows or settings was there

    @property
    def rows_per_s(self) -> float | None:
        new = self.rows - self.resumed_at
        return new / self.seconds if new and self.seconds > 0 else None


def predict(folder: RunFolder, asked: PredictionRequest, *, progress: Callable[[int, float | None], None]) -> Answered:
    """Answer every row of `asked.data` into `asked.out`. `progress` is called with the rows done and their rate per
    second.

    InputError for an unfinished run, a file without rows, a missing column, an output that cannot be written.
    """
    finished_folder(folder)
    spec = with_columns(folder.spec(), asked.columns)
    source = None if asked.data == STDIN else source_of(asked.data)
    identity = None if source is None else _identity(folder, asked, source)
    if identity is not None and any(asked.out.resolve() == Path(file[0]).resolve() for file in identity["files"]):
        raise InputError(f"{asked.out} is what is read", hint="write the answers to another file")
    with Output(asked.out, identity) as output, closing(_rows(source, asked.limit)) as rows:
        first = next(rows, None)
        if first is None:
            raise InputError(f"{asked.data}: has no rows", hint="there is nothing to answer")
        _check_kept(first, asked.keep)
        trained = load_finished(folder, device=asked.device, spec=spec)
        answerer = make_answerer(trained, max_new_tokens=asked.max_new_tokens)
        _check_names(answerer, asked.keep)
        work = _Work(trained, answerer, asked, output, progress)
        resumed_at = output.done
        seconds = work.through(_chained(first, rows))
        output.finish()
        return Answered(
            rows=output.done,
            resumed_at=resumed_at,
            seconds=seconds,
            device=trained.device,
            thrown_away=output.thrown_away,
        )


class _Work:
    """Some rows after the other."""

    def __init__(
        self, trained: Trained, answerer: Answerer, asked: PredictionRequest, output: Output,
        progress: Callable[[int, float | None], None],
    ) -> None:  # fmt: skip
        self._trained, self._answerer, self._asked = trained, answerer, asked
        self._output, self._progress = output, progress
        self._batch = asked.batch or default_batch(trained)
        self._held = self._batch * answerer.batches

    def through(self, rows: Iterator[PlacedRow]) -> float:
        """All rows that have no answer yet; seconds taken.

        What was held when an earlier attempt was killed is held again: the same rows are padded together, and the
        file has the same bytes as that of an attempt that was never killed.
        """
        began, known = time.monotonic(), self._output.done
        position = known - known % self._held
        skipped = sum(1 for _ in islice(rows, position))
        if skipped < position:
            raise InputError(f"{self._asked.data} has fewer rows than were answered", hint="remove the .part file")
        self._progress(known, None)
        while some := list(islice(rows, self._held)):
            answers = self._answers(some)
            lines = [
                self._line(position + at, row, answer)
                for at, ((_, row), answer) in enumerate(zip(some, answers, strict=True), start=1)
            ]
            position += len(some)
            self._output.write(lines[max(0, self._output.done - position + len(some)) :])
            self._progress(self._output.done, (self._output.done - known) / (time.monotonic() - began))
        return time.monotonic() - began

    def _answers(self, rows: Sequence[PlacedRow]) -> list[dict[str, Any]]:
        """Where memory runs out, half as many at once, from now on."""
        while True:
            try:
                with self._trained.arithmetic():
                    return self._answerer.answer(rows, self._batch)
            except (MemoryError, RuntimeError) as error:
                if self._batch == 1 or not is_out_of_memory(error):
                    raise
            self._batch //= 2
            release_memory(self._trained.device == "cuda")

    def _line(self, number: int, row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        own = {"row": number} | ({"id": _plain(row["id"])} if "id" in row else {})
        return {**own, **{name: _plain(row.get(column)) for column, name in self._asked.keep.items()}, **answer}


def _rows(source: DataSource | None, limit: int | None) -> Generator[PlacedRow]:
    found = stream_json(sys.stdin.buffer, "stdin") if source is None else stream_rows(source)
    yield from islice(found, limit)


def _chained(first: PlacedRow, rest: Iterator[PlacedRow]) -> Iterator[PlacedRow]:
    yield first
    yield from rest


def _check_kept(first: PlacedRow, keep: Mapping[str, str]) -> None:
    where, row = first
    for column in keep:
        if column not in row:
            close = did_you_mean(nearest(column, sorted(row)), f"columns: {', '.join(sorted(row)[:20])}")
            raise InputError(f"{where}: there is no column '{column}' to keep", hint=close)


def _check_names(answerer: Answerer, keep: Mapping[str, str]) -> None:
    for column, name in keep.items():
        if name in answerer.keys | OWN_KEYS and (column, name) != ("id", "id"):
            hint = f"`--keep {column}=OTHER` gives it another name"
            raise InputError(f"a kept column cannot be named '{name}': answers have that key", hint=hint)


def _identity(folder: RunFolder, asked: PredictionRequest, source: DataSource) -> dict[str, Any]:
    """What the answers follow from. A local file is known by its size and the time it was changed."""
    result = folder.result_file
    files = () if source.format == "hf" or is_remote(source.location) else files_at(source.location)
    return {
        "run": str(folder.path.resolve()),
        "result": hashlib.sha256(result.read_bytes()).hexdigest() if result.exists() else None,
        "data": source.location,
        "files": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files],
        "columns": dict(asked.columns),
        "keep": dict(asked.keep),
        "batch": asked.batch,
        "max_new_tokens": asked.max_new_tokens,
        "device": asked.device,
    }


def _plain(value: Any) -> Any:
    """JSON has no word for what is not a finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Identity = Mapping[str, Any]


class Output:
    """`with Output(path, identity) as output`: `done` lines are there already; `finish` puts the file in its place.

    `identity` is what the answers follow from: those of another model, other rows or settings are thrown away.
    The part itself is locked (`fcntl`), so that no lock file stays beside what the user named.
    """

    def __init__(self, path: Path, identity: Identity | None) -> None:
        self.path, self._identity = path, identity
        self._part = path.with_name(f"{path.name}.part")
        self._about = path.with_name(f"{path.name}.part.json")
        self.done = 0
        self.thrown_away = False  # an earlier part that was of something else

    def __enter__(self) -> Self:
        _check(self.path)
        try:
            self._file = open(self._part, "a+b")  # closed on leaving
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._go_on()
        except BlockingIOError as error:
            self._file.close()
            hint = "let it end, or write to another file"
            raise InputError(f"another process writes {self._part}", hint=hint) from error
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}", hint="name another file") from error
        return self

    def _go_on(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        same = self._identity is not None and _read(self._about) == dict(self._identity)
        self.thrown_away = size > 0 and not same
        self._file.seek(0)
        whole = 0
        if same:
            for line in self._file:
                if line.endswith(b"\n"):
                    self.done, whole = self.done + 1, whole + len(line)
        self._file.truncate(whole)
        if self._identity is not None and not same:
            write_whole(self._about, json.dumps(dict(self._identity), indent=1) + "\n")

    def write(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Append some lines in one write."""
        text = "".join(json.dumps(one, ensure_ascii=False, default=str, allow_nan=False) + "\n" for one in answers)
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            hint = f"make room; what was written stays in {self._part}"
            raise TonnageError(f"{self._part} cannot be written: {error.strerror}", hint=hint) from error
        self.done += len(answers)

    def finish(self) -> None:
        """All lines are written: onto the disk, then into place."""
        sync(self._part)
        move_whole(self._part, self.path)
        self._about.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self.done == 0 or self._identity is None:  # nothing that could be gone on with
            self._part.unlink(missing_ok=True)
            self._about.unlink(missing_ok=True)


def _check(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint="name a file: --out answers.jsonl")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} is not there", hint="make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path} may not be written", hint="name another file")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
