"""The mixed-integer program of a portfolio, as rows and columns, solved by HiGHS.

Columns: x = runs (or, unsplit, the one block of all runs) of a workload on a candidate; l = runs at a time where a
split workload counts in a capacity limit; k = steps committed beyond what is committed already; u = GPU-hours of a
candidate drawn from a commitment. Minimised: T = Σ cost·x - Σ saved·u + Σ price·730·committed.
Rows: every workload's runs are placed; Σ u of a candidate <= its GPU-hours; Σ u of a commitment <= its usable hours;
provider spend within share +- tolerance of T; Σ GPUs at a time <= limit; T <= budget. Two rows keep a share from being
filled with waste: new commitments save at least what they cost, and a candidate that is dearer than another of its
provider is taken only as far as its hours on committed GPUs make up for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tonnage.portfolios.model import Candidate
from tonnage.sizing.estimates import Array
from tonnage.units import HOURS_PER_MONTH
from tonnage.workload.portfolio.values import Portfolio

Terms = dict[int, float]


@dataclass(slots=True)
class LinearRow:
    """lower <= Σ terms <= upper. `label` is empty for rows that cannot be relaxed."""

    terms: Terms
    lower: float = -np.inf
    upper: float = np.inf
    kind: str = ""
    label: str = ""
    index: int = -1  # which share, limit or commitment


@dataclass(slots=True)
class LinearProgram:
    """Columns and rows; costs in USD a month."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[LinearRow] = field(default_factory=list)
    offset: float = 0.0
    x: list[int] = field(default_factory=list)  # column of each candidate
    block: list[int] = field(default_factory=list)  # runs that one of x stands for
    drawn: dict[tuple[int, int], int] = field(default_factory=dict)  # (candidate, commitment) -> column
    steps: list[int] = field(default_factory=list)  # column of each commitment
    lanes: dict[int, int] = field(default_factory=dict)  # candidate -> column of runs at a time

    def column(self, cost: float, upper: float, *, integer: bool) -> int:
        self.cost.append(cost)
        self.lower.append(0.0)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.cost) - 1

    def runs(self, candidate: int, x: Array) -> int:
        """Runs of a candidate in a solution."""
        return round(float(x[self.x[candidate]])) * self.block[candidate]


def build_program(portfolio: Portfolio, candidates: Sequence[Candidate]) -> LinearProgram:
    """The program of `candidates` (all workloads together)."""
    program = LinearProgram()
    _place_runs(program, portfolio, candidates)
    _commit(program, portfolio, candidates)
    _hold_capacity(program, portfolio, candidates)
    spend, constant = _spend(program, portfolio, candidates)
    _hold_shares(program, portfolio, spend, constant)
    if portfolio.budget_usd is not None:
        total = {column: cost for column, cost in enumerate(program.cost) if cost}
        upper = portfolio.budget_usd - program.offset
        program.rows.append(LinearRow(total, upper=upper, kind="budget", label="budget"))
    return program


def _place_runs(program: LinearProgram, portfolio: Portfolio, candidates: Sequence[Candidate]) -> None:
    placed: list[Terms] = [{} for _ in portfolio.entries]
    for one in candidates:
        entry = portfolio.entries[one.entry]
        block, most = (1, entry.runs_per_month) if entry.split else (entry.runs_per_month, 1)
        column = program.column(one.usd * block, most, integer=True)
        program.x.append(column)
        program.block.append(block)
        placed[one.entry][column] = 1.0
    for entry, terms in zip(portfolio.entries, placed, strict=True):
        blocks = float(entry.runs_per_month if entry.split else 1)
        program.rows.append(LinearRow(terms, lower=blocks, upper=blocks))


def _commit(program: LinearProgram, portfolio: Portfolio, candidates: Sequence[Candidate]) -> None:
    assert all(one.gpus in (0, one.up_to_gpus) for one in portfolio.commitments), "held and new are two commitments"
    used: list[Terms] = [{} for _ in portfolio.commitments]
    saved: list[Terms] = [{} for _ in portfolio.commitments]
    for number, one in enumerate(candidates):
        drawn: Terms = {}
        entry = portfolio.entries[one.entry]
        for pool in one.pools:
            column = program.column(-one.usd_per_gpu_hour, one.gpu_hours * entry.runs_per_month, integer=False)
            program.drawn[number, pool] = column
            drawn[column] = used[pool][column] = 1.0
            saved[pool][column] = one.usd_per_gpu_hour
        if drawn:
            x, block = program.x[number], program.block[number]
            program.rows.append(LinearRow(drawn | {x: -one.gpu_hours * block}, upper=0.0))
            if dearer := one.usd - _cheapest_like(one, candidates):
                made_up = dict.fromkeys(drawn, one.usd_per_gpu_hour)
                program.rows.append(LinearRow(made_up | {x: -dearer * block}, lower=0.0))
    for pool, one_commitment in enumerate(portfolio.commitments):
        monthly = one_commitment.usd_per_gpu_hour * HOURS_PER_MONTH
        most = (one_commitment.up_to_gpus - one_commitment.gpus) // one_commitment.step_gpus
        column = program.column(monthly * one_commitment.step_gpus, most, integer=True)
        program.steps.append(column)
        program.offset += monthly * one_commitment.gpus
        usable = HOURS_PER_MONTH * one_commitment.usable_fraction
        terms = used[pool] | {column: -usable * one_commitment.step_gpus}
        upper = usable * one_commitment.gpus
        program.rows.append(LinearRow(terms, upper=upper, kind="reserved", label=one_commitment.label, index=pool))
        if most and saved[pool]:
            worth = saved[pool] | {column: -program.cost[column]}
            program.rows.append(LinearRow(worth, lower=0.0))


