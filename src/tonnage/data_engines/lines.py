"""Where rows with some values stand in a file of texts, for messages: line numbers, whichever engine found them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.comparison.door import looked_for
from tonnage.errors import DataError
from tonnage.preparing.spec import TableSource

FEW: Final = 3


def check_there(source: TableSource) -> None:
    """DataError where a source's file or folder is not there."""
    place = Path(source.location)
    if not place.exists():
        raise DataError(f"source '{source.name}': there is no {place}", hint=looked_for(place))
    if source.format == "parquet" and place.is_dir() and next(place.glob("*.parquet"), None) is None:
        raise DataError(
            f"source '{source.name}': {place} has no *.parquet", hint="name the folder of the files, or one"
        )


def places_of(source: TableSource, values: Mapping[str, Any]) -> str:
    """The lines of the first few rows that have these values (None: an empty cell); of other formats the file's name.

    Values are compared as texts, and as numbers where both are.
    """
    if source.format == "csv":
        numbered = _csv_rows(Path(source.location))
    elif source.format == "jsonl":
        numbered = _json_rows(Path(source.location))
    else:
        return source.location
    found = []
    for line, row in numbered:
        if all(_same(row.get(name), value) for name, value in values.items()):
            found.append(str(line))
            if len(found) == FEW:
                break
    lines = f"line{'s' if len(found) > 1 else ''} {', '.join(found)}" if found else "its line was not found again"
    return f"{source.location}, {lines}"


def _csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        before = 1
        for row in reader:
            yield before + 1, row
            before = reader.line_num


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: no JSON: {error}") from error
            if isinstance(row, dict):
                yield number, row


def _same(cell: Any, value: Any) -> bool:
    if value is None:
        return cell is None or cell == ""
    if cell is None:
        return False
    text = cell if isinstance(cell, str) else json.dumps(cell)
    if text == str(value):
        return True
    try:
        return float(text) == float(value)
    except (TypeError, ValueError):
        return False
