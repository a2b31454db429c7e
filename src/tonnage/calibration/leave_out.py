"""Cross-validation: fit without one family (or GPU, or engine), judge on it, over all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
    on_step: OnStep | None = None,
) -> Iterator[LeftOut[Fit]]:
    """A round for each value of `key`, in alphabetical order; rows keep the order they came in.

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
    for number, value in enumerate(sorted(held), start=1):
        if on_step is not None:
            on_step(value or "blank", number, len(held))
        fitted = fit([row for row in rows if key(row) != value])
        yield LeftOut(value=value, fitted=fitted, results=tuple(judge(held[value], fitted)))


def leave_one_out(
    rows: Sequence[Row],
    key: Callable[[Row], str],
    fit: Callable[[list[Row]], Fit],
    judge: Callable[[list[Row], Fit], Sequence[Judged | Skipped]],
    *,
    on_step: OnStep | None = None,
) -> list[Judged | Skipped]:
    """Every row judged by a fit that saw no row with the same value of `key`."""
    return [result for one in left_out(rows, key, fit, judge, on_step=on_step) for result in one.results]
