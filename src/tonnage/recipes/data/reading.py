"""Read a source of rows: JSONL, CSV and Parquet files (local or by URL, packed with gzip or not), Hugging Face data
sets, SQL queries."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from tonnage.errors import DataError, MissingExtra, TonnageError
from tonnage.http.urls import without_secrets
from tonnage.recipes.data.rows import DatasetRows, RowsBuilder
from tonnage.recipes.network import refusal, with_network_retries
from tonnage.runs.locations import files_at, is_remote
from tonnage.runs.secrets import fill_secrets
from tonnage.runs.spec import DataSource

NumberedRows = Iterator[tuple[int | None, Mapping[str, Any]]]


def read_rows(source: DataSource, *, name: str, wanted: frozenset[str] | None) -> DatasetRows:
    """All rows of a source, `wanted` columns only (None: all). DataError says what cannot be read, and where.

    What comes over a network is read again from its beginning where that fails; NetworkTrouble after several tries.
    """
    try:
        return with_network_retries(lambda: _read(source, name, wanted), source.location)
    except TonnageError:
        raise
    except Exception as error:
        if (said := refusal(error)) is None:
            raise
        message = f"cannot read {without_secrets(source.location)}: {said}"
        raise DataError(message, hint="check the URL and its credentials") from error


def _read(source: DataSource, name: str, wanted: frozenset[str] | None) -> DatasetRows:
    builder = RowsBuilder(name, wanted)
    if source.format == "hf":
        builder.read(source.location, _hub_rows(source, wanted))
    elif source.format == "sql":
        builder.read(f"the query of {name}", _query_rows(source))
    else:
        read = _FILE_READERS[source.format]
        for location in (source.location, *source.more):
            for file in _files(location):
                builder.read(file, read(file, wanted))
    return builder.rows()


def stream_rows(source: DataSource) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(file and line, row) one after the other, all columns; no more is held than the reader's own buffer."""
    if source.format == "hf":
        yield from _placed(source.location, _hub_rows(source, None))
    elif source.format == "sql":
        yield from _placed("the query", _query_rows(source))
    else:
        read = _FILE_READERS[source.format]
        for location in (source.location, *source.more):
            for file in _files(location):
                yield from _placed(file, read(file, None))


