"""Sums over results as they stream by: about 20 bytes stay for each row."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import isfinite, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.intervals import Intervals, residual
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.validation import (
    CapacityOf,
    ErrorLine,
    MemoryFit,
    SuspectRows,
    ValidationReport,
)
from tonnage.sizing.fitting import fits

WORST_ROWS: Final = 10
SKIPPED_PLACES: Final = 5  # lines named for each reason
NOT_POSITIVE: Final = "the prediction is not a positive number"
FITS: Final = "fits"


class _Codes:
    """Small whole numbers for texts, in order of first sight."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._of: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        code = self._of.get(name)
        if code is None:
            code = self._of[name] = len(self.names)
            self.names.append(name)
        return code


class _Errors:
    """Ratios predicted / measured with what they belong to."""

    KEYS: Final = ("metric", "gpu", "family", "group")

    def __init__(self) -> None:
        self.ratio = array("d")
        self.covered = array("b")
        self.codes = {key: _Codes() for key in self.KEYS}
        self.columns = {key: array("l") for key in self.KEYS}

    def add(self, row: JudgedRow, covered: bool) -> None:
        self.ratio.append(row.predicted / row.measured)
        self.covered.append(covered)
        for key in self.KEYS:
            self.columns[key].append(self.codes[key](getattr(row, key)))

    def lines(self, metric: str, name: str = "") -> tuple[ErrorLine, ...]:
        """One line for each pair of `metric` (a key) and `name` (a key, or none), by name, the most rows first."""
        if not self.ratio:
            return ()
        ratios = np.frombuffer(self.ratio, dtype=np.float64)
        covered = np.frombuffer(self.covered, dtype=np.int8)
        first = self._column(metric)
        second = self._column(name) if name else np.zeros(len(ratios), dtype=np.int64)
        pairs = first * (int(second.max()) + 1) + second
        order = np.argsort(pairs, kind="stable")
        starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
        found = []
        for rows in np.split(order, starts[1:]):
            text = self.codes[name].names[int(second[rows[0]])] if name else ""
            found.append(_line(self.codes[metric].names[int(first[rows[0]])], text, ratios[rows], covered[rows]))
        return tuple(sorted(found, key=lambda line: (line.name, -line.n, line.metric)))

    def _column(self, key: str) -> NDArray[np.int64]:
        return np.array(self.columns[key], dtype=np.int64)


