"""Spark: the same SQL on a cluster (`--master`), or on the cores of this machine."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.data_engines.delta import DeltaVersion, version_of, write_version
from tonnage.data_engines.lines import PATTERNS, check_there, files_of
from tonnage.data_engines.sql_steps import SQLSteps
from tonnage.data_engines.tokens import tokeniser
from tonnage.errors import DataError, MissingExtra, TonnageError
from tonnage.preparing.spec import ColumnType, TableSource, TableTarget, TokenColumns
from tonnage.preparing.sql import SPARK, SQLDialect

_KINDS: Final[Mapping[str, ColumnType]] = {
    "tinyint": "integer", "smallint": "integer", "int": "integer", "bigint": "integer", "float": "number",
    "double": "number", "string": "text", "boolean": "boolean", "date": "date", "timestamp_ntz": "timestamp",
}  # fmt: skip
DELTA_TYPES: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}  # as Spark says them
_ERROR: Final = re.compile(r"[A-Za-z_.]+(Error|Exception): ")
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false", "spark.ui.enabled": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true", "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
}  # fmt: skip
FORMATS: Final = {"csv": "csv", "jsonl": "json", "parquet": "parquet"}
READING: Final[Mapping[str, Mapping[str, str]]] = {  # a header that differs from the first file's is an error
    "csv": {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST", "enforceSchema": "false"},
    "jsonl": {}, "parquet": {},
}  # fmt: skip


class SparkEngine(SQLSteps):
    """The preparation's SQL in a session of Spark."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    def start(cls, master: str) -> SparkEngine:
        """A session on `master`: `local[2]`, or the address of a cluster whose workers see the same paths.

        MissingExtra without pyspark; TonnageError where it does not start.
        """
        try:
            library: Any = importlib.import_module("pyspark.sql")
        except ImportError as error:
            raise MissingExtra("preparing rows with Spark", "spark") from error
        builder = library.SparkSession.builder.master(master).appName("tonnage prepare")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of its workers; it reads no setting for that
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        try:
            session = builder.getOrCreate()
        except Exception as error:  # Java's exceptions come through py4j, which is not imported here
            hint = "is Java of version 8 to 17 there (`tonnage doctor`), and is the cluster reachable?"
            raise TonnageError(f"Spark does not start on {master}: {said(error)}", hint=hint) from error
        session.sparkContext.setLogLevel("ERROR")
        return cls(session)

    @property
    def dialect(self) -> SQLDialect:
        return SPARK

    def open(self, view: str, source: TableSource) -> Mapping[str, ColumnType | None]:
        """The source as a view; DataError where it cannot be read."""
        check_there(source)
        read = self._session.read
        try:
            if source.format != "delta":
                files = [str(one) for one in files_of(source)]
                rows = read.format(FORMATS[source.format]).options(**READING[source.format])
                rows = rows.schema(self._schema(source)).load(files)
            else:
                rows = self._delta(version_of(source))
        except DataError:
            raise
        except Exception as error:  # as above
            raise DataError(f"source '{source.name}': {source.location} cannot be read: {said(error)}") from error
        return self.open_rows(view, rows)

    def open_rows(self, view: str, rows: Any) -> Mapping[str, ColumnType | None]:
        """A data frame as a view, and its columns with their types."""
        rows.createOrReplaceTempView(SPARK.name(view))
        return {name: _KINDS.get(kind) for name, kind in rows.dtypes}

    def _schema(self, source: TableSource) -> Any:
        """The columns of its files, by the first of them; of JSONL those that are typed."""
        if source.format == "jsonl":
            return ", ".join(f"{SPARK.name(one)} STRING" for one in source.types or {})
        first = str(files_of(source)[0])
        return self._session.read.format(source.format).options(**READING[source.format]).load(first).schema

    def arriving(self, source: TableSource, *, files_at_once: int) -> Any:
        """Files that arrive in the source's folder, as a streaming data frame. DataError where none is there yet."""
        check_there(source)
        read = self._session.readStream.format(FORMATS[source.format]).options(**READING[source.format])
        pattern = ",".join(PATTERNS[source.format])
        read = read.option("pathGlobFilter", f"{{{pattern}}}").option("maxFilesPerTrigger", files_at_once)
        read = read.option("maxFileAge", "36500d")  # else files a week older than the newest are left out unsaid
        try:
            return read.schema(self._schema(source)).load(source.location)
        except Exception as error:  # as above
            raise DataError(f"source '{source.name}': {source.location} cannot be read: {said(error)}") from error

    def _delta(self, version: DeltaVersion) -> Any:
        """All partitions with their values as columns, in the order of the table's schema."""
        functions: Any = importlib.import_module("pyspark.sql.functions")
        whole = None
        for part in version.parts:
            rows = self._session.read.parquet(*part.files)
            for name, (value, kind) in part.values.items():
                rows = rows.withColumn(name, functions.lit(value).cast(DELTA_TYPES.get(kind, kind)))
            rows = rows.select(*(SPARK.name(one) for one in version.columns))
            whole = rows if whole is None else whole.unionAll(rows)
        return whole

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The few rows of a query. DataError where a source turns out unreadable on the way."""
        try:
            return [tuple(row) for row in self._session.sql(query).collect()]
        except Exception as error:  # as above
            raise DataError(f"rows cannot be read: {said(error)}") from error

    def define(self, view: str, query: str) -> None:
        """A view, computed where it is read."""
        self._session.sql(query).createOrReplaceTempView(SPARK.name(view))

    def tokenise(self, view: str, over: str, step: TokenColumns) -> None:
        """Token numbers beside the rows, batch by batch on the workers."""
        types: Any = importlib.import_module("pyspark.sql.types")
        rows = self._session.table(SPARK.name(over))
        numbers_field = types.StructField(step.name, types.ArrayType(types.IntegerType()))
        schema = types.StructType([*rows.schema.fields, numbers_field])
        folder, most, column, name = step.tokenizer, step.most, step.column, step.name

        def with_tokens(batches: Iterator[Any]) -> Iterator[Any]:
            arrow: Any = importlib.import_module("pyarrow")
            tokenise = tokeniser(folder, most)
            for batch in batches:
                numbers = tokenise(batch.column(column).to_pylist())
                made = arrow.array(numbers, arrow.list_(arrow.int32()))
                yield arrow.RecordBatch.from_arrays([*batch.columns, made], names=[*batch.schema.names, name])

        rows.mapInArrow(with_tokens, schema).createOrReplaceTempView(SPARK.name(view))

    def write(self, view: str, key: tuple[str, ...], target: TableTarget) -> int | None:
        """The rows in order of their key, a folder of parts; of a Delta table a new version, written from here."""
        rows = self._session.table(SPARK.name(view)).orderBy(*(SPARK.name(one) for one in key))
        place = Path(target.location)
        between = place.with_name(f".{place.name}.parts") if target.format == "delta" else place
        try:
            if target.format == "csv":
                rows.write.csv(str(place), header=True, mode="overwrite")
            else:
                rows.write.parquet(str(between), mode="overwrite")
        except Exception as error:  # as above
            raise DataError(f"{target.location} cannot be written: {said(error)}") from error
        if target.format != "delta":
            return None
        try:
            dataset: Any = importlib.import_module("pyarrow.dataset")
            parts = dataset.dataset(str(between), format="parquet")
            return write_version(target.location, iter(parts.to_batches()), parts.schema, target.partition_by)
        finally:
            shutil.rmtree(between, ignore_errors=True)

    def quiet(self) -> None:
        """No log on stderr."""
        self._session.sparkContext.setLogLevel("OFF")

    def close(self) -> None:
        """End the session and its Java process's work."""
        self._session.stop()


def said(error: Exception) -> str:
    """What went wrong: Python's own last error in what Java passes on, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if _ERROR.match(line)]
    return python[-1] if python else lines[0] if lines else type(error).__name__
