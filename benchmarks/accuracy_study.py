"""One table of facts cross-validated, and how far its predictions are off."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

from accuracy_rows import Cells, Target
from rivals.compare import percentile
from tonnage.calibration.calibrating import CrossValidation, calibrate_tables
from tonnage.calibration.intervals import (
    Intervals,
    intervals_without_family,
    intervals_without_source,
    source_of,
    usable,
)
from tonnage.calibration.kinds import KindName
from tonnage.calibration.leave_out import usual_jobs
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.store import Calibration
from tonnage.calibration.validation import error_pct
from tonnage.catalog import Catalog

MEASURED_ROWS = Path(__file__).resolve().parent / "results"
PUBLISHED = "published_peaks_training.csv"
PEAKS = ("gpu_*_training_h100*.csv", PUBLISHED)  # the same peaks were read on an H200, to the byte: they count once


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One table cross-validated, its cells by row id, and intervals that never saw a row's own source or family."""

    part: CrossValidation
    cells: Mapping[str, Cells]
    without_source: Mapping[str, Intervals]
    without_family: Mapping[str, Intervals]

    def covered(self, rows: Sequence[JudgedRow]) -> str:
        """Two cells: shares of rows inside intervals made without their source, and without their family."""
        by_source = sum(self.without_source[source_of(row)].covers(row) for row in rows)
        by_family = sum(self.without_family[row.family].covers(row) for row in rows)
        return f"{100 * by_source / len(rows):.0f} % | {100 * by_family / len(rows):.0f} %"

    def rows(self, target: Target, results: Sequence[JudgedRow | SkippedRow]) -> list[JudgedRow]:
        """Good rows that a target counts."""
        return [row for row in self.with_bounds(target, results) if not row.bound]

    def with_bounds(self, target: Target, results: Sequence[JudgedRow | SkippedRow]) -> list[JudgedRow]:
        """The same, and the readings that only bound what they measure."""
        good = (row for row in results if isinstance(row, JudgedRow) and usable(row))
        return [row for row in good if target.belongs(row, self.cells[row.row_id])]

    def doubted(self, target: Target) -> list[JudgedRow]:
        """Doubted rows of a target that a prediction can be set beside, their family left out."""
        return [
            row
            for row in self.part.left_out
            if isinstance(row, JudgedRow) and usable(replace(row, suspect=False)) and row.suspect
            and target.belongs(row, self.cells[row.row_id])
        ]  # fmt: skip

    def left_out(self, target: Target) -> list[JudgedRow]:
        return self.rows(target, self.part.left_out)

    def fitted(self, target: Target) -> list[JudgedRow]:
        return self.rows(target, self.part.judged)


def calibrate_studied(
    files: Mapping[KindName, Path], catalog: Catalog, *, made_on: str
) -> tuple[Calibration, dict[KindName, Study]]:
    """The calibration of the tables as `tonnage calibrate` makes it, and each table as this page studies it."""
    started = perf_counter()

    def told(left_out: str, number: int, of: int) -> None:
        print(f"without {left_out} ({number} of {of}), {perf_counter() - started:.0f} s", file=sys.stderr)

    peaks = sorted(path for pattern in PEAKS for path in MEASURED_ROWS.glob(pattern))
    made, parts = calibrate_tables(files, catalog, made_on=made_on, peaks=peaks, jobs=usual_jobs(), on_step=told)
    return made, {name: _study(part, files[name]) for name, part in parts.items()}


def _study(part: CrossValidation, path: Path) -> Study:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        cells = {row["id"]: row for row in csv.DictReader(stream)}
    return Study(
        part=part,
        cells=cells,
        without_source=intervals_without_source(part.near, part.distant),
        without_family=intervals_without_family(part.near, part.distant),
    )


def errors(rows: Sequence[JudgedRow]) -> tuple[float, float] | None:
    """Median and 90th percentile of the absolute error in %; None without rows."""
    if not rows:
        return None
    values = [abs(error_pct(row)) for row in rows]
    return median(values), percentile(values, 0.9)


def two(found: tuple[float, float] | None) -> str:
    """Two cells of a table."""
    return "— | —" if found is None else f"{found[0]:.1f} | {found[1]:.1f}"
