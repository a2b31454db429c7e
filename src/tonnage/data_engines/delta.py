"""Delta tables by delta-rs: the files of a version, and a new version of Arrow rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.errors import DataError, MissingExtra
from tonnage.preparing.spec import TableSource
from tonnage.values import dataclass


def _library() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise MissingExtra("a Delta table", "prepare") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaFiles:
    """Parquet files of a table whose rows have the same values in its partition columns, which the files lack.

    `values`: column -> its value as a text, None for null, and its type in Delta's words.
    """

    files: tuple[str, ...]
    values: Mapping[str, tuple[str | None, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaVersion:
    """The files of one version by partition, and all columns in the order of its schema."""

    columns: tuple[str, ...]
    parts: tuple[DeltaFiles, ...]


def version_of(source: TableSource) -> DeltaVersion:
    """The version that the source names. DataError where it has no such version, or rows of these files are marked as
    deleted."""
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
    columns = tuple(one.name for one in table.schema().fields)
    kinds = {one.name: getattr(one.type, "type", "") for one in table.schema().fields}
    by = tuple(table.metadata().partition_columns)
    return DeltaVersion(columns=columns, parts=tuple(_parts(table, by, kinds)))


def _parts(table: Any, by: Sequence[str], kinds: Mapping[str, str]) -> Iterator[DeltaFiles]:
    files = {Path(one).name: str(one) for one in table.file_uris()}
    if not by:
        yield DeltaFiles(files=tuple(files.values()), values={})
        return
    arrow: Any = importlib.import_module("pyarrow")
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for action in arrow.table(table.get_add_actions(flatten=True)).to_pylist():
        values = tuple(_as_text(action[f"partition.{column}"]) for column in by)
        groups.setdefault(values, []).append(files[Path(action["path"]).name])
    for values, found in groups.items():
        named = {column: (value, kinds[column]) for column, value in zip(by, values, strict=True)}
        yield DeltaFiles(files=tuple(sorted(found)), values=named)


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def append_once(
    location: str, batches: Iterator[Any], schema: Any, *, application: str, number: int, partition_by: Sequence[str]
) -> int:
    """Rows added to a table as its next version, unless it has those of this `number` of this application already.

    The version. The number is in the same commit as the rows (Delta's transaction identifiers), so that each is there
    once however often it is written.
    """
    library: Any = _library()
    arrow: Any = importlib.import_module("pyarrow")
    if library.DeltaTable.is_deltatable(location):
        table = library.DeltaTable(location)
        last = table.transaction_version(application)
        if last is not None and last >= number:
            return int(table.version())
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    done = library.CommitProperties(app_transactions=[library.Transaction(application, number)])
    rows = arrow.RecordBatchReader.from_batches(schema, batches)
    library.write_deltalake(
        location, rows, mode="append", partition_by=list(partition_by) or None, commit_properties=done
    )
    return int(library.DeltaTable(location).version())


def write_version(location: str, batches: Iterator[Any], schema: Any, partition_by: Sequence[str] = ()) -> int:
    """The rows as the table's next version, in place of those of the last; its number. Older versions stay.

    DataError where the table is partitioned by other columns."""
    library: Any = _library()
    arrow: Any = importlib.import_module("pyarrow")
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    rows = arrow.RecordBatchReader.from_batches(schema, batches)
    if library.DeltaTable.is_deltatable(location):
        there = library.DeltaTable(location).metadata().partition_columns
        if list(there) != list(partition_by):
            by = ", ".join(there) or "nothing"
            raise DataError(f"{location} is partitioned by {by}", hint="the same `partition_by`, or another folder")
    library.write_deltalake(
        location, rows, mode="overwrite", schema_mode="overwrite", partition_by=list(partition_by) or None
    )
    return int(library.DeltaTable(location).version())
