"""The `sweep` section of a workload file: which values are tried, and by which figure they are judged."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tonnage.workload.file.fields import Count, Duration, Flag, Spelled, StrictModel, Usd, Word, key

Number = Annotated[int | float, Spelled("number")]
Sampler = Literal["tpe", "random", "grid"]
Pruning = Literal["none", "median"]
Direction = Literal["minimize", "maximize"]


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class ParameterFields(StrictModel):
    """What one key of the file may be. A list is short for `{choices: ...}`; else a range from `low` to `high`."""

    choices: Annotated[tuple[Any, ...], BeforeValidator(_as_tuple), Spelled("list of values")] | None = key(
        "Values that are tried.", default=None, shown="a range", example="[16, 32]"
    )
    low: Number | None = key("Lowest value of a range.", default=None, shown="none", example="1e-5")
    high: Number | None = key("Highest value of a range.", default=None, shown="none", example="1e-2")
    log: Flag = key("Whether each power of ten is as likely as the next.", default=False, example="true")
    step: Number | None = key("Distance between the values of a range.", default=None, shown="any value", example="2")


class ObjectiveFields(StrictModel):
    """By what trials are judged. One text is short for `{figure: ...}`."""

    figure: Word = key("A figure of the evaluations.", example="macro_f1")
    direction: Direction | None = key(
        "Which way is better.", default=None, shown="`minimize` for losses and errors", example="maximize"
    )


class SweepLimitFields(StrictModel):
    """Limits over all trials together, at which those under way save and stop."""

    cost_usd: Usd | None = key(
        "Most the trials may cost together; needs `run.limits.usd_per_hour`.", default=None, shown="none", unit="USD",
        example="50",
    )  # fmt: skip
    wall: Duration | None = key(
        "Longest the sweep may be under way, all its resumptions together.", default=None, shown="none", example="8h"
    )


def _listed(value: Any) -> Any:
    return {"choices": value} if isinstance(value, list) else value


def _figure(value: Any) -> Any:
    return {"figure": value} if isinstance(value, str) else value


Parameter = Annotated[ParameterFields, BeforeValidator(_listed)]
Parameters = Annotated[
    dict[Word, Parameter],
    Field(min_length=1, max_length=50),
    Spelled("key: list of values, or mapping, see [A parameter of a sweep](#a-parameter-of-a-sweep)"),
]
Objective = Annotated[
    ObjectiveFields, BeforeValidator(_figure), Spelled("text, or mapping, see [`sweep.objective`](#sweepobjective)")
]


class SweepFields(StrictModel):
    """Many trials of the run, each with other values of some keys (docs/sweep.md)."""

    parameters: Parameters = key(
        "Keys of this file, with dots (`run.learning_rate`), and what each may be.",
        example="{tabular.depth: [4, 6, 8]}",
    )
    objective: Objective = key("By what the trials are judged.", example="macro_f1")
    trials: Count | None = key("How many are tried.", default=None, shown="20; `grid`: all", example="40")
    parallel: Count = key("Trials that run at a time.", default=1, example="4")
    sampler: Sampler = key(
        "How values are chosen: by what earlier trials showed, at random, or every combination.", default="tpe"
    )
    pruning: Pruning = key(
        "Whether a trial ends that is worse than the median of the others at the same step, once 5 have ended; "
        "needs `run.evaluate_every`.",
        default="none",
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), Spelled("whole number, 0 or more")] = key(
        "Seed of the choice.", default=0, example="0"
    )
    limits: SweepLimitFields = key("Limits over the whole sweep.", default=SweepLimitFields, shown="none")