class ErrorTally:
    """What `validate` keeps while results stream by."""

    def __init__(
        self,
        intervals: Intervals | Mapping[str, Intervals],
        capacity_of: CapacityOf | None,
        margin_fraction: float | None = None,
    ) -> None:
        self.intervals, self.capacity_of, self.margin_fraction = intervals, capacity_of, margin_fraction
        self.rows = self.suspect_rows = self.suspect_predicted = self.predicted = 0
        self.skipped: Counter[str] = Counter()
        self.skipped_at: dict[str, list[int]] = {}
        self.good, self.doubtful = _Errors(), _Errors()
        self.fit: Counter[Hashable] = Counter()
        self.worst: list[tuple[float, int, JudgedRow]] = []
        self._bounds: dict[tuple[str, int, int, float, str], tuple[float, float]] = {}
        self._capacity: dict[str, float | None] = {}

    def add(self, result: JudgedRow | SkippedRow) -> None:
        self.rows += 1
        self.suspect_rows += result.suspect
        if isinstance(result, SkippedRow):
            self._skip(result.reason, result.suspect, result.line)
        elif result.metric == FITS:
            self._count_fit(result, said=self._says_fits(result), did=result.measured >= 0.5)
        elif not _comparable(result):
            self._skip(NOT_POSITIVE, result.suspect)
        else:
            self._judge(result)

    def report(self) -> ValidationReport:
        order = sorted(self.worst, key=lambda entry: (-entry[0], -entry[1]))
        return ValidationReport(
            rows=self.rows,
            predicted=self.predicted,
            skipped=tuple(sorted(self.skipped.items(), key=lambda pair: (-pair[1], pair[0]))),
            skipped_at=tuple((reason, tuple(lines)) for reason, lines in sorted(self.skipped_at.items()) if lines),
            metrics=self.good.lines("metric"),
            groups=self.good.lines("group"),
            memory_fit=MemoryFit(
                n=self.fit["n"], false_fits=self.fit["false_fits"], false_misfits=self.fit["false_misfits"]
            ),
            by_gpu=self.good.lines("metric", "gpu"),
            by_family=self.good.lines("metric", "family"),
            worst=tuple(row for _, _, row in order),
            suspect=SuspectRows(
                rows=self.suspect_rows, predicted=self.suspect_predicted, metrics=self.doubtful.lines("metric")
            ),
        )

    def _skip(self, reason: str, suspect: bool, line: int | None = None) -> None:
        if suspect:
            return
        self.skipped[reason] += 1
        places = self.skipped_at.setdefault(reason, [])
        if line is not None and len(places) < SKIPPED_PLACES:
            places.append(line)

    def _judge(self, row: JudgedRow) -> None:
        if row.suspect:
            self.suspect_predicted += 1
            self.doubtful.add(row, self._covers(row))
            return
        self.predicted += 1
        self.good.add(row, self._covers(row))
        self._keep_if_bad(row)
        if row.metric.startswith("peak_mem"):
            self._compare_with_device(row)

    def _keep_if_bad(self, row: JudgedRow) -> None:
        entry = (round(abs(log(row.predicted / row.measured)), 9), -self.rows, row)
        if len(self.worst) < WORST_ROWS:
            heapq.heappush(self.worst, entry)
        elif entry[:2] > self.worst[0][:2]:
            heapq.heapreplace(self.worst, entry)

    def _covers(self, row: JudgedRow) -> bool:
        shared = isinstance(self.intervals, Intervals)
        key = (row.group, row.unseen_factors, row.foreign, row.host_share, "" if shared else row.family)
        if key not in self._bounds:
            spread = self._intervals_of(row.family).spread_of(row)
            self._bounds[key] = (log(spread.low_factor), log(spread.high_factor))
        low, high = self._bounds[key]
        return low <= residual(row) <= high

    def _intervals_of(self, family: str) -> Intervals:
        if isinstance(self.intervals, Intervals):
            return self.intervals
        return self.intervals.get(family) or Intervals()

    def _compare_with_device(self, row: JudgedRow) -> None:
        if self.capacity_of is None:
            return
        if row.gpu not in self._capacity:
            self._capacity[row.gpu] = self.capacity_of(row.gpu)
        capacity = self._capacity[row.gpu]
        if capacity is not None:
            needed = row.predicted if row.needed_gib is None else row.needed_gib
            self._count(said=bool(fits(needed, capacity, 0.0)), did=True)  # it ran there: else there were no reading

    def _says_fits(self, row: JudgedRow) -> bool:
        """The row's own verdict, or one with the margin asked for where the row says what is needed and there."""
        if self.margin_fraction is None or row.needed_gib is None or row.capacity_gib is None:
            return row.predicted >= 0.5
        return bool(fits(row.needed_gib, row.capacity_gib, self.margin_fraction))

    def _count_fit(self, row: JudgedRow, *, said: bool, did: bool) -> None:
        if row.suspect:
            self.suspect_predicted += 1
            return
        self.predicted += 1
        self._count(said=said, did=did)

    def _count(self, *, said: bool, did: bool) -> None:
        self.fit["n"] += 1
        self.fit["false_fits"] += said and not did
        self.fit["false_misfits"] += did and not said


def _comparable(row: JudgedRow) -> bool:
    return isfinite(row.predicted) and row.predicted > 0 and isfinite(row.measured) and row.measured > 0


def _line(metric: str, name: str, ratios: NDArray[np.float64], covered: NDArray[np.int8]) -> ErrorLine:
    signed = 100.0 * (ratios - 1.0)
    return ErrorLine(
        metric=metric,
        n=len(ratios),
        median_abs_pct=float(np.median(np.abs(signed))),
        p90_abs_pct=_quantile(np.abs(signed), 0.90),
        bias_pct=float(np.median(signed)),
        coverage80=float(np.mean(covered)),
        name=name,
    )


def _quantile(values: Sequence[float] | NDArray[np.float64], level: float) -> float:
    return float(np.quantile(np.asarray(values), level))
