"""One CSV row read with its whereabouts, so that every complaint names file, line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from importlib.resources.abc import Traversable
from math import isfinite
from pathlib import Path
from typing import NoReturn

from tonnage.catalog.hardware import Source
from tonnage.errors import CatalogError


@dataclass(slots=True)
class Row:
    """The cells of one line by column name. Every reader raises CatalogError on a cell it cannot use."""

    file: str
    line: int
    cells: dict[str, str]

    def fail(self, column: str, why: str) -> NoReturn:
        """Raise CatalogError for `column` of this row."""
        raise CatalogError(
            f"column '{column}': {why}",
            hint="correct the cell, or rebuild the snapshot from its source",
            where=f"{self.file}, line {self.line}",
        )

    def text(self, column: str) -> str:
        """The cell, which must not be blank."""
        value = self.cells[column]
        if not value:
            self.fail(column, "is blank")
        return value

    def number(self, column: str, low: float, high: float) -> float | None:
        """A figure in [low, high]; None when blank."""
        value = self.cells[column]
        if not value:
            return None
        try:
            figure = float(value)
        except ValueError:
            self.fail(column, f"'{value}' is not a number")
        if not (isfinite(figure) and low <= figure <= high):
            self.fail(column, f"{value} is outside {low:g} to {high:g}; is the unit right?")
        return figure

    def required(self, column: str, low: float, high: float) -> float:
        """A figure in [low, high] that must be there."""
        figure = self.number(column, low, high)
        if figure is None:
            self.fail(column, "is blank")
        return figure

    def price(self, column: str, high: float, *, per: str = "an hour") -> Decimal:
        """A price above zero, kept as printed."""
        value = self.text(column)
        try:
            amount = Decimal(value)
        except InvalidOperation:
            self.fail(column, f"'{value}' is not a price")
        if not amount.is_finite() or amount <= 0:
            self.fail(column, f"{value} is not above zero; leave a price that is not known out")
        if amount > high:
            self.fail(column, f"{value} is above {high:g} USD {per}: a sentinel or a wrong unit")
        return amount

    def one_of(self, column: str, allowed: Sequence[str]) -> str:
        """The cell, which must be one of `allowed`."""
        value = self.cells[column]
        if value not in allowed:
            self.fail(column, f"'{value}' is not one of {', '.join(allowed)}")
        return value

    def day(self, column: str) -> date | None:
        """An ISO date; None when blank."""
        value = self.cells[column]
        if not value:
            return None
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(column, f"'{value}' is not a date such as 2026-11-20")

    def source(self) -> Source:
        """`source` and `read_on` together."""
        return Source(text=self.text("source"), read_on=self.day("read_on"))


def read_rows(path: Traversable | Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a UTF-8 CSV file with exactly `columns`, or those and then `optional`; raises CatalogError on
    anything else."""
    name = path.name
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise CatalogError(
            f"{path} does not exist", hint="a snapshot folder holds snapshot.toml, instances.csv, offers.csv"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path} cannot be read: {error}") from error
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        header = next(reader, [])
        if header not in ([*columns], [*columns, *optional]):
            _bad_header(name, [column for column in header if column not in optional], columns)
        for cells in reader:
            if len(cells) != len(header):
                raise CatalogError(f"{name}, line {reader.line_num}: {len(cells)} cells, expected {len(header)}")
            yield Row(name, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise CatalogError(f"{name}, line {reader.line_num}: not CSV ({error})") from error


def _bad_header(name: str, header: list[str], columns: Sequence[str]) -> NoReturn:
    missing = [column for column in columns if column not in header]
    extra = [column for column in header if column not in columns]
    problems = [f"column '{column}' is missing" for column in missing]
    problems += [f"column '{column}' is not known" for column in extra]
    raise CatalogError(
        f"{name}, line 1: {'; '.join(problems) or 'the columns are in another order'}",
        hint=f"the header is {','.join(columns)}",
    )
