"""Rows in memory, column by column, each knowing the file and line it came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from tonnage.errors import DataError, did_you_mean, nearest
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Rows from `first` (a position) on come from `name`; `lines` holds their line numbers, where it has lines."""

    first: int
    name: str
    lines: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Columns of equal length. A value that a row does not have is None."""

    columns: Mapping[str, Sequence[Any]]
    places: tuple[RowOrigin, ...] = ()
    name: str = "the data"
    seen: frozenset[str] = frozenset()  # every column there was, also those not kept
    positions: Sequence[int] | None = None  # of a part: the original position of each row

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, name: str, role: str) -> Sequence[Any]:
        """One column. DataError names those most like it where there is none."""
        if name not in self.columns:
            known = sorted(self.seen)
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            close = did_you_mean(nearest(name, known), f"columns: {listed}; `run.data.columns` says which plays a role")
            raise DataError(f"{self.name} has no column '{name}' (for {role})", hint=close)
        return self.columns[name]

    def where(self, position: int) -> str:
        """File and line of a row, as an error message names it."""
        at = self.positions[position] if self.positions is not None else position
        if not self.places:
            return f"{self.name}, row {at + 1}"
        place = self.places[bisect_right([place.first for place in self.places], at) - 1]
        inside = at - place.first
        return f"{place.name}:{place.lines[inside]}" if place.lines is not None else f"{place.name}, row {inside + 1}"

    def part(self, positions: Sequence[int], name: str) -> DatasetRows:
        """Some of the rows, in the order given."""
        columns = {key: [values[at] for at in positions] for key, values in self.columns.items()}
        before = self.positions
        origin = [before[at] for at in positions] if before is not None else list(positions)
        return DatasetRows(columns, self.places, name, self.seen, origin)


@dataclass(slots=True)
class RowsBuilder:
    """Collects rows; only columns in `wanted` are kept (None: all)."""

    name: str
    wanted: frozenset[str] | None
    columns: dict[str, list[Any]] = field(default_factory=dict)
    places: list[RowOrigin] = field(default_factory=list)
    seen: dict[str, None] = field(default_factory=dict)
    count: int = 0

    def read(self, name: str, rows: Iterable[tuple[int | None, Mapping[str, Any]]]) -> None:
        """Add the (line, row) pairs of one file."""
        lines: list[int] = []
        self.places.append(RowOrigin(self.count, name, lines))
        for line, row in rows:
            self._add(row)
            if line is not None:
                lines.append(line)
        if not lines:
            self.places[-1] = RowOrigin(self.places[-1].first, name, None)

    def _add(self, row: Mapping[str, Any]) -> None:
        if row.keys() != self.seen.keys():
            for key in self._new(row):
                self.seen[key] = None
                if self.wanted is None or key in self.wanted:
                    self.columns[key] = [None] * self.count
        for key, values in self.columns.items():
            values.append(row.get(key))
        self.count += 1

    def _new(self, row: Mapping[str, Any]) -> Iterator[str]:
        return (key for key in row if key not in self.seen)

    def rows(self) -> DatasetRows:
        """All of them. DataError where there is none."""
        if self.count == 0:
            raise DataError(f"{self.name} has no rows", hint="check the location in `run.data`, or the query")
        if not self.columns and self.wanted is not None:  # no column asked for is there: the asker names the first
            return DatasetRows({}, tuple(self.places), self.name, frozenset(self.seen))
        return DatasetRows(self.columns, tuple(self.places), self.name, frozenset(self.seen))
