"""Predicted against measured, summed up: error, bias and coverage by metric, GPU and family; what fits; the worst rows.

The error of a row is |predicted / measured - 1|. Rows of doubtful quality are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tonnage.calibration.intervals import Intervals
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.values import dataclass

CapacityOf = Callable[[str], float | None]  # GiB that a run may use on this GPU; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLine:
    """The error of `n` rows of one metric. `name` is the GPU or the family, blank for all rows."""

    metric: str
    n: int
    median_abs_pct: float
    p90_abs_pct: float
    bias_pct: float  # median of predicted / measured - 1
    coverage80: float  # share of rows, 0 to 1, that lie in their 80 % interval
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Does it fit? Rows that say so, and memory rows against the memory of their own device."""

    n: int = 0
    false_fits: int = 0  # said to fit, and did not
    false_misfits: int = 0  # said not to fit, and did


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectRows:
    """Rows whose source is doubtful."""

    rows: int = 0
    predicted: int = 0
    metrics: tuple[ErrorLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """rows = predicted + skipped + suspect rows."""

    rows: int
    predicted: int
    skipped: tuple[tuple[str, int], ...]  # reason and count, the most frequent first
    skipped_at: tuple[tuple[str, tuple[int, ...]], ...]  # reason and lines of the file, the first few
    metrics: tuple[ErrorLine, ...]
    groups: tuple[ErrorLine, ...]  # the same rows by kind of prediction: `metric` is the interval's group
    memory_fit: MemoryFit
    by_gpu: tuple[ErrorLine, ...]
    by_family: tuple[ErrorLine, ...]
    worst: tuple[JudgedRow, ...]  # by |ln(predicted / measured)|
    suspect: SuspectRows


def error_pct(row: JudgedRow) -> float:
    """Signed error in %: predicted / measured - 1."""
    return 100.0 * (row.predicted / row.measured - 1.0)


def validate(
    results: Iterable[JudgedRow | SkippedRow],
    intervals: Intervals | Mapping[str, Intervals] | None = None,
    *,
    capacity_of: CapacityOf | None = None,
    margin_fraction: float | None = None,
) -> ValidationReport:
    """Sum up any number of results; they are not kept.

    `intervals`: one for all rows, or one for each family (made without it); by default the judgement of
    `sizing.assumptions`. `capacity_of` gives the memory a device has for a run (see `kinds.device_capacity`); without
    it only «fits» rows count as statements about fitting. `margin_fraction` is what those keep free of the memory they
    state; None: as they were judged.
    """
    from tonnage.calibration.tally import ErrorTally

    tally = ErrorTally(intervals or Intervals(), capacity_of, margin_fraction)
    for result in results:
        tally.add(result)
    return tally.report()
