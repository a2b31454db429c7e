"""Files of measured facts cell by cell: what is written reads back as the same text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tonnage.calibration.columns import FACT_COLUMNS, KEPT_COLUMNS, FactTable, table_of
from tonnage.errors import InputError


def dump_facts(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """A header and one line a row, quoted only where it must be; the same bytes for the same rows."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return stream.getvalue()


def load_facts(path: Path) -> tuple[FactTable, list[dict[str, str]]]:
    """The rows of a file, and which table its columns are of. InputError names file, line and column."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, None)
            if not header:
                raise InputError(f"{path} is empty", hint="its first line names the columns of the facts")
            table = _table(path, header)
            return table, [_row(path, reader.line_num, header, cells) for cells in reader if cells]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check its name") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text", hint="save the table as CSV in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not readable as CSV: {error}") from error


def _table(path: Path, header: Sequence[str]) -> FactTable:
    table = table_of(set(header))
    twice = next((name for name in header if header.count(name) > 1), None)
    if table is None or twice is not None or "metric" not in header or "value" not in header:
        known = {name for columns in KEPT_COLUMNS.values() for name in columns}
        strange = next((name for name in header if name not in known), None)
        what = f"column '{twice}' stands twice" if twice else f"column '{strange}' is none of the facts"
        what = what if twice or strange else "columns 'metric' and 'value' of one table are needed"
        raise InputError(f"{path}, line 1: {what}", hint=f"columns: {','.join(FACT_COLUMNS['training'])}")
    return table


def _row(path: Path, line: int, header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(header):
        raise InputError(
            f"{path}, line {line}: {len(cells)} cells, but the header names {len(header)} columns",
            hint="quote a cell that holds a comma, and leave no column out",
        )
    return dict(zip(header, cells, strict=True))
