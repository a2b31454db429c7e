"""What engines that read SQL share: each step is a view over the one before, as `preparing/sql.py` writes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.preparing import sql
from tonnage.preparing.spec import ColumnType, Encode, Join, Window
from tonnage.preparing.sql import SQLDialect


class SQLSteps(ABC):
    """Steps for whoever answers a query and defines a view."""

    @property
    @abstractmethod
    def dialect(self) -> SQLDialect: ...

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The few rows of a query. DataError where a source turns out unreadable on the way."""

    @abstractmethod
    def define(self, view: str, query: str) -> None:
        """A view, computed where it is read."""

    def count(self, view: str) -> int:
        """Rows of a view."""
        return int(self.rows(f"SELECT COUNT(*) FROM {self.dialect.name(view)}")[0][0])

    def typed(self, view: str, over: str, types: Mapping[str, ColumnType]) -> None:
        """A table of texts with each column as its type."""
        self.define(view, sql.typed_sql(self.dialect, over, types))

    def untyped(self, view: str, column: str, kind: ColumnType) -> str | None:
        """The least text of a column that is not of its type."""
        query = sql.untyped_sql(self.dialect, view, column, kind)
        found = None if query is None else self.rows(query)[0][0]
        return None if found is None else str(found)

    def keyless(self, view: str, key: Sequence[str]) -> int:
        """How many rows lack a part of their key."""
        return int(self.rows(sql.keyless_sql(self.dialect, view, key))[0][0])

    def repeated(self, view: str, key: Sequence[str]) -> tuple[Any, ...] | None:
        """The first key that more than one row has, and how many."""
        found = self.rows(sql.repeated_sql(self.dialect, view, key))
        return found[0] if found else None

    def categories(self, view: str, step: Encode) -> list[str]:
        """The categories there are, one more than may be at most."""
        return [str(row[0]) for row in self.rows(sql.categories_sql(self.dialect, view, step))]

    def join(
        self, view: str, over: str, columns: Sequence[str], step: Join, other: str, key: Sequence[str],
        kept: Sequence[str],
    ) -> None:  # fmt: skip
        """Columns of the other source beside each row."""
        self.define(view, sql.join_sql(self.dialect, over, columns, step, other, key, kept))

    def window(self, view: str, over: str, columns: Sequence[str], step: Window, key: Sequence[str]) -> None:
        """A figure over the rows before."""
        self.define(view, sql.window_sql(self.dialect, over, columns, step, key))

    def encode(
        self, view: str, over: str, columns: Sequence[str], step: Encode, categories: Sequence[str]
    ) -> None:  # fmt: skip
        """The categories as numbers, in place of the column."""
        self.define(view, sql.encode_sql(self.dialect, over, columns, step, categories))

    def select(self, view: str, over: str, columns: Sequence[str]) -> None:
        """These columns alone."""
        self.define(view, sql.columns_sql(self.dialect, over, columns))
