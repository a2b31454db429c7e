"""Request traces: when each request arrived, and how many tokens it read and wrote."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import WorkloadError
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Requests in order of arrival: seconds since the first, tokens read, tokens written (0: an encoder answers)."""

    name: str
    at_s: Array
    input_tokens: Counts
    output_tokens: Counts

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second over the span; infinite where all arrive at once."""
        span = float(self.at_s[-1] - self.at_s[0])
        return (len(self) - 1) / span if span > 0 else np.inf


def parse_trace(lines: Iterable[str], *, name: str = "trace") -> RequestTrace:
    """A trace from CSV lines with the columns `arrived_at` (s), `num_prefill_tokens`, `num_decode_tokens`.

    These are the columns of the processed Azure traces of microsoft/vidur. Other columns are ignored. Raises
    WorkloadError naming line and column.

    >>> parse_trace(["arrived_at,num_prefill_tokens,num_decode_tokens", "0.0,374,44", "4.5,396,109"]).rate_per_s
    0.2222222222222222
    """
    reader = csv.DictReader(lines)
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise WorkloadError(
            f"no column {', '.join(missing)}", file=name, line=1, hint=f"a trace has the columns {', '.join(COLUMNS)}"
        )
    rows = [_row(fields, name, reader.line_num) for fields in reader]
    if not rows:
        raise WorkloadError("no requests", file=name, hint="a trace has one row per request")
    at_s = np.array([row[0] for row in rows])
    early = np.flatnonzero(np.diff(at_s) < 0)
    if early.size:
        raise WorkloadError(
            f"request {int(early[0]) + 2} arrives before the one above it", file=name, key="arrived_at",
            hint="sort the rows by arrived_at",
        )  # fmt: skip
    return RequestTrace(
        name=name,
        at_s=at_s - at_s[0],
        input_tokens=np.array([row[1] for row in rows], dtype=np.int64),
        output_tokens=np.array([row[2] for row in rows], dtype=np.int64),
    )


def load_trace(path: Path) -> RequestTrace:
    """The trace in the file at `path`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return parse_trace(file, name=str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(f"cannot be read: {error}", file=str(path), hint="give the path of a CSV file") from error


def _row(fields: dict[str, str], name: str, line: int) -> tuple[float, int, int]:
    def number(column: str, least: float) -> float:
        try:
            value = float(fields[column])
        except (TypeError, ValueError):
            value = np.nan
        if not (least <= value < np.inf):
            raise WorkloadError(
                f"{fields[column]!r} is not a number of at least {least:g}", file=name, line=line, key=column
            )
        return value

    return number(COLUMNS[0], 0.0), int(number(COLUMNS[1], 1.0)), int(number(COLUMNS[2], 0.0))
