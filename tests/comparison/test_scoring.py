"""Weighted scores, the weights that flip them, and how stable the order is."""

from __future__ import annotations

import random

import pytest

from tonnage.comparison.scoring import Score, Scores, common_criteria, stability, weight_flips, weighted


def judged(value: float) -> Score:
    return Score(value=value, low=value, high=value, basis="judged")


def table(rows: dict[str, dict[str, float]]) -> Scores:
    return {name: {key: judged(value) for key, value in row.items()} for name, row in rows.items()}


def test_the_weighted_mean() -> None:
    """(3·5 + 1·1) / 4, and the order; what one has no score for counts for none, and widens the ends."""
    scores = table({"a": {"x": 5, "y": 1}, "b": {"x": 3, "y": 3, "z": 5}})
    best, second = weighted(scores, {"x": 3, "y": 1, "z": 1}, ["a", "b"])
    assert (best.alternative, best.total, second.total) == ("a", 4.0, 3.0)
    assert (best.low, best.high) == (pytest.approx(17 / 5), pytest.approx(21 / 5))
    assert best.unknown == ("z",)
    assert common_criteria(scores, {"x": 3, "y": 1, "z": 1}, ["a", "b"]) == ("x", "y")


def test_the_tie_in_closed_form() -> None:
    """a leads by 3·2 - 1·2 = 4: x ties at 1 below, y at 3 above."""
    scores = table({"a": {"x": 5, "y": 1}, "b": {"x": 3, "y": 3}})
    found = {flip.criterion: flip for flip in weight_flips(scores, {"x": 3, "y": 1}, ["a", "b"])}
    assert (found["x"].weight_at_tie, found["x"].side) == (pytest.approx(1.0), "below")
    assert (found["y"].weight_at_tie, found["y"].side) == (pytest.approx(3.0), "above")


@pytest.mark.parametrize("seed", range(25))
def test_flips_flip(seed: int) -> None:
    """Just beyond the tie another wins, just before it the winner still does (random tables)."""
    dice = random.Random(seed)
    keys, names = "uvwxy", ["a", "b", "c", "d"]
    scores = table({name: {key: dice.randint(1, 5) for key in keys} for name in names})
    weights = {key: dice.uniform(0.2, 4) for key in keys}
    winner = weighted(scores, weights, names)[0].alternative
    for flip in weight_flips(scores, weights, names):
        step = 1e-6 if flip.side == "above" else -1e-6
        beyond = weights | {flip.criterion: flip.weight_at_tie + step}
        if beyond[flip.criterion] < 0:
            continue
        assert weighted(scores, beyond, names)[0].alternative != winner
        assert weighted(scores, weights | {flip.criterion: flip.weight_at_tie - step}, names)[0].alternative == winner


@pytest.mark.parametrize("seed", range(10))
def test_bisection_finds_the_same_tie(seed: int) -> None:
    """The nearest weight above at which the winner changes, found by bisection, is the closed form's."""
    dice = random.Random(100 + seed)
    keys, names = "uvwx", ["a", "b", "c"]
    scores = table({name: {key: dice.uniform(1, 5) for key in keys} for name in names})
    weights = {key: dice.uniform(0.2, 4) for key in keys}
    winner = weighted(scores, weights, names)[0].alternative
    for flip in (one for one in weight_flips(scores, weights, names) if one.side == "above"):
        low, high = weights[flip.criterion], flip.weight_at_tie * 4 + 1
        assert weighted(scores, weights | {flip.criterion: high}, names)[0].alternative != winner
        for _ in range(80):
            middle = (low + high) / 2
            still = weighted(scores, weights | {flip.criterion: middle}, names)[0].alternative == winner
            low, high = (middle, high) if still else (low, middle)
        assert high == pytest.approx(flip.weight_at_tie, rel=1e-6)


def test_draws_are_seeded_and_sum_to_one() -> None:
    """The same seed gives the same shares; another seed others; a clear winner wins all draws."""
    scores = table({"a": {"x": 4, "y": 3}, "b": {"x": 3, "y": 4}})
    weights = {"x": 1.0, "y": 1.0}
    first = stability(scores, weights, ["a", "b"], draws=1000, seed=3)
    assert first == stability(scores, weights, ["b", "a"], draws=1000, seed=3)
    assert first != stability(scores, weights, ["a", "b"], draws=1000, seed=4)
    assert sum(first.values()) == pytest.approx(1.0)
    assert 0.35 < first["a"] < 0.75
    clear = table({"a": {"x": 5, "y": 5}, "b": {"x": 2, "y": 2}})
    assert stability(clear, weights, ["a", "b"], draws=1000, seed=0) == {"a": 1.0, "b": 0.0}
