"""Cross-validation: fit without one family (or GPU, or engine), judge on it, over all of them."""

from __future__ import annotations

import copyreg
import multiprocessing
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from tonnage.calibration.judgement import Judged, Skipped
from tonnage.errors import InputError

Row = TypeVar("Row")
Fit = TypeVar("Fit")
OnStep = Callable[[str, int, int], None]  # what was left out, its number from 1, how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Generic[Fit]):
    """One round: what was left out, the fit without it, and how that fit did on it."""

    value: str
    fitted: Fit
    results: tuple[Judged | Skipped, ...]


def left_out(
    rows: Sequence[Row],
    key: Callable[[Row], str],
    fit: Callable[[list[Row]], Fit],
    judge: Callable[[list[Row], Fit], Sequence[Judged | Skipped]],
    *,
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> Iterator[LeftOut[Fit]]:
    """A round for each value of `key`, in alphabetical order; rows keep the order they came in.

    With `jobs` > 1 rounds run side by side in processes, with the same results in the same order.
    Raises InputError when there is only one value, since nothing would be left to fit on.
    """
    held: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        held[key(row)].append(row)
    if len(held) < 2:
        raise InputError(
            "all rows share one value, so that nothing is left to fit on when it is left out",
            hint="leave out another attribute, or validate without --leave-out",
        )

    def round_without(value: str) -> LeftOut[Fit]:
        fitted = fit([row for row in rows if key(row) != value])
        return LeftOut(value=value, fitted=fitted, results=tuple(judge(held[value], fitted)))

    values = sorted(held)
    rounds = map(round_without, values) if jobs < 2 or not _can_fork() else _side_by_side(round_without, values, jobs)
    for number, value in enumerate(values, start=1):
        if on_step is not None:
            on_step(value or "blank", number, len(values))
        yield next(rounds)


def leave_one_out(
    rows: Sequence[Row],
    key: Callable[[Row], str],
    fit: Callable[[list[Row]], Fit],
    judge: Callable[[list[Row], Fit], Sequence[Judged | Skipped]],
    *,
    jobs: int = 1,
    on_step: OnStep | None = None,
) -> list[Judged | Skipped]:
    """Every row judged by a fit that saw no row with the same value of `key`."""
    rounds = left_out(rows, key, fit, judge, jobs=jobs, on_step=on_step)
    return [result for one in rounds for result in one.results]


def usual_jobs() -> int:
    """As many rounds side by side as this process has processors, up to eight."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


_task: Callable[[str], Any] | None = None  # what forked processes do; they inherit it, since closures do not pickle


def _side_by_side(task: Callable[[str], Any], values: Sequence[str], jobs: int) -> Iterator[Any]:
    global _task
    _task = task
    copyreg.pickle(MappingProxyType, _reduced)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside the threads of a matrix library
        pool = multiprocessing.get_context("fork").Pool(min(jobs, len(values)))
    try:
        yield from pool.imap(_do, values)
    finally:
        pool.terminate()
        _task = None


def _do(value: str) -> Any:
    assert _task is not None
    return _task(value)


def _reduced(table: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _read_only, (dict(table),)


def _read_only(table: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(table)


def _can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()
