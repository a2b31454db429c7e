"""Delta tables by delta-rs: the files of a version, and a new version of Arrow rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.errors import DataError, MissingExtra
from tonnage.preparing.spec import TableSource


def _library() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise MissingExtra("a Delta table", "prepare") from error


def files_of(source: TableSource) -> list[str]:
    """The Parquet files of the version that the source names. DataError where it has no such version, or rows of these
    files are marked as deleted."""
    library = _library()
    try:
        table = library.DeltaTable(source.location, version=source.version)
    except Exception as error:  # the library's exceptions have no common base but this
        raise DataError(f"source '{source.name}': {source.location} cannot be read as a Delta table: {error}",
                        hint="name another `version`, or the table's own folder") from error  # fmt: skip
    features = table.protocol().reader_features or ()
    if "deletionVectors" in features:
        raise DataError(f"source '{source.name}': rows of {source.location} are deleted by vectors, which are not read",
                        hint="rewrite the table without them: REORG TABLE ... APPLY (PURGE)")  # fmt: skip
    if table.metadata().partition_columns:
        raise DataError(f"source '{source.name}': {source.location} is partitioned, which is not read yet",
                        hint="write it without partitions")  # fmt: skip
    return [str(one) for one in table.file_uris()]


def write_version(location: str, batches: Iterator[Any], schema: Any) -> int:
    """The rows as the table's next version, in place of those of the last; its number. Older versions stay."""
    library: Any = _library()
    arrow: Any = importlib.import_module("pyarrow")
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    rows = arrow.RecordBatchReader.from_batches(schema, batches)
    library.write_deltalake(location, rows, mode="overwrite", schema_mode="overwrite")
    return int(library.DeltaTable(location).version())
