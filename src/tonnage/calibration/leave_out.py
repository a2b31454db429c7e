"""Cross-validation: fit without one family (or GPU, or engine), judge on it, over all of them."""

from __future__ import annotations

import copyreg
import multiprocessing
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.errors import InputError
from tonnage.values import dataclass

Row = TypeVar("Row")
Fit = TypeVar("Fit")
OnStep = Callable[[str, int, int], None]  # what was left out, its number from 1, how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Generic[Fit]):
    """One round: what was left out, the fit without it, and how that fit did on it."""

    value: str
    fitted: Fit
    results: tuple[JudgedRow | SkippedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Generic[Row]):
    """one way to cut a table: `key` names what shares a part; `judge` takes the part left out and a fit on the rest."""

    name: str
    key: Callable[[Row], str]
    judge: Callable[[list[Row], Any], Sequence[JudgedRow | SkippedRow]]


def left_out_by(
    rows: Sequence[Row],
    folds: Sequence[Fold[Row]],
    fit: Callable[[list[Row]], Fit],
    *,
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> dict[str, tuple[LeftOut[Fit], ...]]:
    """Rounds of several folds, by the fold's name: one for each value of its key, in alphabetical order; rows keep the
    order they came in.

    With `jobs` > 1 all rounds run side by side in processes, whichever fold they are of, with the same results.
    Raises InputError when a fold has only one value, since nothing would be left to fit on.
    """
    parts = {(fold.name, value): held for fold in folds for value, held in _parts(rows, fold).items()}
    by_name = {fold.name: fold for fold in folds}

    def round_without(at: tuple[str, str]) -> LeftOut[Fit]:
        fold, value = by_name[at[0]], at[1]
        fitted = fit([row for row in rows if fold.key(row) != value])
        return LeftOut(value=value, fitted=fitted, results=tuple(fold.judge(parts[at], fitted)))

    places = list(parts)
    rounds = map(round_without, places) if jobs < 2 or not _can_fork() else _side_by_side(round_without, places, jobs)
    found: dict[str, list[LeftOut[Fit]]] = {fold.name: [] for fold in folds}
    for number, (name, value) in enumerate(places, start=1):
        if on_step is not None:
            on_step(value or "blank", number, len(places))
        found[name].append(next(rounds))
    return {name: tuple(done) for name, done in found.items()}


def _parts(rows: Sequence[Row], fold: Fold[Row]) -> dict[str, list[Row]]:
    held: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        held[fold.key(row)].append(row)
    if len(held) < 2:
        raise InputError(
            "all rows share one value, so that nothing is left to fit on when it is left out",
            hint="leave out another attribute, or validate without --leave-out",
        )
    return {value: held[value] for value in sorted(held)}


def left_out(
    rows: Sequence[Row],
    key: Callable[[Row], str],
    fit: Callable[[list[Row]], Fit],
    judge: Callable[[list[Row], Fit], Sequence[JudgedRow | SkippedRow]],
    *,
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> tuple[LeftOut[Fit], ...]:
    """`left_out_by` for one key."""
    fold = Fold(name="", key=key, judge=judge)
    return left_out_by(rows, [fold], fit, jobs=jobs, on_step=on_step)[""]


def leave_one_out(
    rows: Sequence[Row],
    key: Callable[[Row], str],
    fit: Callable[[list[Row]], Fit],
    judge: Callable[[list[Row], Fit], Sequence[JudgedRow | SkippedRow]],
    *,
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> list[JudgedRow | SkippedRow]:
    """Every row judged by a fit that saw no row with the same value of `key`."""
    rounds = left_out(rows, key, fit, judge, jobs=jobs, on_step=on_step)
    return [result for one in rounds for result in one.results]


def usual_jobs() -> int:
    """As many rounds side by side as this process has processors, up to eight."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


_task: Callable[[Any], Any] | None = None  # what forked processes do; they inherit it, since closures do not pickle


def _side_by_side(task: Callable[[Any], Any], values: Sequence[Any], jobs: int) -> Iterator[Any]:
    global _task
    _task = task
    copyreg.pickle(MappingProxyType, _reduced)
    # A `multiprocessing.Pool` that is terminated may wait forever for a lock that one of its killed processes held.
    pool = ProcessPoolExecutor(min(jobs, len(values)), mp_context=multiprocessing.get_context("fork"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside the threads of a matrix library
            results = pool.map(_do, values)
        yield from results
    finally:
        pool.shutdown(cancel_futures=True)
        _task = None


def _do(value: Any) -> Any:
    assert _task is not None
    return _task(value)


def _reduced(table: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _read_only, (dict(table),)


def _read_only(table: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(table)


def _can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()
