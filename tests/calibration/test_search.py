"""The one search of every fit, what its rows weigh, and what rounds remember."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.memo import Memo, ReadMemo, Same
from tonnage.calibration.search import CAP, SearchSchedule, fit_values, log_factors, misfit, search
from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.estimates import Array

A, B = (Assumption(name=name, value=1.0, low=0.1, high=9.0, source="made up for this test") for name in ("a", "b"))
SCHEDULES = {
    "leaps until nothing helps": SearchSchedule(
        factors=((1.2, 1 / 1.2), (1.05, 1 / 1.05), (1.01, 1 / 1.01)), leaps=True
    ),
    "rounds by logarithms": SearchSchedule(factors=log_factors(0.4, 0.2, 0.1, 0.05, 0.02), rounds=8),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_minimum_inside_the_ranges_is_found(name: str) -> None:
    """A bowl's bottom is found; a bottom out of range stops at the edge; what begins outside is brought inside."""

    def bowl(values: Mapping[str, float]) -> float:
        return abs(np.log(values["a"] / 2.0)) + abs(np.log(values["b"] / 50.0))

    found = search(bowl, {"a": 1.0, "b": 0.001}, (A, B), SCHEDULES[name])
    assert found["a"] == pytest.approx(2.0, rel=0.03)
    assert found["b"] == 9.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_values_are_tried_twice(name: str) -> None:
    """A round in which nothing helps asks again for what the one before asked: the loss is worked out once."""
    tried: list[tuple[float, ...]] = []

    def bowl(values: Mapping[str, float]) -> float:
        tried.append(tuple(values.values()))
        return abs(np.log(values["a"] / 2.0)) + abs(np.log(values["b"] / 3.0))

    search(bowl, {"a": 1.0, "b": 1.0}, (A, B), SCHEDULES[name])
    assert len(tried) == len(set(tried)) > 10


def test_results_are_remembered_by_the_fields_that_were_read() -> None:
    """A field that is not read may change; one that is read calls for another result, and methods are refused."""
    memo: ReadMemo[float] = ReadMemo(most=2)
    made: list[float] = []

    def doubled(of: Assumption) -> float:
        made.append(of.value)
        return 2.0 * of.value

    assert memo.recall(A, doubled) == memo.recall(B, doubled) == 2.0  # another name, the same value
    assert memo.recall(replace(A, value=3.0), doubled) == 6.0
    assert memo.recall(A, doubled) == 2.0
    assert made == [1.0, 3.0]
    assert memo.recall(replace(A, value=4.0), doubled) == 8.0
    assert memo.recall(replace(A, value=3.0), doubled) == 6.0  # two are held, the oldest went
    assert made == [1.0, 3.0, 4.0, 3.0]
    with pytest.raises(TypeError, match="inside"):
        memo.recall(B, lambda of: of.inside(7.0))


def test_a_leap_crosses_a_narrow_valley() -> None:
    """Two parameters that only help together: with leaps the search comes much further down the valley."""

    def valley(values: Mapping[str, float]) -> float:
        along, across = np.log(values["a"] * values["b"] / 64.0), np.log(values["a"] / values["b"])
        return float(along**2 + 3.0 * across**2)

    steps = ((1.2, 1 / 1.2), (1.05, 1 / 1.05))
    ends = [
        valley(search(valley, {"a": 1.0, "b": 1.0}, (A, B), SearchSchedule(factors=steps, rounds=3, leaps=leaps)))
        for leaps in (False, True)
    ]
    assert ends[1] < ends[0]


class Rows:
    """Rows of one true factor, one of them misread by a thousand, one that is not predicted."""

    def log_errors(self, values: Mapping[str, float]) -> Array:
        return np.log(np.array([values["a"] / 3.0] * 5 + [values["a"] * 1000.0, np.nan]))


def test_a_misread_row_does_not_pull() -> None:
    """Beyond `CAP` a row counts no more, and neither does one without a prediction: the other five decide."""
    found = fit_values(Rows(), [A], {"a": 1.0}, weights=np.ones(7), schedule=SCHEDULES["rounds by logarithms"])
    assert found["a"] == pytest.approx(3.0, rel=0.03)
    assert misfit(np.array([0.1, -5.0, np.nan]), np.ones(3)) == pytest.approx(0.1 + 2 * CAP)


def test_a_penalty_holds_a_parameter_back() -> None:
    """A parameter that few rows speak of stays nearer to where it is drawn to."""
    free, held = (
        fit_values(Rows(), [A], {"a": 2.0}, weights=np.ones(7), schedule=SCHEDULES["rounds by logarithms"],
                   penalty=lambda values, pull=pull: pull * np.log(values["a"]) ** 2)  # type: ignore[misc]
        for pull in (0.0, 3.0)
    )  # fmt: skip
    assert 1.0 < held["a"] < 0.8 * free["a"]


def test_a_memo_tells_objects_and_values_apart() -> None:
    """Equal values are one key; two equal objects wrapped in `Same` are two; what is over the limit is forgotten."""
    memo, one, two = Memo(most=2), [1], [1]
    assert memo.recall(("of", Same(one)), lambda: "first") == "first"
    assert memo.recall(("of", Same(two)), lambda: "second") == "second"
    assert memo.recall(("of", Same(one)), lambda: "anew") == "first"
    assert memo.recall(("of", 3), lambda: "third") == "third"
    assert memo.recall(("of", Same(one)), lambda: "anew") == "anew"
