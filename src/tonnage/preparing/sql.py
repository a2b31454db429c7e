"""Steps as SQL that DuckDB and Spark read alike; where they differ, the dialect says how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tonnage.preparing.spec import ColumnType, Encode, Join, Window
from tonnage.values import dataclass

PATTERNS: Final[Mapping[ColumnType, str]] = {
    "integer": "^[+-]?[0-9]{1,18}$",
    "number": "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,3})?$",
    "boolean": "^(true|false)$",
    "date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?$",
}
AGGREGATES: Final = {"mean": "AVG", "sum": "SUM", "min": "MIN", "max": "MAX", "count": "COUNT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SQLDialect:
    """How an engine writes what the other writes otherwise. `matches`: a test of a text, with {column}, {pattern}."""

    quote: str
    matches: str
    types: Mapping[ColumnType, str]

    def name(self, column: str) -> str:
        """A column's name as it is, whatever is in it."""
        return f"{self.quote}{column.replace(self.quote, self.quote * 2)}{self.quote}"

    def names(self, columns: Sequence[str]) -> str:
        return ", ".join(self.name(one) for one in columns)

    def text(self, value: str) -> str:
        """A text between quotes. Spark reads backslashes in them, so that those are doubled there."""
        escaped = value.replace("'", "''") if self is DUCKDB else value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"


DUCKDB: Final = SQLDialect(
    quote='"', matches="regexp_full_match({column}, {pattern})",
    types={"integer": "BIGINT", "number": "DOUBLE", "text": "VARCHAR", "boolean": "BOOLEAN", "date": "DATE",
           "timestamp": "TIMESTAMP"},
)  # fmt: skip
SPARK: Final = SQLDialect(
    quote="`", matches="({column} RLIKE {pattern})",
    types={"integer": "BIGINT", "number": "DOUBLE", "text": "STRING", "boolean": "BOOLEAN", "date": "DATE",
           "timestamp": "TIMESTAMP_NTZ"},
)  # fmt: skip


def typed_sql(dialect: SQLDialect, view: str, types: Mapping[str, ColumnType]) -> str:
    """A table of texts with each column as its type."""
    parts = [f"{_cast(dialect, column, kind)} AS {dialect.name(column)}" for column, kind in types.items()]
    return f"SELECT {', '.join(parts)} FROM {dialect.name(view)}"


def _cast(dialect: SQLDialect, column: str, kind: ColumnType) -> str:
    return f"TRY_CAST({dialect.name(column)} AS {dialect.types[kind]})"


def untyped_sql(dialect: SQLDialect, view: str, column: str, kind: ColumnType) -> str | None:
    """The least text of a column that is not of its type; None where every text is."""
    if kind == "text":
        return None
    name = dialect.name(column)
    fits = dialect.matches.format(column=name, pattern=dialect.text(PATTERNS[kind]))
    return (
        f"SELECT MIN({name}) FROM {dialect.name(view)} WHERE {name} IS NOT NULL AND "
        f"(NOT {fits} OR {_cast(dialect, column, kind)} IS NULL)"
    )


def repeated_sql(dialect: SQLDialect, view: str, key: Sequence[str]) -> str:
    """The first key, by its order, that more than one row has, and how many have it."""
    keys = dialect.names(key)
    return (
        f"SELECT {keys}, COUNT(*) FROM {dialect.name(view)} GROUP BY {keys} HAVING COUNT(*) > 1 ORDER BY {keys} LIMIT 1"
    )


def keyless_sql(dialect: SQLDialect, view: str, key: Sequence[str]) -> str:
    """How many rows lack a part of their key."""
    lacks = " OR ".join(f"{dialect.name(one)} IS NULL" for one in key)
    return f"SELECT COUNT(*) FROM {dialect.name(view)} WHERE {lacks}"


def join_sql(dialect: SQLDialect, view: str, columns: Sequence[str], step: Join, other: str, key: Sequence[str],
             kept: Sequence[str]) -> str:  # fmt: skip
    """Columns of the other source beside each row."""
    mine = ", ".join(f"a.{dialect.name(one)}" for one in columns)
    theirs = "".join(f", b.{dialect.name(one)}" for one in kept)
    on = " AND ".join(
        f"a.{dialect.name(here)} = b.{dialect.name(there)}" for here, there in zip(step.on, key, strict=True)
    )
    kind = "LEFT JOIN" if step.how == "left" else "JOIN"
    return f"SELECT {mine}{theirs} FROM {dialect.name(view)} a {kind} {dialect.name(other)} b ON {on}"


