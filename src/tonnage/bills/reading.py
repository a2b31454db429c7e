"""A bill's file read: whose it is, by its columns, and its lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from decimal import InvalidOperation
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from tonnage.bills.cloud_kinds import CLOUD_KINDS, anthropic_console, anthropic_report, openai_costs, openai_usage
from tonnage.bills.lines import BillLine, ProviderBill, Row
from tonnage.errors import DataError, MissingExtra

LOOKED_AT: Final = 200  # rows whose columns say whose bill it is: JSON and sparse CSV leave empty ones out
Reader = Callable[[Row], Iterator[BillLine]]


def read_bill(path: Path) -> ProviderBill:
    """A bill in CSV, JSON as the provider's API answers, or Parquet; a folder of parts is one bill.

    DataError names file and line, and what is not a bill that is known here; later lines raise it as they are read.
    """
    rows = bill_rows(path)
    head = list(islice(rows, LOOKED_AT))
    if not head:
        raise DataError(f"{path} has no line", hint="an export of costs or usage")
    columns = {name for _, row in head for name in row}
    for kind, needed, read in _KINDS:
        if all(any(name in columns for name in names) for names in needed):
            return ProviderBill(kind=kind, lines=_lines(read, chain(head, rows)))
    known = "; ".join(f"{kind}: {', '.join(names[0] for names in needed)}" for kind, needed, _ in _KINDS)
    raise DataError(f"{path} is not a bill that is known here", hint=f"columns of {known}")


def _lines(read: Reader, rows: Iterator[tuple[str, Row]]) -> Iterator[BillLine]:
    for place, row in rows:
        try:
            yield from read(row)
        except (KeyError, ValueError, TypeError, AttributeError, InvalidOperation) as error:
            raise DataError(f"{place} cannot be read: {error!r}", hint="an export as the provider made it") from error


def _one(read: Callable[[Row], BillLine]) -> Reader:
    return lambda row: iter((read(row),))


_KINDS: Final[tuple[tuple[str, tuple[tuple[str, ...], ...], Reader], ...]] = (
    *CLOUD_KINDS,
    ("Anthropic console", (("cost_usd",), ("usage_date_utc",), ("model",)), _one(anthropic_console)),
    ("Anthropic cost report", (("starting_at",), ("amount",)), _one(anthropic_report)),
    ("OpenAI costs", (("start_time", "start_time_iso"), ("amount_value", "amount")), _one(openai_costs)),
    ("OpenAI usage", (("start_time", "start_time_iso"), ("model",), ("input_tokens",), ("output_tokens",)),
     _one(openai_usage)),
)  # fmt: skip


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
