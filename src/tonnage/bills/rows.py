"""Rows of the files in which bills come: CSV, JSON as an API answers, lines of JSON; Parquet, compressed files and
folders of parts by DuckDB."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tonnage.bills.values import Row
from tonnage.errors import DataError, MissingExtra

COMPRESSED: Final = (".gz", ".zst")
PARTS: Final = ("*.parquet", "*.csv", "*.csv.gz", "*.json.gz", "*.csv.zst")
FETCHED: Final = 5_000  # rows at a time


def bill_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(where it is, the row) of a file, or of all parts below a folder. DataError names what cannot be read."""
    if path.is_dir():
        found = sorted(file for pattern in PARTS for file in path.rglob(pattern))
        if not found:
            raise DataError(f"{path} holds no part of a bill", hint=f"parts are {', '.join(PARTS)}")
        for file in found:
            yield from bill_rows(file)
    elif path.suffix in (".parquet", *COMPRESSED):
        yield from _by_duckdb(path)
    else:
        yield from _of_text(path)


def _by_duckdb(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise MissingExtra("bills in Parquet and compressed files", "bills") from error
    bare = path.name.removesuffix(".gz").removesuffix(".zst")
    if bare.endswith(".parquet"):
        source = "read_parquet(?)"
    elif bare.endswith(".csv"):
        source = "read_csv(?, all_varchar = true, header = true)"
    else:
        source = "read_json_auto(?)"
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
            connection.execute("SET enable_progress_bar = false")
            columns = connection.execute(f"DESCRIBE SELECT * FROM {source}", [str(path)]).fetchall()
            wanted = ", ".join(_in_utc(str(one[0]), str(one[1])) for one in columns)
            found = connection.execute(f"SELECT {wanted} FROM {source}", [str(path)])
            names = [one[0] for one in found.description or ()]
            number = 0
            while rows := found.fetchmany(FETCHED):
                for row in rows:
                    number += 1
                    yield (
                        f"{path}, row {number}",
                        {name: value for name, value in zip(names, row, strict=True) if value not in (None, "")},
                    )
    except duckdb.Error as error:
        raise DataError(f"{path} cannot be read: {error}", hint="a file as the cloud exported it") from error


def _in_utc(name: str, kind: str) -> str:
    """A column as it is read: times with a zone as those of UTC, without an extension for zones."""
    quoted = '"' + name.replace('"', '""') + '"'
    return f"make_timestamp(epoch_us({quoted})) AS {quoted}" if kind == "TIMESTAMP WITH TIME ZONE" else quoted


def _of_text(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.read(4096).lstrip()[:1]
            if head not in ("{", "["):
                file.seek(0)
                for number, row in enumerate(csv.DictReader(file), start=2):
                    yield f"{path}:{number}", {name: value for name, value in row.items() if name and value}
                return
            file.seek(0)
            text = file.read()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="CSV, JSON or Parquet") from error
    for page in _json_pages(text, path):
        for each in page if isinstance(page, list) else [page]:
            yield from ((str(path), row) for row in _flat(each))


def _json_pages(text: str, path: Path) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError:
        pass  # lines of JSON
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise DataError(
            f"{path} is not JSON: {error}", hint="an answer of the provider's API, or lines of them"
        ) from error


def _flat(found: Any) -> Iterator[Row]:
    """Pages of buckets of results as rows: the times of its bucket beside each result."""
    if not isinstance(found, dict):
        return
    if isinstance(found.get("data"), list):
        for one in found["data"]:
            yield from _flat(one)
        return
    if not isinstance(found.get("results"), list):
        yield found
        return
    times = {name: value for name, value in found.items() if name not in ("results", "object")}
    for one in found["results"]:
        if isinstance(one, dict):
            amount = one.get("amount")
            more = {"amount_value": amount.get("value"), "amount_currency": amount.get("currency")} if isinstance(
                amount, dict) else {}  # fmt: skip
            kept = {name: value for name, value in one.items() if value is not None and not isinstance(value, dict)}
            yield {**times, **kept, **more}
