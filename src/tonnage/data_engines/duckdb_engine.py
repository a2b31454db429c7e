"""DuckDB: one machine, in this process; tables larger than memory go over the disk."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tonnage.data_engines.delta import DeltaVersion, version_of, write_version
from tonnage.data_engines.lines import check_there, files_of
from tonnage.data_engines.sql_steps import SQLSteps
from tonnage.data_engines.tokens import tokeniser
from tonnage.errors import DataError, MissingExtra
from tonnage.preparing.spec import ColumnType, TableSource, TableTarget, TokenColumns
from tonnage.preparing.sql import DUCKDB, SQLDialect

DELTA_TYPES: Final[Mapping[str, str]] = {  # of partition columns
    "string": "VARCHAR", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
BATCH_ROWS: Final = 20_000
_KINDS: Final[Mapping[str, ColumnType]] = {
    "TINYINT": "integer", "SMALLINT": "integer", "INTEGER": "integer", "BIGINT": "integer", "FLOAT": "number",
    "DOUBLE": "number", "VARCHAR": "text", "BOOLEAN": "boolean", "DATE": "date", "TIMESTAMP": "timestamp",
}  # fmt: skip


class DuckDbEngine(SQLSteps):
    """A database in memory. `folder`: where what does not fit goes."""

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        try:
            library: Any = importlib.import_module("duckdb")
            importlib.import_module("pyarrow")
        except ImportError as error:
            raise MissingExtra("preparing rows", "prepare") from error
        self._errors = library.Error
        self._connection = library.connect(":memory:", config={"temp_directory": str(folder)})
        if threads is not None:
            self._connection.execute(f"SET threads TO {threads}")

    @property
    def dialect(self) -> SQLDialect:
        return DUCKDB

    def open(self, view: str, source: TableSource) -> Mapping[str, ColumnType | None]:
        """The source as a view; DataError where it cannot be read."""
        check_there(source)
        groups = [] if source.format == "delta" else [files_of(source)]
        try:
            self.define(view, " UNION ALL ".join(reading(source, groups)))
        except self._errors as error:
            said = _first_lines(error)
            raise DataError(f"source '{source.name}': {source.location} cannot be read: {said}") from error
        described = self.rows(f"DESCRIBE {DUCKDB.name(view)}")
        return {row[0]: _KINDS.get(row[1]) for row in described}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query. DataError where a source turns out unreadable on the way."""
        try:
            return list(self._connection.execute(query).fetchall())
        except self._errors as error:
            raise DataError(f"rows cannot be read: {_first_lines(error)}") from error

    def define(self, view: str, query: str) -> None:
        """A view, computed where it is read."""
        self._connection.execute(f"CREATE OR REPLACE VIEW {DUCKDB.name(view)} AS {query}")

    def shape(self, view: str) -> Any:
        """The columns of a view, as an Arrow schema."""
        return self._connection.sql(f"SELECT * FROM {DUCKDB.name(view)} LIMIT 0").to_arrow_table().schema

    def empty(self, view: str, schema: Any) -> None:
        """A view of such columns and no rows."""
        passed = f"arrow {view}"
        self._connection.register(passed, schema.empty_table())
        self._connection.execute(f"CREATE TABLE {DUCKDB.name(f'empty {view}')} AS SELECT * FROM {DUCKDB.name(passed)}")
        self._connection.unregister(passed)
        self.define(view, f"SELECT * FROM {DUCKDB.name(f'empty {view}')}")

    def tokenise(self, view: str, over: str, step: TokenColumns) -> None:
        """The rows so far with their token numbers, as a table of its own."""
        arrow: Any = importlib.import_module("pyarrow")
        tokenise = tokeniser(step.tokenizer, step.most)
        reader = self._reader(f"SELECT * FROM {DUCKDB.name(over)}")
        schema = reader.schema.append(arrow.field(step.name, arrow.list_(arrow.int32())))

        def batches() -> Iterator[Any]:
            for batch in reader:
                numbers = tokenise(batch.column(step.column).to_pylist())
                yield arrow.RecordBatch.from_arrays(
                    [*batch.columns, arrow.array(numbers, arrow.list_(arrow.int32()))], schema=schema
                )

        made = arrow.Table.from_batches(batches(), schema=schema)
        passed = f"arrow {view}"
        self._connection.register(passed, made)
        self._connection.execute(f"CREATE TABLE {DUCKDB.name(view)} AS SELECT * FROM {DUCKDB.name(passed)}")
        self._connection.unregister(passed)

    def write(self, view: str, key: tuple[str, ...], target: TableTarget) -> int | None:
        """The rows in order of their key; a file is whole or not there."""
        ordered = f"SELECT * FROM {DUCKDB.name(view)} ORDER BY {DUCKDB.names(key)}"
        if target.format == "delta":
            reader = self._reader(ordered)
            return write_version(target.location, iter(reader), reader.schema, target.partition_by)
        place = Path(target.location)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        how = "FORMAT parquet" if target.format == "parquet" else "FORMAT csv, HEADER"
        try:
            self._connection.execute(f"COPY ({ordered}) TO {DUCKDB.text(str(part))} ({how})")
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
        return None

    def _reader(self, query: str) -> Any:
        """Rows as Arrow batches; nothing else may be asked until they are read."""
        return self._connection.sql(query).to_arrow_reader(BATCH_ROWS)

    def close(self) -> None:
        """Leave the database."""
        self._connection.close()


def reading(source: TableSource, groups: Sequence[Sequence[Path]], columns: Sequence[str] = ()) -> list[str]:
    """The queries that read each group of a source's files, or each partition of a Delta table. `columns`: all, where
    none is named; texts stay texts."""
    if source.format == "delta":
        return [_delta_sql(version, part) for version in [version_of(source)] for part in version.parts]
    chosen = DUCKDB.names(columns) if columns else "*"
    queries = []
    for files in groups:
        place = f"[{', '.join(DUCKDB.text(str(one)) for one in files)}]"
        if source.format == "csv":
            read = f"read_csv({place}, header=true, all_varchar=true, nullstr='', delim=',', quote='\"')"
        elif source.format == "jsonl":
            types = ", ".join(f"{DUCKDB.name(one)}: 'VARCHAR'" for one in source.types or {})
            read = f"read_json({place}, format='newline_delimited', columns={{{types}}})"
        else:
            read = f"read_parquet({place})"
        queries.append(f"SELECT {chosen} FROM {read}")
    return queries


def _delta_sql(version: DeltaVersion, part: Any) -> str:
    """A partition with its values as columns, in the order of the table's schema."""
    columns = ", ".join(
        f"CAST({'NULL' if part.values[one][0] is None else DUCKDB.text(part.values[one][0] or '')} AS "
        f"{DELTA_TYPES[part.values[one][1]]}) AS {DUCKDB.name(one)}"
        if one in part.values
        else DUCKDB.name(one)
        for one in version.columns
    )
    files = ", ".join(DUCKDB.text(one) for one in part.files)
    return f"SELECT {columns} FROM read_parquet([{files}], hive_partitioning=false)"


def _first_lines(error: Exception) -> str:
    """What an error says, without the statement that it quotes and the advice on settings that follows."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("LINE ", "^"))]
    return " ".join(said[:2])
