"""Where rows with some values are in a file of texts, for messages: line numbers, whichever engine found them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tonnage.errors import DataError
from tonnage.preparing.spec import TEXT_FORMATS, SourceFormat, TableSource
from tonnage.workload.file.text import looked_for

FEW: Final = 3
PATTERNS: Final[Mapping[SourceFormat, tuple[str, ...]]] = {  # of the files of a folder
    "csv": ("*.csv",), "jsonl": ("*.jsonl", "*.ndjson"), "parquet": ("*.parquet",),
}  # fmt: skip


def files_of(source: TableSource) -> list[Path]:
    """The files of a source that is a file or a folder, by name."""
    place = Path(source.location)
    if not place.is_dir():
        return [place]
    return sorted(one for pattern in PATTERNS[source.format] for one in place.glob(pattern) if one.name[0] not in "._")


def check_there(source: TableSource) -> None:
    """DataError where a source's file or folder is not there."""
    place = Path(source.location)
    if not place.exists():
        raise DataError(f"source '{source.name}': there is no {place}", hint=looked_for(place))
    if source.format in PATTERNS and place.is_dir() and not files_of(source):
        patterns = " or ".join(PATTERNS[source.format])
        hint = "name the folder of the files, or one; `format` says what they are"
        raise DataError(f"source '{source.name}': {place} has no {patterns}", hint=hint)


def places_of(source: TableSource, values: Mapping[str, Any]) -> str:
    """The lines of the first few rows that have these values (None: an empty cell); of other formats the file's name.

    Values are compared as texts, and as numbers where both are.
    """
    if source.format not in TEXT_FORMATS:
        return source.location
    read = _csv_rows if source.format == "csv" else _json_rows
    found: dict[Path, list[str]] = {}
    left = FEW
    for file in files_of(source):
        same = (line for line, row in read(file) if all(_same(row.get(name), one) for name, one in values.items()))
        for line in islice(same, left):
            found.setdefault(file, []).append(str(line))
            left -= 1
        if not left:
            break
    if not found:
        return f"{source.location}, its line was not found again"
    return "; ".join(f"{file}, line{'s' if len(one) > 1 else ''} {', '.join(one)}" for file, one in found.items())


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
