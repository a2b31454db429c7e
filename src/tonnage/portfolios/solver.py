"""HiGHS, spoken to in one place: rows and columns in, the best solution found and a proven bound out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tonnage.errors import TonnageError
from tonnage.portfolios.program import LinearProgram
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

GAP = 1e-5  # stop here where it is reached soon
NODES = 2_000  # else after so many branch-and-bound nodes (a count, not a time: the same answer on every machine)
GIVE_UP_S = 120.0
PATIENT = 10  # times the nodes where nothing was found among the first
# Searching inside neighbourhoods of a solution takes half the time, and branching finds as good ones at these sizes.
QUICK: dict[str, Any] = {
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best found, and the proven bound that none is below. USD a month, constant costs included."""

    x: Array
    total: float
    bound: float

    @property
    def gap(self) -> float:
        return max(self.total - self.bound, 0.0) / abs(self.total) if self.total else 0.0


class PortfolioUnsolved(TonnageError):
    """The solver stopped without a solution and without a proof that there is none."""


def solve(
    program: LinearProgram,
    *,
    start: Array | None = None,
    gap: float = GAP,
    nodes: int = NODES,
) -> Solution | None:
    """The cheapest solution to a proven gap; None where none exists.

    `start` is a solution of the program to begin from. Raises PortfolioUnsolved.
    """
    highspy: Any = import_module("highspy")
    scale = _scale(program.cost)
    model = _model(highspy, program, scale)
    states, feasible = highspy.HighsModelStatus, highspy.SolutionStatus.kSolutionStatusFeasible
    for options in (QUICK, {"mip_max_nodes": PATIENT * nodes}):
        highs = _run(highspy, model, {"mip_rel_gap": gap, "mip_max_nodes": nodes} | options, start)
        status, info = highs.getModelStatus(), highs.getInfo()
        if status in (states.kInfeasible, states.kUnboundedOrInfeasible):
            return None
        if info.primal_solution_status == feasible:
            total = float(info.objective_function_value) * scale
            # Costs are never negative, so nothing lies below 0 where no bound was proven.
            least = total if status == states.kOptimal else 0.0
            proven = float(info.mip_dual_bound) * scale if np.isfinite(info.mip_dual_bound) else least
            return Solution(x=np.array(highs.getSolution().col_value), total=total, bound=min(proven, total))
    raise PortfolioUnsolved(
        f"the solver stopped ({highs.modelStatusToString(status)}) before it found an assignment",
        hint="a wider `share_tolerance_percent`, or `split: true` on large workloads, makes it easier",
    )


def _run(highspy: Any, model: Any, options: Mapping[str, Any], start: Array | None) -> Any:
    """HiGHS after its run. Nothing it does here depends on the clock but the last resort GIVE_UP_S."""
    highs = highspy.Highs()
    always = {"output_flag": False, "threads": 1, "random_seed": 0, "time_limit": GIVE_UP_S, "presolve": "off"}
    for name, value in {**always, **options}.items():
        highs.setOptionValue(name, value)
    highs.passModel(model)
    if start is not None:
        first = highspy.HighsSolution()
        first.col_value = [float(value) for value in start]
        highs.setSolution(first)
    highs.run()
    return highs


def _scale(cost: Sequence[float]) -> float:
    """Dollars in one unit of the solver: cents and millions solve alike."""
    sizes = np.abs([value for value in cost if value])
    return float(np.median(sizes)) if len(sizes) else 1.0


def _model(highspy: Any, program: LinearProgram, scale: float) -> Any:
    """The program as HiGHS takes it: rows of money divided by their largest coefficient."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.lower), len(program.rows)
    lp.col_cost_, lp.col_lower_ = np.array(program.cost) / scale, np.array(program.lower)
    lp.col_upper_, lp.offset_ = np.array(program.upper), program.offset / scale
    lp.integrality_ = [
        highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous for whole in program.integer
    ]
    start, index = [0], list[int]()
    value, lower, upper = list[float](), list[float](), list[float]()
    for row in program.rows:
        size = max((abs(one) for one in row.terms.values()), default=1.0) or 1.0
        index += list(row.terms)
        value += [one / size for one in row.terms.values()]
        lower.append(row.lower / size)
        upper.append(row.upper / size)
        start.append(len(index))
    lp.row_lower_, lp.row_upper_ = np.array(lower), np.array(upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = np.array(start, dtype=np.int32), np.array(index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(value, dtype=np.float64)
    return lp
