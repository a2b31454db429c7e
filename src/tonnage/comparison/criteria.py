"""What platforms are compared by: criteria, their rubric or their computed measure. Data, not code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Final, Literal

from pydantic import Field

from tonnage.comparison.user_files import Name, Text, parse_entries, unknown
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.file.fields import StrictModel
from tonnage.workload.file.problems import Problem, raise_problems

PAGE: Final = "docs/adding-a-platform.md"
LOWEST, HIGHEST = 1.0, 5.0
Measure = Literal[
    "usd_per_month",
    "time_at_budget_s",
    "time_on_equal_devices_s",
    "latency_p95_s",
    "throughput_per_s",
    "setup_usd",
    "energy_kwh_per_month",
    "carbon_kg_per_month",
]
MORE_IS_BETTER: Final = frozenset({"throughput_per_s"})
MONEY_CRITERIA: Final = frozenset({"cost", "setup_cost"})  # counted as dollars wherever a choice is made


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One row of the matrix. `rubric`: what a score means; `measure`: scored from a computed figure instead."""

    key: str
    title: str
    group: str
    asks: str
    weight: float
    rubric: tuple[tuple[int, str], ...] = ()
    measure: Measure | None = None
    points_per_doubling: float = 1.0
    of: Literal["any", "framework"] = "any"  # which profiles say something of it

    @property
    def scored(self) -> bool:
        return bool(self.rubric) or self.measure is not None


class CriterionEntry(StrictModel):
    title: Text
    group: Text
    asks: Text
    weight: Annotated[float, Field(ge=0, le=100)] = 1.0
    rubric: dict[Annotated[str, Field(pattern="^[1-5]$")], Text] = Field(default_factory=dict)
    measure: Measure | None = None
    points_per_doubling: Annotated[float, Field(gt=0, le=4)] = 1.0
    of: Literal["any", "framework"] = "any"


class CriteriaFile(StrictModel):
    criteria: dict[Name, CriterionEntry]


def parse_criteria(text: str, *, file: str | None = None) -> tuple[Criterion, ...]:
    """The criteria of a file, in its order. WorkloadError where one has a rubric and a measure, or a rubric without
    its ends."""
    entries, document = parse_entries(text, CriteriaFile, file=file, page=PAGE)
    problems = []
    for name, one in entries.criteria.items():
        where = ("aspects", name)
        if one.rubric and one.measure:
            problems.append(Problem(where, "has a rubric and a measure", "a score is judged or computed, not both"))
        if one.rubric and not {"1", "5"} <= set(one.rubric):
            problems.append(Problem((*where, "rubric"), "has no 1 or no 5", "say what the worst and the best are"))
    raise_problems(problems, document)
    return tuple(
        Criterion(
            key=name,
            title=one.title,
            group=one.group,
            asks=one.asks,
            weight=one.weight,
            rubric=tuple(sorted((int(level), said) for level, said in one.rubric.items())),
            measure=one.measure,
            points_per_doubling=one.points_per_doubling,
            of=one.of,
        )
        for name, one in entries.criteria.items()
    )


@lru_cache(maxsize=1)
def load_criteria() -> tuple[Criterion, ...]:
    """The packaged criteria."""
    return parse_criteria(
        files("tonnage.comparison").joinpath("data/criteria.yaml").read_text("utf-8"), file="criteria.yaml"
    )


def weight_problems(weights: Mapping[str, float], criteria: Sequence[Criterion]) -> list[Problem]:
    """What is wrong with weights of one's own: names of no criterion, or of one without scores, values below 0."""
    known = {criterion.key: criterion for criterion in criteria}
    found = []
    for key, weight in weights.items():
        path = ("weights", key)
        if key not in known:
            found.append(unknown(path, "criterion", key, known))
        elif not weight >= 0 or math.isinf(weight):
            found.append(
                Problem(path, f"found {weight:g}, expected a number of at least 0", "0 leaves a criterion out")
            )
        elif not known[key].scored and weight > 0:
            found.append(Problem(path, "has a weight, but this criterion is not scored", "leave it out"))
    return found


def measured_score(criterion: Criterion, value: float, best: float) -> float:
    """5 for the best value; `points_per_doubling` off for each factor of two behind it, 1 at least.

    >>> cost = Criterion(key="cost", title="", group="", asks="", weight=1, measure="usd_per_month")
    >>> measured_score(cost, 100.0, 100.0), measured_score(cost, 400.0, 100.0), measured_score(cost, 1e6, 1.0)
    (5.0, 3.0, 1.0)
    """
    if value <= 0 or best <= 0:
        return HIGHEST if value == best else LOWEST
    behind = best / value if criterion.measure in MORE_IS_BETTER else value / best
    return min(HIGHEST, max(LOWEST, HIGHEST - criterion.points_per_doubling * math.log2(behind)))


def best_of(criterion: Criterion, figures: Mapping[str, Figure]) -> float:
    """The best expected value among `figures`."""
    values = [figure.value for figure in figures.values()]
    return max(values) if criterion.measure in MORE_IS_BETTER else min(values)
