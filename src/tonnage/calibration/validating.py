"""Validate a file of measured facts: by a calibration as it is, or by fits on the file itself that leave parts out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tonnage.calibration.calibrating import judge_held
from tonnage.calibration.intervals import Intervals, intervals_without_family
from tonnage.calibration.kinds import FactKind, device_capacity, judged_rows, rows_to_fit
from tonnage.calibration.leave_out import OnStep, leave_one_out
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.store import Calibration
from tonnage.calibration.validation import ValidationReport, validate
from tonnage.catalog.catalog import Catalog


def validate_file(
    kind: FactKind,
    path: Path,
    catalog: Catalog,
    calibration: Calibration | None,
    *,
    memory_margin: float | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> ValidationReport:
    """Predict every row of a file of any length and sum up the errors; memory stays bounded.

    Raises InputError when the file cannot be read.
    """
    fitted = None if calibration is None else getattr(calibration, kind.name)
    intervals = Intervals() if calibration is None else calibration.intervals
    seen = {} if calibration is None else calibration.names_seen(kind.name)
    results = judged_rows(kind, kind.read(path, catalog), catalog, fitted, seen=seen, on_rows=on_rows)
    capacity_of = device_capacity(catalog, memory_margin)
    return validate(results, intervals, capacity_of=capacity_of, margin_fraction=memory_margin)


def validate_left_out(
    kind: FactKind,
    path: Path,
    catalog: Catalog,
    *,
    leave_out: str,
    start: Calibration | None = None,
    memory_margin: float | None = None,
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> ValidationReport:
    """Every row judged by a fit on those rows of the same file that do not share its family, GPU or engine.

    Coverage too is honest: each family by intervals from the residuals of the others. `start` is where the fits
    start from; raises InputError when the file cannot be read or all rows share one value.
    """
    key = kind.key(leave_out)
    rows, skipped = rows_to_fit(kind, path, catalog)
    first = None if start is None else getattr(start, kind.name)
    results = leave_one_out(
        rows,
        key,
        lambda kept: kind.fit(kept, catalog, first),
        judge_held(kind, rows, catalog, key),
        jobs=jobs,
        on_step=on_step,
    )
    judged = [result for result in results if isinstance(result, JudgedRow)]
    intervals = intervals_without_family(judged, judged)
    capacity_of = device_capacity(catalog, memory_margin)
    return validate([*skipped, *results], intervals, capacity_of=capacity_of, margin_fraction=memory_margin)