def window_sql(dialect: SQLDialect, view: str, columns: Sequence[str], step: Window, key: Sequence[str]) -> str:
    """A figure over the rows before. A sum is a double whatever it is of: engines widen whole numbers differently."""
    order = ", ".join(f"{dialect.name(one)} NULLS LAST" for one in (step.order, *key))
    part = f"PARTITION BY {dialect.names(step.by)} ORDER BY {order}"
    column = dialect.name(step.column)
    if step.function == "previous":
        figure = f"LAG({column}, {step.rows}) OVER ({part})"
    else:
        last = "CURRENT ROW" if step.current else "1 PRECEDING"
        frame = f"({part} ROWS BETWEEN {step.rows} PRECEDING AND {last})"
        inside = f"CAST({column} AS DOUBLE)" if step.function in ("mean", "sum") else column
        figure = f"{AGGREGATES[step.function]}({inside}) OVER {frame}"
    return f"SELECT {dialect.names(columns)}, {figure} AS {dialect.name(step.name)} FROM {dialect.name(view)}"


def categories_sql(dialect: SQLDialect, view: str, step: Encode) -> str:
    """The categories there are, one more than may be."""
    column = dialect.name(step.column)
    kind = dialect.types["text"]
    return (
        f"SELECT DISTINCT CAST({column} AS {kind}) FROM {dialect.name(view)} WHERE {column} IS NOT NULL "
        f"LIMIT {step.most + 1}"
    )


def encoded_names(step: Encode, categories: Sequence[str]) -> tuple[str, ...]:
    """The columns that an encoding adds.

    >>> encoded_names(Encode(column="country", how="one-hot"), ["DE", "FR"])
    ('country=DE', 'country=FR')
    """
    if step.how == "one-hot":
        return tuple(f"{step.column}={one}" for one in categories)
    return (f"{step.column}_{step.how}",)


def encode_sql(dialect: SQLDialect, view: str, columns: Sequence[str], step: Encode, categories: Sequence[str]) -> str:
    """The categories as numbers, in place of the column."""
    kept = [one for one in columns if one != step.column]
    text = f"CAST({dialect.name(step.column)} AS {dialect.types['text']})"
    whole = dialect.types["integer"]
    if step.how == "one-hot":
        figures = [f"CAST(COALESCE({text} = {dialect.text(one)}, FALSE) AS {whole})" for one in categories]
    elif step.how == "ordinal":
        cases = " ".join(f"WHEN {text} = {dialect.text(one)} THEN {place}" for place, one in enumerate(categories))
        figures = [f"CAST(CASE {cases} ELSE -1 END AS {whole})" if cases else f"CAST(-1 AS {whole})"]
    else:
        mine = f"COUNT({text}) OVER (PARTITION BY {text})"
        figures = [f"CAST({mine} AS DOUBLE) / CAST(COUNT(*) OVER () AS DOUBLE)"]
    named = zip(figures, encoded_names(step, categories), strict=True)
    added = [f"{figure} AS {dialect.name(name)}" for figure, name in named]
    return f"SELECT {', '.join([*(dialect.name(one) for one in kept), *added])} FROM {dialect.name(view)}"


def counts_sql(dialect: SQLDialect, view: str, step: Encode) -> str:
    """How often each category is there."""
    column = dialect.name(step.column)
    text = f"CAST({column} AS {dialect.types['text']})"
    found = f"SELECT {text} AS category, COUNT(*) AS number FROM {dialect.name(view)}"
    return f"{found} WHERE {column} IS NOT NULL GROUP BY {text}"


def shares_sql(
    dialect: SQLDialect, view: str, columns: Sequence[str], step: Encode, counts: str, *, total: int
) -> str:  # fmt: skip
    """`encode_sql` of frequencies where the counts of all rows are a table of their own (category, number)."""
    kept = ", ".join(f"a.{dialect.name(one)}" for one in columns if one != step.column)
    share = f"CAST(COALESCE(c.number, 0) AS DOUBLE) / CAST({total} AS DOUBLE)"
    text = f"CAST(a.{dialect.name(step.column)} AS {dialect.types['text']})"
    [name] = encoded_names(step, ())
    return (
        f"SELECT {kept}, {share} AS {dialect.name(name)} FROM {dialect.name(view)} a "
        f"LEFT JOIN {dialect.name(counts)} c ON {text} = c.category"
    )


def columns_sql(dialect: SQLDialect, view: str, columns: Sequence[str]) -> str:
    """These columns alone."""
    return f"SELECT {dialect.names(columns)} FROM {dialect.name(view)}"
