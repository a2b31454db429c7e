"""What each constraint costs: the program solved again with that constraint looser by one step.

Not the duals of a relaxation: with whole runs and whole machines those price a split that cannot be bought. Solving
again says what one step really saves. Both programs are solved to a proven bound, so the saving has proven ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tonnage.portfolios.answer import Limit
from tonnage.portfolios.model import Candidate
from tonnage.portfolios.program import LinearProgram, LinearRow, build_program
from tonnage.portfolios.solver import Solution, solve
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.portfolio.values import Portfolio

SHARE_STEP = 0.01  # one percentage point
DEADLINE_STEP_H = 1.0
DEADLINES_PRICED = 5  # of the costliest workloads: each is a plan more
NOISE = 1e-7  # of the cost: what two solutions may differ by in rounding alone
Replan = Callable[[int, float], list[Candidate]]  # a workload's candidates under a later deadline (s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A portfolio, its program and the solution."""

    portfolio: Portfolio
    candidates: Sequence[Candidate]
    program: LinearProgram
    solution: Solution


def price_limits(solved: Solved, replan: Replan | None = None) -> tuple[Limit, ...]:
    """Every limit of the portfolio with what one step more saves; deadlines where `replan` is given."""
    limits = [*_tolerance_limit(solved), *_row_limits(solved), *_commitment_limits(solved)]
    if replan is not None:
        limits += _deadline_limits(solved, replan)
    return tuple(limits)


def _row_limits(solved: Solved) -> Iterator[Limit]:
    program = solved.program
    for place, row in enumerate(program.rows):
        if row.kind == "share":
            yield _share_limit(solved, place, row)
        elif row.kind == "capacity":
            step = min(row.terms.values(), default=1.0)
            looser = replace(row, upper=row.upper + step)
            saved = _savings(solved, _with_row(program, place, looser))
            yield _limit(row.label, "capacity", row.upper, _value(row, solved.solution), "GPUs", step, saved)
        elif row.kind == "budget":  # the cost is what is minimised: a looser budget never lowers it
            limit = row.upper + program.offset
            yield _limit(row.label, "budget", limit, solved.solution.total, "USD a month", 1.0, (0.0, 0.0, 0.0))


def _tolerance_limit(solved: Solved) -> Iterator[Limit]:
    """All shares a point looser at once: one share alone often cannot move, because another mirrors it."""
    portfolio, program = solved.portfolio, solved.program
    rows = [looser_share(row, program, SHARE_STEP) if row.kind == "share" else row for row in program.rows]
    if not any(row.kind == "share" for row in rows):
        return
    off = [
        abs(share_reached(row, solved.solution, edge_of(row, portfolio)) - portfolio.shares[row.index].fraction)
        for row in program.rows
        if row.kind == "share"
    ]
    saved = _savings(solved, replace(program, rows=rows))
    tolerance = portfolio.share_tolerance
    yield _limit("share tolerance", "share", tolerance, max(off), "fraction of spend", SHARE_STEP, saved)


def edge_of(row: LinearRow, portfolio: Portfolio) -> float:
    """The share at which a share row is tight."""
    share = portfolio.shares[row.index].fraction
    return share + (-1 if np.isfinite(row.lower) else 1) * portfolio.share_tolerance


def _share_limit(solved: Solved, place: int, row: LinearRow) -> Limit:
    program, edge = solved.program, edge_of(row, solved.portfolio)
    saved = _savings(solved, _with_row(program, place, looser_share(row, program, SHARE_STEP)))
    reached = share_reached(row, solved.solution, edge)
    return _limit(row.label, "share", edge, reached, "fraction of spend", SHARE_STEP, saved)


def looser_share(row: LinearRow, program: LinearProgram, step: float) -> LinearRow:
    """A share row whose edge is `step` of the spend further out: spend_p - (edge ± step)·T."""
    sign = 1.0 if np.isfinite(row.lower) else -1.0
    terms = dict(row.terms)
    for column, cost in enumerate(program.cost):
        if cost:
            terms[column] = terms.get(column, 0.0) + sign * step * cost
    moved = -sign * step * program.offset
    return replace(row, terms=terms, lower=row.lower + moved, upper=row.upper + moved)