def _cheapest_like(one: Candidate, candidates: Sequence[Candidate]) -> float:
    """USD of the cheapest candidate of the same workload and provider that takes no more of any limit."""
    return min(
        other.usd
        for other in candidates
        if other.entry == one.entry
        and other.option.provider == one.option.provider
        and set(other.capacity) <= set(one.capacity)
        and (not other.capacity or (other.gpus <= one.gpus and other.hours <= one.hours))
    )


def _hold_capacity(program: LinearProgram, portfolio: Portfolio, candidates: Sequence[Candidate]) -> None:
    held: list[Terms] = [{} for _ in portfolio.capacity]
    for number, one in enumerate(candidates):
        if not one.capacity:
            continue
        entry = portfolio.entries[one.entry]
        if entry.split:
            column, gpus = _lanes(program, number, one, entry.runs_per_month), one.gpus
        else:
            column, gpus = program.x[number], one.gpus * one.at_once(entry.runs_per_month)
        for limit in one.capacity:
            held[limit][column] = gpus
    for index, (limit_value, terms) in enumerate(zip(portfolio.capacity, held, strict=True)):
        upper = float(limit_value.at_once)
        program.rows.append(LinearRow(terms, upper=upper, kind="capacity", label=limit_value.label, index=index))


def _lanes(program: LinearProgram, number: int, one: Candidate, runs: int) -> int:
    """A column of runs at a time: >= x·hours/730, and >= 1 where x >= 1."""
    column = program.column(0.0, one.at_once(runs), integer=True)
    program.lanes[number] = column
    program.rows.append(LinearRow({program.x[number]: one.hours / HOURS_PER_MONTH, column: -1.0}, upper=0.0))
    program.rows.append(LinearRow({program.x[number]: 1.0 / runs, column: -1.0}, upper=0.0))
    return column


def _spend(
    program: LinearProgram, portfolio: Portfolio, candidates: Sequence[Candidate]
) -> tuple[dict[str, Terms], dict[str, float]]:
    """Each provider's part of the objective: its columns, and what it gets whatever is chosen."""
    spend: dict[str, Terms] = {share.provider: {} for share in portfolio.shares}
    constant: dict[str, float] = {}
    for number, one in enumerate(candidates):
        spend.setdefault(one.option.provider, {})[program.x[number]] = program.cost[program.x[number]]
    for (number, _), column in program.drawn.items():
        spend[candidates[number].option.provider][column] = program.cost[column]
    for pool, one_commitment in enumerate(portfolio.commitments):
        column = program.steps[pool]
        spend.setdefault(one_commitment.provider, {})[column] = program.cost[column]
        held = one_commitment.usd_per_gpu_hour * HOURS_PER_MONTH * one_commitment.gpus
        constant[one_commitment.provider] = constant.get(one_commitment.provider, 0.0) + held
    return spend, constant


def _hold_shares(
    program: LinearProgram, portfolio: Portfolio, spend: Mapping[str, Terms], constant: Mapping[str, float]
) -> None:
    """spend_p - (share ± tolerance)·T: at least 0 below, at most 0 above."""
    for index, share in enumerate(portfolio.shares):
        own, fixed = spend[share.provider], constant.get(share.provider, 0.0)
        for sign, label in ((-1, "at least"), (1, "at most")):
            part = share.fraction + sign * portfolio.share_tolerance
            if not 0.0 < part < 1.0:
                continue
            terms = {column: own.get(column, 0.0) - part * cost for column, cost in enumerate(program.cost) if cost}
            edge = part * program.offset - fixed
            row = LinearRow(terms, kind="share", label=f"{share.provider} share {label}", index=index)
            if sign < 0:
                row.lower = edge
            else:
                row.upper = edge
            program.rows.append(row)
