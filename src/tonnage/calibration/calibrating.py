"""From fact files to a calibration: fit, cross-validate with each family left out, intervals from what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.calibration.intervals import fit_intervals, intervals_without_family
from tonnage.calibration.kinds import (
    DISTANCE_KEYS,
    FactKind,
    KindName,
    generation_key,
    kind_named,
    rows_to_fit,
    seen_names,
    with_distance,
    with_quality,
)
from tonnage.calibration.leave_out import Fold, LeftOut, OnStep, left_out_by
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.store import (
    Calibration,
    DataDigest,
    ResidualLine,
    SeenNames,
    ValueRange,
    digest_file,
    numbers_within,
)
from tonnage.calibration.validation import ErrorLine, validate
from tonnage.catalog.catalog import Catalog
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossValidation:
    """One table fitted, judged by the fit and judged with each family (or other key) left out."""

    kind: str
    fitted: Any
    judged: tuple[JudgedRow | SkippedRow, ...]
    left_out: tuple[JudgedRow | SkippedRow, ...]
    distant: tuple[JudgedRow, ...]  # of all rounds, the rows that then lie far from the data
    apart: Mapping[str, tuple[tuple[JudgedRow, ...], ...]]  # by what else was left out (GPU, engine): a round each
    beside: tuple[JudgedRow, ...] = ()  # what intervals rest on besides: peaks of `_beside`
    ranges: tuple[ValueRange, ...]
    data: DataDigest
    seen: tuple[SeenNames, ...] = ()

    @property
    def near(self) -> tuple[JudgedRow, ...]:
        """Every row judged by a fit that has not seen its family."""
        return (*(row for row in self.left_out if isinstance(row, JudgedRow)), *self.beside)


def cross_validate(
    kind: FactKind, path: Path, catalog: Catalog, *, leave_out: str = "family",
    peaks: Sequence[Path] = (), jobs: int = 1, on_step: OnStep | None = None,
) -> CrossValidation:  # fmt: skip
    """Fit a table and judge every row twice: by the fit on all rows, and by one that never saw its family.

    Each GPU, engine and (of training) generation is left out in turn too, so that how much wider an interval must be
    for a device or an engine without rows is measured on devices and engines that a fit did not see.
    Every round starts from the judgements before any fit, so that nothing of the family left out leaks into it.
    `peaks`: further tables, whose peaks of memory no fit sees; intervals rest on them too.
    Raises InputError when the file cannot be read or has nothing to fit.
    """
    rows, skipped = rows_to_fit(kind, path, catalog)
    unseen = [row for one in peaks for row in rows_to_fit(kind, one, catalog)[0]]
    if on_step is not None:
        on_step("nothing", 0, 0)
    fitted = kind.fit(rows, catalog, None)
    further = _further_cuts(kind, rows, catalog, leave_out)
    folds = {leave_out: kind.key(leave_out), **further}
    found = left_out_by(
        rows,
        [Fold(name=name, key=key, judge=judge_held(kind, rows, catalog, key)) for name, key in folds.items()],
        lambda kept: kind.fit(kept, catalog, None),
        jobs=jobs,
        on_step=on_step,
    )
    rounds = found[leave_out]
    apart = {name: tuple(_far(one) for one in found[name]) for name in further}
    away = [_far(one) for one in rounds] + [held for parts in apart.values() for held in parts]
    return CrossValidation(
        kind=kind.name,
        fitted=fitted,
        judged=(*skipped, *with_quality(rows, kind.judge(rows, catalog, fitted))),
        left_out=(*skipped, *(result for one in rounds for result in one.results)),
        distant=tuple(row for held in away for row in held),
        apart=apart,
        beside=tuple(_beside(kind, rows, folds[leave_out], rounds, unseen, fitted, catalog)),
        ranges=value_ranges(kind.name, fitted, [one.fitted for one in rounds]),
        data=DataDigest(kind=kind.name, sha256=digest_file(path), rows=len(rows)),
        seen=tuple(
            SeenNames(kind=kind.name, key=key, names=tuple(sorted(names)))
            for key, names in seen_names(kind, rows, catalog).items()
        ),
    )


def _far(one: LeftOut[Any]) -> tuple[JudgedRow, ...]:
    """Rows of a round that lie away from what its fit has seen."""
    return tuple(row for row in one.results if isinstance(row, JudgedRow) and row.unseen_factors > 0)


def _beside(
    kind: FactKind,
    rows: Sequence[Any],
    value_of: Callable[[Any], str],
    rounds: Sequence[LeftOut[Any]],
    unseen: Sequence[Any],
    fitted: Any,
    catalog: Catalog,
) -> Iterator[JudgedRow]:
    """Peaks of families that are in no fit; and every peak once more with its program not stated, which says how far
    off a prediction is for a user who does not name one."""
    known = {kind.key("family")(row) for row in rows}
    peaks = [row for row in unseen if kind.prints_peak(row) and kind.key("family")(row) not in known]
    parts = [(peaks, fitted), ([kind.unstated(row) for row in peaks], fitted)]
    for one in rounds:
        held = [kind.unstated(row) for row in rows if value_of(row) == one.value and kind.prints_peak(row)]
        parts.append((held, one.fitted))
    for part, fit in parts:
        results = with_quality(part, kind.judge(part, catalog, fit)) if part else ()
        yield from (result for result in results if isinstance(result, JudgedRow))


def _further_cuts(
    kind: FactKind, rows: Sequence[Any], catalog: Catalog, leave_out: str
) -> dict[str, Callable[[Any], str]]:
    """What else is left out, to see how far predictions go wrong away from the data: each GPU, each engine, and (of
    training) each generation of GPUs whole, as a device of a maker or a generation without rows is."""
    found = {key: kind.keys[key] for key in DISTANCE_KEYS if key in kind.keys and key != leave_out}
    if kind.name == "training":
        found["generation"] = generation_key(catalog)
    return {name: key for name, key in found.items() if len({key(row) for row in rows}) > 1}


def judge_held(
    kind: FactKind, rows: Sequence[Any], catalog: Catalog, value_of: Callable[[Any], str]
) -> Callable[[list[Any], Any], list[JudgedRow | SkippedRow]]:
    """Judges the rows of a round, which share one value, at their distance from the others."""

    def judge(held: list[Any], fitted: Any) -> list[JudgedRow | SkippedRow]:
        out = value_of(held[0])
        seen = seen_names(kind, (row for row in rows if value_of(row) != out), catalog)
        return list(with_distance(kind, held, with_quality(held, kind.judge(held, catalog, fitted)), seen, catalog))

    return judge


def calibrate_tables(
    files: Mapping[KindName, Path],
    catalog: Catalog,
    *,
    made_on: str,
    leave_out: str = "family",
    peaks: Sequence[Path] = (),
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> tuple[Calibration, dict[KindName, CrossValidation]]:
    """The calibration of some tables, and the cross-validations it rests on: the one way that any is made.

    `peaks`: further training tables (see `cross_validate`). Raises InputError as `cross_validate` does.
    """
    parts = {
        name: cross_validate(
            kind_named(name), path, catalog, leave_out=leave_out, peaks=peaks if name == "training" else (),
            jobs=jobs, on_step=on_step,
        )
        for name, path in files.items()
    }  # fmt: skip
    return make_calibration(list(parts.values()), made_on=made_on, left_out=leave_out), parts


def make_calibration(parts: Sequence[CrossValidation], *, made_on: str, left_out: str) -> Calibration:
    """One calibration of the tables cross-validated."""
    intervals = fit_intervals(
        (row for part in parts for row in part.near),
        (row for part in parts for row in part.distant),
    )
    fits = {part.kind: part.fitted for part in parts}
    return Calibration(
        made_on=made_on,
        left_out=left_out,
        training=fits.get("training"),
        inference=fits.get("inference"),
        intervals=intervals,
        ranges=tuple(one for part in parts for one in part.ranges),
        residuals=tuple(line for part in parts for line in residual_lines(part)),
        data=tuple(part.data for part in parts),
        seen=tuple(one for part in parts for one in part.seen),
    )


def value_ranges(kind: str, fitted: Any, without: Sequence[Any]) -> tuple[ValueRange, ...]:
    """Each number that a fit moves, with the least and greatest it takes in the fits `without` one family each. What
    else a fit holds (its allowed ranges, counts of rows, residuals) is left out."""
    others = [_parameters(one, kind) for one in without]
    found = []
    for name, value in _parameters(fitted, kind).items():
        seen = [value, *(one[name] for one in others if name in one)]
        found.append(ValueRange(name=name, value=value, low=min(seen), high=max(seen)))
    return tuple(found)


def _parameters(fitted: Any, kind: str) -> dict[str, float]:
    beside = tuple(f"{kind}.{part}." for part in ("ranges", "rows", "residuals"))
    return {name: value for name, value in numbers_within(fitted, kind).items() if not f"{name}.".startswith(beside)}


def residual_lines(part: CrossValidation) -> tuple[ResidualLine, ...]:
    """Fitted and left-out error of each group, side by side; coverage by intervals that never saw the row's family."""
    fitted = {line.metric: line for line in validate(part.judged).groups}
    lines = validate(part.left_out, intervals_without_family(part.near, part.distant)).groups
    return tuple(_residual_line(part.kind, line, fitted.get(line.metric)) for line in lines)


def _residual_line(kind: str, line: ErrorLine, fitted: ErrorLine | None) -> ResidualLine:
    return ResidualLine(
        kind=kind,
        group=line.metric,
        n=line.n,
        fitted_median_abs_pct=None if fitted is None else fitted.median_abs_pct,
        fitted_p90_abs_pct=None if fitted is None else fitted.p90_abs_pct,
        left_out_median_abs_pct=line.median_abs_pct,
        left_out_p90_abs_pct=line.p90_abs_pct,
        left_out_coverage80=line.coverage80,
    )
