"""Rows of a bench from a query: DuckDB over files, or a database by its URL; always in the order of their key."""

from __future__ import annotations

from typing import Any

from tonnage.errors import InputError, MissingExtra
from tonnage.http.urls import without_secrets
from tonnage.runs.secrets import fill_secrets
from tonnage.side_by_side.spec import SqlSource


def read_query(name: str, source: SqlSource) -> Any:
    """The rows as a pandas frame without the columns of `order_by`, sorted by these. InputError for a query that fails
    and for an order that is no key: rows that it leaves equal could come in another order next time, and the parts
    would differ."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("reading a query", "frames") from error
    frame = _of_files(source) if source.database is None else _of_database(source, pandas)
    for column in source.order_by:
        if column not in frame.columns:
            known = ", ".join(str(one) for one in frame.columns[:20])
            raise InputError(
                f"the query of '{name}' has no column '{column}' to order by", hint=f"its columns: {known}"
            )
    key = frame[list(source.order_by)]
    if key.isna().any(axis=None):
        raise InputError(f"the query of '{name}' has empty cells in `order_by`", hint="order by columns that are full")
    equal = int(key.duplicated().sum())
    if equal:
        hint = "order by a key: columns whose values together are different in every row"
        raise InputError(f"the query of '{name}' has {equal} rows that `order_by` does not tell apart", hint=hint)
    ordered = frame.sort_values(list(source.order_by), kind="stable", ignore_index=True)
    return ordered.drop(columns=list(source.order_by))


def _of_files(source: SqlSource) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("a query over files", "prepare") from error
    try:
        with duckdb.connect(":memory:", config={"file_search_path": source.folder}) as connection:
            return connection.execute(source.query).df()
    except duckdb.Error as error:
        raise InputError(f"the query failed: {_first_line(error)}", hint="DuckDB reads FROM 'rows.parquet'") from error


def _of_database(source: SqlSource, pandas: Any) -> Any:
    import sqlalchemy

    assert source.database is not None
    url = fill_secrets(source.database)
    try:
        engine = sqlalchemy.create_engine(url)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        message = f"cannot use the database {without_secrets(source.database)}: {_first_line(error)}"
        raise InputError(message, hint="a SQLAlchemy URL, and its driver installed") from error
    try:
        with engine.connect() as connection:
            found = connection.execute(sqlalchemy.text(source.query))
            columns = list(found.keys())
            return pandas.DataFrame.from_records(
                [tuple(row) for row in found], columns=columns, coerce_float=True
            )  # decimals become numbers
    except sqlalchemy.exc.SQLAlchemyError as error:
        message = f"the query on {without_secrets(source.database)} failed: {_first_line(error)}"
        raise InputError(message, hint="check `query`, tables and rights") from error
    finally:
        engine.dispose()


def _first_line(error: BaseException) -> str:
    return without_secrets((str(error).splitlines() or [type(error).__name__])[0])
