"""When no assignment holds: which constraint must give, and by how little, from elastic variables.

Each share, capacity limit and the budget gets a slack; slack is minimised, in parts of what the limit allows (shares
and the budget in parts of the spend), the cost only among equals. First each limit alone gives way, then all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.portfolios.answer import Give
from tonnage.portfolios.model import Candidate
from tonnage.portfolios.prices import edge_of
from tonnage.portfolios.program import LinearProgram, LinearRow
from tonnage.portfolios.solver import Solution, solve
from tonnage.workload.portfolio.values import Portfolio

ELASTIC = ("share", "capacity", "budget")
COST_WEIGHT = 1e-4  # of a solution whose every workload is at its cheapest, against one whole relaxation
LEAST = 1e-6


def find_gives(portfolio: Portfolio, program: LinearProgram, candidates: Sequence[Candidate]) -> tuple[Give, ...]:
    """Single limits whose giving way is enough, the smallest first; if there are none, a smallest set of limits."""
    spend = _reference_spend(portfolio, program, candidates)
    places = [place for place, row in enumerate(program.rows) if row.kind in ELASTIC]
    alone = []
    for place in places:
        freed, slacks = _elastic(program, [place], spend)
        if (found := solve(freed)) is not None:
            alone += _gives(portfolio, program, freed, slacks, found, alone=True)
    if alone:
        return tuple(sorted(alone, key=lambda give: abs(give.needed - give.limit) / max(abs(give.limit), LEAST)))
    freed, slacks = _elastic(program, places, spend)
    found = solve(freed)
    return () if found is None else tuple(_gives(portfolio, program, freed, slacks, found, alone=False))


def _reference_spend(portfolio: Portfolio, program: LinearProgram, candidates: Sequence[Candidate]) -> float:
    """Every workload at its cheapest: what dollars of slack are measured by."""
    cheapest: dict[int, float] = {}
    for one in candidates:
        usd = one.usd * portfolio.entries[one.entry].runs_per_month
        cheapest[one.entry] = min(usd, cheapest.get(one.entry, np.inf))
    return max(sum(cheapest.values()) + program.offset, LEAST)


def _elastic(program: LinearProgram, places: Sequence[int], spend: float) -> tuple[LinearProgram, dict[int, int]]:
    """The program with a slack column in each of these rows; its objective is the slack, then the cost."""
    freed = replace(
        program,
        cost=[COST_WEIGHT * cost / spend for cost in program.cost],
        lower=list(program.lower),
        upper=list(program.upper),
        integer=list(program.integer),
        rows=list(program.rows),
        offset=0.0,
    )
    slacks = {}
    for place in places:
        row = program.rows[place]
        most = max(row.upper, 1.0) if row.kind == "capacity" else spend
        column = freed.column(1.0 / most, np.inf, integer=False)
        sign = 1.0 if np.isfinite(row.lower) else -1.0
        freed.rows[place] = replace(row, terms=row.terms | {column: sign})
        slacks[place] = column
    return freed, slacks


def _gives(
    portfolio: Portfolio,
    program: LinearProgram,
    freed: LinearProgram,
    slacks: dict[int, int],
    found: Solution,
    *,
    alone: bool,
) -> list[Give]:
    total = float(np.dot(program.cost, found.x[: len(program.cost)])) + program.offset
    out = []
    for place, column in slacks.items():
        slack, row = float(found.x[column]), freed.rows[place]
        if slack <= LEAST * max(1.0, abs(total)) and not alone:
            continue
        limit, needed, unit = _needed(portfolio, program, row, slack, total)
        out.append(Give(name=row.label, kind=row.kind, limit=limit, needed=needed, unit=unit, alone=alone))
    return out


def _needed(
    portfolio: Portfolio, program: LinearProgram, row: LinearRow, slack: float, total: float
) -> tuple[float, float, str]:
    if row.kind == "capacity":
        return row.upper, float(np.ceil(row.upper + slack - LEAST)), "GPUs"
    if row.kind == "budget":
        return row.upper + program.offset, row.upper + program.offset + slack, "USD a month"
    sign, edge = -1.0 if np.isfinite(row.lower) else 1.0, edge_of(row, portfolio)
    return edge, edge + sign * slack / total if total else edge, "fraction of spend"