def stream_json(stream: IO[bytes], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The same of an open stream of JSON lines."""
    yield from _placed(name, _json_rows_of(_decoded(stream, name), name))


def _placed(name: str, rows: NumberedRows) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, (line, row) in enumerate(rows, start=1):
        yield (f"{name}, row {place}" if line is None else f"{name}:{line}"), row


def _files(location: str) -> tuple[str, ...]:
    location = fill_secrets(location, error=DataError)
    if not is_remote(location):
        return tuple(str(path) for path in files_at(location))
    import fsspec

    try:
        found = sorted(file.full_name for file in fsspec.open_files(location, "rb"))
    except (OSError, ImportError, ValueError) as error:
        raise DataError(
            f"cannot read {without_secrets(location)}: {error}", hint="check the URL and its credentials"
        ) from error
    if not found:
        raise DataError(f"no file matches {without_secrets(location)}", hint="check the pattern")
    return tuple(found)


def _opened(file: str) -> IO[bytes]:
    import fsspec

    opened: IO[bytes] = fsspec.open(file, "rb", compression="infer").open()
    return opened


def _lines(file: str) -> Iterator[tuple[int, str]]:
    """Decoded lines with their numbers, from 1."""
    try:
        opened = _opened(file)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error}", hint="is it there, and may you read it?") from error
    with opened as stream:
        yield from _decoded(stream, file)


def _decoded(stream: IO[bytes], file: str) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(stream, start=1):
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}:{number}: not UTF-8 text ({error.reason})", hint="save it as UTF-8") from error
    except (OSError, EOFError) as error:
        message = f"{file}: cannot be read after line {number}: {error}"
        raise DataError(message, hint="is the file whole, and packed as its name says?") from error


def _json_rows(file: str, _wanted: frozenset[str] | None) -> NumberedRows:
    yield from _json_rows_of(_lines(file), file)


def _json_rows_of(lines: Iterator[tuple[int, str]], file: str) -> NumberedRows:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            hint = "one JSON object a line; `jq -c '.[]' FILE` turns a JSON list into that"
            raise DataError(f"{file}:{number}: not JSON: {error}", hint=hint) from error
        if not isinstance(row, dict):
            raise DataError(f"{file}:{number}: not a JSON object", hint="one JSON object a line, with a key per column")
        yield number, row


def _csv_rows(file: str, _wanted: frozenset[str] | None) -> NumberedRows:
    separator = "\t" if file.casefold().removesuffix(".gz").endswith(".tsv") else ","
    reader = csv.reader((line for _, line in _lines(file)), delimiter=separator, strict=True)
    names: list[str] | None = None
    try:
        for values in reader:
            if names is None:
                names = values
                _no_twins(file, names)
            elif values:
                yield reader.line_num, _csv_row(file, reader.line_num, names, values)
    except csv.Error as error:
        raise DataError(f"{file}:{reader.line_num}: not CSV: {error}", hint="check the quotes on that line") from error


def _no_twins(file: str, names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise DataError(f"{file}:1: two columns are named '{twins[0]}'", hint="the first line names the columns")


def _csv_row(file: str, line: int, names: list[str], values: list[str]) -> Mapping[str, Any]:
    if len(values) != len(names):
        message = f"{file}:{line}: {len(values)} values for {len(names)} columns"
        raise DataError(message, hint="quote values that hold a separator; the first line names the columns")
    return {name: value if value != "" else None for name, value in zip(names, values, strict=True)}


def _parquet_rows(file: str, wanted: frozenset[str] | None) -> NumberedRows:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with _opened(file) as stream:
            parquet = ParquetFile(stream)
            names = parquet.schema_arrow.names
            kept = [name for name in names if wanted is None or name in wanted]
            others = dict.fromkeys(names)
            for batch in parquet.iter_batches(columns=kept):
                for row in batch.to_pylist():
                    yield None, {**others, **row}
    except (ArrowException, OSError) as error:
        raise DataError(f"{file}: not readable as Parquet: {error}", hint="is the file whole?") from error


def _image_rows(file: str, _wanted: frozenset[str] | None) -> NumberedRows:
    """An image, whose class is the folder it lies in."""
    yield None, {"image": file, "label": Path(file).parent.name}


_FILE_READERS: Final[dict[str, Callable[[str, frozenset[str] | None], NumberedRows]]] = {
    "jsonl": _json_rows,
    "csv": _csv_rows,
    "parquet": _parquet_rows,
    "images": _image_rows,
}


def _hub_rows(source: DataSource, wanted: frozenset[str] | None) -> NumberedRows:
    """Rows of `hf://org/name` or `hf://org/name:configuration`; from the local cache where the hub is out of reach."""
    from datasets import Image, disable_progress_bars, load_dataset

    disable_progress_bars()
    name, _, configuration = source.location.removeprefix("hf://").partition(":")
    try:
        rows = load_dataset(name, configuration or None, split=source.split)
    except (OSError, ValueError, RuntimeError) as error:  # not found, no such split, hub out of reach
        message = f"cannot load the data set {source.location} (split {source.split}): {_first_line(error)}"
        raise DataError(
            message, hint=f"check name and split; offline, `tonnage fetch {source.location}` first"
        ) from error
    for column, feature in (rows.features or {}).items():
        if isinstance(feature, Image):  # its bytes: decoded when a batch asks for it
            rows = rows.cast_column(column, Image(decode=False))
    names = rows.column_names
    others = dict.fromkeys(names)
    for row in rows.select_columns([one for one in names if wanted is None or one in wanted]):
        yield None, {**others, **row}


def _query_rows(source: DataSource) -> NumberedRows:
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtra("reading a database", "train") from error
    assert source.query is not None
    url = fill_secrets(source.location, error=DataError)
    try:
        engine = sqlalchemy.create_engine(url)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        message = f"cannot use the database {without_secrets(source.location)}: {_first_line(error)}"
        raise DataError(message, hint="a SQLAlchemy URL is expected, and its driver installed") from error
    try:
        with engine.connect() as connection:
            result = connection.execution_options(stream_results=True).execute(sqlalchemy.text(source.query))
            yield from ((None, dict(row)) for row in result.mappings())
    except sqlalchemy.exc.SQLAlchemyError as error:
        message = f"the query on {without_secrets(source.location)} failed: {_first_line(error)}"
        raise DataError(message, hint="check `query`, tables and rights") from error
    finally:
        engine.dispose()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
