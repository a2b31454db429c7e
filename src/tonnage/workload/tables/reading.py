"""Read a table from CSV or from a JSON list: known columns only, numbers in bounds, nothing converted silently."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from tonnage.errors import WorkloadError, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.file.text import load_text

LARGEST_MB: Final = 16
MOST_ROWS: Final = 100_000
Kind = Literal["text", "number", "date"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumn:
    """One column: what it holds. `required`: no row may leave it empty. Bounds are inclusive."""

    name: str
    kind: Kind = "text"
    required: bool = False
    minimum: float = 0.0
    maximum: float = math.inf
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputRow:
    """One row and its line (in JSON: its place from 1). An empty cell is None."""

    line: int
    values: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        return None if value is None else float(value)

    def day(self, name: str) -> date | None:
        value = self.values.get(name)
        return value if isinstance(value, date) else None


def load_table(path: Path | str, columns: Sequence[InputColumn]) -> list[InputRow]:
    """The rows of a `.csv` or `.json` file. WorkloadError names file, line and column of what cannot be used."""
    path = Path(path)
    text = load_text(path, largest_mb=LARGEST_MB, too_large="split the table")
    return parse_table(text, columns, file=str(path), form="json" if path.suffix.lower() == ".json" else "csv")


def parse_table(
    text: str, columns: Sequence[InputColumn], *, file: str | None, form: Literal["csv", "json"]
) -> list[InputRow]:
    """The rows of a text."""
    reader = _RowReader({column.name: column for column in columns}, file)
    rows = reader.from_json(text) if form == "json" else reader.from_csv(text)
    if not rows:
        raise WorkloadError("holds no row", hint=f"columns: {', '.join(reader.columns)}", file=file)
    return rows


class _RowReader:
    def __init__(self, columns: Mapping[str, InputColumn], file: str | None) -> None:
        self.columns, self.file = columns, file

    def refuse(self, message: str, *, line: int | None = None, column: str | None = None, hint: str = "") -> NoReturn:
        raise WorkloadError(message, hint=hint or None, file=self.file, line=line, key=column)

    def from_csv(self, text: str) -> list[InputRow]:
        # Comment lines keep their place, so that line numbers are those of the file.
        lines = ["" if line.lstrip().startswith("#") else line for line in text.splitlines()]
        table = csv.reader(io.StringIO("\n".join(lines)))
        names: list[str] | None = None
        rows = []
        try:
            for cells in table:
                if not any(cell.strip() for cell in cells):
                    continue
                if names is None:
                    names = [cell.strip() for cell in cells]
                    self.check_names(names, table.line_num)
                    continue
                if len(cells) != len(names):
                    self.refuse(
                        f"has {len(cells)} cells, expected {len(names)}", line=table.line_num, hint="one a column"
                    )
                found = {name: cell.strip() or None for name, cell in zip(names, cells, strict=True)}
                rows.append(self.row(found, table.line_num))
                if len(rows) > MOST_ROWS:
                    self.refuse(f"holds over {MOST_ROWS:,} rows", hint="split the table")
        except csv.Error as error:
            self.refuse(f"not valid CSV: {error}", line=table.line_num, hint="check quotes and separators")
        if names is None:
            self.refuse("is empty", hint=f"columns: {', '.join(self.columns)}")
        return rows

    def from_json(self, text: str) -> list[InputRow]:
        try:
            value = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            self.refuse(f"not valid JSON: {error}", line=getattr(error, "lineno", None), hint="a list of objects")
        if not isinstance(value, list) or len(value) > MOST_ROWS:
            self.refuse("is not a list of rows", hint="a list of objects, one for each row")
        rows = []
        for place, entry in enumerate(value, start=1):
            if not isinstance(entry, dict):
                self.refuse("is not an object of columns and values", line=place)
            self.check_names(list(entry), place)
            rows.append(self.row(entry, place))
        return rows

    def check_names(self, names: Sequence[str], line: int) -> None:
        for name in names:
            if name not in self.columns:
                known = f"known: {', '.join(self.columns)}"
                hint = did_you_mean(nearest(name, self.columns, count=1), known)
                self.refuse("is no column known here", line=line, column=name, hint=hint)
            if list(names).count(name) > 1:
                self.refuse("is given twice", line=line, column=name, hint="keep one of them")
        for column in self.columns.values():
            if column.required and column.name not in names:
                self.refuse("is missing", line=line, column=column.name, hint=f"columns: {', '.join(self.columns)}")

    def row(self, found: Mapping[str, Any], line: int) -> InputRow:
        return InputRow(line, {name: self.cell(self.columns[name], value, line) for name, value in found.items()})

    def cell(self, column: InputColumn, value: Any, line: int) -> Any:
        if value is None or value == "":
            if column.required:
                self.refuse("is empty", line=line, column=column.name, hint="every row needs it")
            return None
        if column.kind == "number":
            return self.number(column, value, line)
        if not isinstance(value, str):
            self.refuse(f"found {value!r}, expected text", line=line, column=column.name)
        if column.kind == "date":
            try:
                return date.fromisoformat(value)
            except ValueError:
                self.refuse(
                    f"found {value!r}, expected a date", line=line, column=column.name, hint="such as 2026-11-20"
                )
        if column.choices and value not in column.choices:
            hint = did_you_mean(nearest(value, column.choices, count=1), f"one of {', '.join(column.choices)}")
            self.refuse(f"found {value!r}", line=line, column=column.name, hint=hint)
        return value

    def number(self, column: InputColumn, value: Any, line: int) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            hint = "digits only, such as 12.5; leave the cell empty where nothing was measured"
            self.refuse(f"found {str(value)[:60]!r}, expected a number", line=line, column=column.name, hint=hint)
        if not column.minimum <= number <= column.maximum:
            bounds = (
                f"{column.minimum:g} or more"
                if math.isinf(column.maximum)
                else f"{column.minimum:g} to {column.maximum:g}"
            )
            self.refuse(f"found {number:g}, expected {bounds}", line=line, column=column.name)
        return number
