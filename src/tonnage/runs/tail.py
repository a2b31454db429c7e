"""Read what is appended to a file, whole lines only, as often as one likes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.runs.journal import CUT, Event, parse_event


class Tail:
    """Where reading has come to in one file."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self._path = path
        self.offset = offset  # bytes

    def lines(self) -> list[str]:
        """Whole lines since the last call; none where the file is not there yet."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self.offset:  # a new file in its place
                    self.offset = 0
                file.seek(self.offset)
                block = file.read()
        except FileNotFoundError:
            return []
        whole = block[: block.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.decode("utf-8", errors="replace").split("\n")[:-1]

    def events(self) -> Iterator[Event]:
        """The same, as events of a journal; lines cut off by a kill, or unreadable lines, are left out."""
        for line in self.lines():
            if line and not line.endswith(CUT):
                with contextlib.suppress(ValueError, KeyError, AttributeError, TypeError):
                    yield parse_event(line)

    def values(self) -> Iterator[dict[str, Any]]:
        """The same, as objects of a metrics or samples file."""
        for line in self.lines():
            if line and not line.endswith(CUT):
                with contextlib.suppress(ValueError):
                    values = json.loads(line)
                    if isinstance(values, dict):
                        yield values


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` whole lines of a file, read from its end; none where it is not there."""
    block, _ = _end_of(path, count)
    return block.decode("utf-8", errors="replace").split("\n")[:-1]


def newest_values(path: Path) -> dict[str, Any]:
    """The newest whole object of a metrics or samples file; empty where there is none.

    A line that a kill cut is passed over.
    """
    for line in reversed(last_lines(path, 3)):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return {}


def offset_of_last_lines(path: Path, count: int) -> int:
    """Where they begin, in bytes."""
    return _end_of(path, count)[1]


def _end_of(path: Path, count: int) -> tuple[bytes, int]:
    """The bytes of the last whole lines, and where they begin."""
    try:
        with path.open("rb") as file:
            start = file.seek(0, 2)
            block = b""
            while start > 0 and block.count(b"\n") <= count:
                size = min(65536, start)
                start -= size
                file.seek(start)
                block = file.read(size) + block
    except FileNotFoundError:
        return b"", 0
    whole = block[: block.rfind(b"\n") + 1]
    kept = b"".join(whole.splitlines(keepends=True)[-count:]) if count else b""
    return kept, start + len(whole) - len(kept)