def share_reached(row: LinearRow, solution: Solution, edge: float) -> float:
    """The share a solution gives the provider of a share row: spend_p / T, at least 0 after rounding."""
    constant = -(row.lower if np.isfinite(row.lower) else row.upper)  # fixed - edge·offset
    return max(0.0, edge + (_value(row, solution) + constant) / solution.total) if solution.total else 0.0


def _commitment_limits(solved: Solved) -> Iterator[Limit]:
    program = solved.program
    for one, column in zip(solved.portfolio.commitments, program.steps, strict=True):
        held = one.gpus + round(float(solved.solution.x[column])) * one.step_gpus
        saved = (0.0, 0.0, 0.0)
        if held + one.step_gpus > one.up_to_gpus:  # else one more may be had already
            upper = list(program.upper)
            upper[column] += 1
            saved = _savings(solved, replace(program, upper=upper))
        yield _limit(one.label, "reserved", one.up_to_gpus, held, "GPUs", one.step_gpus, saved)


def _deadline_limits(solved: Solved, replan: Replan) -> Iterator[Limit]:
    """One hour more for the costliest workloads with a deadline: planned again, and solved again where that helps."""
    for index in _costliest(solved)[:DEADLINES_PRICED]:
        entry = solved.portfolio.entries[index]
        deadline_s = entry.workload.constraints.deadline_s
        assert deadline_s is not None
        later = replan(index, deadline_s + DEADLINE_STEP_H * SECONDS_PER_HOUR)
        now = [one for one in solved.candidates if one.entry == index]
        chosen = [one for number, one in enumerate(solved.candidates) if one.entry == index and _runs(solved, number)]
        saved = (0.0, 0.0, 0.0)
        if _offers(later) - _offers(now):
            others = [one for one in solved.candidates if one.entry != index]
            saved = _savings(solved, build_program(solved.portfolio, [*others, *later]), start=False)
        used = max((one.hours for one in chosen), default=0.0)
        yield _limit(
            f"deadline of {entry.name}",
            "deadline",
            deadline_s / SECONDS_PER_HOUR,
            used,
            "hours",
            DEADLINE_STEP_H,
            saved,
        )


def _costliest(solved: Solved) -> list[int]:
    """Workloads with a deadline, the costliest first."""
    cost = dict.fromkeys(range(len(solved.portfolio.entries)), 0.0)
    for number, one in enumerate(solved.candidates):
        cost[one.entry] += one.usd * _runs(solved, number)
    entries = solved.portfolio.entries
    dated = [index for index in cost if entries[index].workload.constraints.deadline_s is not None]
    return sorted(dated, key=lambda index: (-cost[index], index))


def _offers(candidates: Sequence[Candidate]) -> set[tuple[object, ...]]:
    return {(*one.option.identity, round(one.usd, 6), one.option.layout) for one in candidates}


def _runs(solved: Solved, number: int) -> int:
    return solved.program.runs(number, solved.solution.x)


def _savings(solved: Solved, looser: LinearProgram, *, start: bool = True) -> tuple[float, float, float]:
    """(saved, proven at least, at most). The looser program cannot cost more, so less than nothing is nothing."""
    again = solve(looser, start=solved.solution.x if start else None)
    assert again is not None, "a looser program has the solutions of the tighter one"
    now = solved.solution

    def least(saved: float) -> float:
        return saved if saved > NOISE * abs(now.total) else 0.0

    return least(now.total - again.total), least(now.bound - again.total), least(now.total - again.bound)


def _with_row(program: LinearProgram, place: int, row: LinearRow) -> LinearProgram:
    rows = list(program.rows)
    rows[place] = row
    return replace(program, rows=rows)


def _value(row: LinearRow, solution: Solution) -> float:
    return float(sum(value * solution.x[column] for column, value in row.terms.items()))


def _limit(
    name: str, kind: str, limit: float, used: float, unit: str, step: float, saved: tuple[float, float, float]
) -> Limit:
    return Limit(
        name=name, kind=kind, limit=limit, used=used, unit=unit, step=step,
        saves_usd_per_month=saved[0], saves_low_usd_per_month=saved[1], saves_high_usd_per_month=saved[2],
    )  # fmt: skip
