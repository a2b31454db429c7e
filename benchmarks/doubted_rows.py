"""Which measured rows count among no errors, and what holds most of the errors beyond the figures aimed at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from accuracy_rows import Cells, Target
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import InferenceRow, publication
from tonnage.calibration.validation import error_pct
from tonnage.catalog import Catalog

MARKED = "marked by the table itself, with the reason in its note"
UNFED = "tokens faster than memory feeds all weights at 4 bits: in no fit, but counted among the errors"
CELLS = 3


def doubted_table(tables: Mapping[str, Iterable[Any]], catalog: Catalog) -> Iterator[str]:
    """Every doubted row counted, by table, source and reason."""
    counts = Counter(
        (kind, row.source, reason)
        for kind, rows in tables.items()
        for row in rows
        if not isinstance(row, SkippedRow) and (reason := doubt_of(row, catalog))
    )
    yield "| table | source | rows | reason |"
    yield "| --- | --- | ---: | --- |"
    for (kind, source, reason), count in sorted(counts.items()):
        yield f"| {kind} | {source.replace('|', '/')} | {count} | {reason} |"


def doubt_of(row: Any, catalog: Catalog) -> str:
    """Why a row is doubted; "" where nothing doubts it."""
    if row.doubt or row.quality == "suspect":
        return row.doubt or MARKED  # type: ignore[no-any-return]
    if not isinstance(row, InferenceRow):
        return ""
    case = read_case(row, catalog)
    return UNFED if isinstance(case, InferenceCase) and case.faster_than_memory else ""


def beyond_sentence(target: Target, rows: Sequence[JudgedRow], cells: Mapping[str, Cells]) -> str:
    """Of the rows beyond the 90th percentile aimed at, the publications, programs and GPUs that have the most."""

    def cell(row: JudgedRow) -> str:
        said = cells[row.row_id]
        program = said.get("engine") or said.get("program") or ""
        return " ".join(part for part in (publication(said.get("source", "")), program, row.gpu) if part)

    beyond = Counter(cell(row) for row in rows if abs(error_pct(row)) > target.p90_pct)
    held = Counter(map(cell, rows))
    most = ", ".join(f"{name} {count} of {held[name]}" for name, count in beyond.most_common(CELLS))
    return f"- {target.name}: {beyond.total():,} of {len(rows):,} rows err by more than {target.p90_pct:g} %: {most}."
