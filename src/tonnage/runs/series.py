"""Figures over time in a run's folder: lines of JSON that a writer may have been killed in the middle of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from tonnage.runs.journal import CUT
from tonnage.runs.tail import last_lines
from tonnage.values import dataclass

_CUT: Final = CUT.encode()
WHOLE_BYTES: Final = 4 << 20  # a file of up to this is read whole
MOST_LINES: Final = 2000


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """One line's values, and the offset in bytes at which the next one begins."""

    values: dict[str, Any]
    end: int


def read_lines(path: Path, start: int = 0) -> Iterator[SeriesLine]:
    """Whole lines from an offset on, the oldest first; nothing where there is no file yet.

    A line without its end and one marked as cut are left out: no writer finished them. ValueError names a line in
    the middle that is not an object of JSON.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        at = start
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            at += len(raw)
            if raw.strip() and not raw.rstrip(b"\n").endswith(_CUT):
                yield SeriesLine(_parsed(raw, path, at - len(raw)), at)


@dataclass(frozen=True, slots=True)
class Thinned:
    """Lines of a file, evenly spread over it, and which share of its content they are (1: all of it)."""

    lines: tuple[dict[str, Any], ...]
    share: float


def thin_lines(path: Path, *, most: int = MOST_LINES) -> Thinned:
    """The lines of a file, or of a large one `most`, evenly spread, the first and the last among them.

    A run of a month writes hundreds of megabytes: to show its course not all of them need be read.
    """
    size = path.stat().st_size if path.exists() else 0
    if size <= WHOLE_BYTES or size <= most:
        return Thinned(tuple(line.values for line in read_lines(path)), 1.0)
    found: list[dict[str, Any]] = []
    read, after = 0, 0
    with path.open("rb", buffering=4096) as file:
        for part in range(most):
            file.seek(max(after, size * part // most))
            if part:
                file.readline()  # the end of a line, or a line left out
            raw = file.readline()
            after = file.tell()
            if raw.endswith(b"\n") and not raw.rstrip(b"\n").endswith(_CUT):
                found.append(_parsed(raw, path, after - len(raw)))
                read += len(raw)
    last = last_lines(path, 1)
    if last and not last[0].endswith(CUT):
        found.append(_parsed(last[0].encode(), path, size))
        read += len(last[0])
    return Thinned(tuple(found), read / size)


def _parsed(raw: bytes, path: Path, at: int) -> dict[str, Any]:
    try:
        values = from_json(raw)
    except ValueError as error:
        raise ValueError(f"{path}, byte {at}: not a line of JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}, byte {at}: not an object of JSON")
    return values
