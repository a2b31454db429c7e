"""Figures over time in a run's folder: lines of JSON that a writer may have been killed in the middle of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tonnage.runs.journal import CUT

_CUT: Final = CUT.encode()


@dataclass(frozen=True, slots=True)
class Line:
    """One line's values, and the offset in bytes at which the next one begins."""

    values: dict[str, Any]
    end: int


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
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
                yield Line(_parsed(raw, path, at - len(raw)), at)


def _parsed(raw: bytes, path: Path, at: int) -> dict[str, Any]:
    try:
        values = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"{path}, byte {at}: not a line of JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}, byte {at}: not an object of JSON")
    return values
