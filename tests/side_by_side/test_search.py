"""`search` of a bench file: budgets, spaces, what is refused; the best trial and its course."""

from __future__ import annotations

import pytest

from tonnage.errors import WorkloadError
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.searches import EngineSearch, SearchTrial, tuned
from tonnage.side_by_side.spaces import SPACES
from tonnage.side_by_side.spec import BenchSpec, EngineSpec


def bench(more: str, engine: str) -> BenchSpec:
    return read_bench(
        f"bench:\n  name: t\n  {more}\n  data: [{{name: d, generate: {{rows: 600, columns: 5}}}}]\n"
        f"  engines: [{engine}]\n"
    )


def paths(engine: EngineSpec) -> set[str]:
    return {one.path for one in engine.space}


def test_what_the_file_states_is_not_searched() -> None:
    """Of the usual space those keys are left out that the engine's entry states, its own names too."""
    usual = {one.path for one in SPACES["xgboost"]}
    (plain,) = bench("search: {trials: 5}", "{engine: xgboost}").engines
    assert paths(plain) == usual
    (stated,) = bench("search: {trials: 5}", "{engine: xgboost, depth: 6, native: {gamma: 1}}").engines
    assert paths(stated) == usual - {"depth", "native.gamma"}


def test_a_space_of_ones_own_takes_the_place_of_the_usual() -> None:
    """Whole numbers where the key takes them alone; {} searches nothing."""
    (own,) = bench(
        "search: {trials: 5}",
        "{engine: xgboost, search: {depth: {low: 2, high: 9}, learning_rate: {low: 1, high: 2}, rounds: [50, 80],"
        " native.gamma: {low: 0.0, high: 1}}}",
    ).engines
    assert {one.path: (one.whole, one.choices) for one in own.space} == {
        "depth": (True, None), "learning_rate": (False, None), "rounds": (False, (50, 80)),
        "native.gamma": (False, None),
    }  # fmt: skip
    assert bench("search: {trials: 5}", "{engine: xgboost, search: {}}").engines[0].space == ()


def test_without_a_search_nothing_is_searched() -> None:
    """And points of a study of scaling do the same work: they keep the settings of the file."""
    spec = bench("repeats: 1", "{engine: xgboost}")
    assert spec.search is None
    assert spec.engines[0].space == ()
    scaled = bench("search: {trials: 5}", "{engine: pytorch, scaling: {workers: [1, 2]}}")
    assert {one.space for one in scaled.engines} == {()}


@pytest.mark.parametrize(
    ("more", "engine", "fault"),
    [
        ("search: {sampler: tpe}", "{engine: xgboost}", "no budget, or two"),
        ("search: {trials: 3, time: 1m}", "{engine: xgboost}", "no budget, or two"),
        ("search: {cost_usd: 1}", "{engine: xgboost}", "price of the machine"),
        ("search: {cost_usd: 0}\n  price: {usd_per_hour: 1}", "{engine: xgboost}", "above 0"),
        ("repeats: 1", "{engine: xgboost, search: {depth: [3]}}", "`bench.search` is missing"),
        ("search: {trials: 3}", "{engine: xgboost, search: {dept: [3]}}", "no such parameter to search"),
        ("search: {trials: 3}", "{engine: xgboost, search: {hidden: [[3]]}}", "no such parameter"),
        ("search: {trials: 3}", "{engine: xgboost, search: {depth: {low: 0, high: 4}}}", "0 cannot be used"),
        ("search: {trials: 3}", "{engine: pytorch, search: {hidden: [[8], [0]]}}", r"\[0\] cannot be used"),
        ("search: {trials: 3}", "{engine: xgboost, search: {depth: {low: 5, high: 4}}}", "is above high"),
        ("search: {trials: 3}", "{engine: xgboost, depth: 3, search: {depth: [3]}}", "stated at the engine too"),
        ("search: {trials: 3}", "{engine: xgboost, native: {gamma: 1}, search: {native.gamma: [3]}}", "stated at"),
        ("search: {trials: 3}", "{engine: pytorch, scaling: {workers: [1, 2]}, search: {epochs: [3]}}", "same work"),
        ("search: {trials: 3, sampler: grid}", "{engine: xgboost}", "sampler"),
    ],
)
def test_what_contradicts_itself_is_refused(more: str, engine: str, fault: str) -> None:
    """With its key and what to write in its place."""
    with pytest.raises(WorkloadError, match=fault) as caught:
        bench(more, engine)
    assert "bench." in str(caught.value)


def test_a_budget_in_dollars_is_one_in_seconds() -> None:
    """Half a dollar at 3.60 an hour buys 500 s; a budget of trials has no seconds."""
    spec = bench("search: {cost_usd: 0.5}\n  price: {usd_per_hour: 3.6}", "{engine: xgboost}")
    assert spec.search is not None
    assert spec.search.seconds(spec.usd_per_hour) == pytest.approx(500.0)
    trials = bench("search: {trials: 4}", "{engine: xgboost}").search
    assert trials is not None
    assert trials.seconds(None) is None


@pytest.mark.parametrize("engine", sorted(SPACES))
def test_every_published_space_can_be_written_in_a_file(engine: str) -> None:
    """Its keys and the ends of its ranges are those that the file would take."""
    for one in SPACES[engine]:  # type: ignore[index]
        said = {"choices": list(one.choices)} if one.choices else {"low": one.ends()[0], "high": one.ends()[1]}
        (made,) = bench("search: {trials: 3}", f"{{engine: {engine}, search: {{{one.path}: {said}}}}}").engines
        assert (made.space[0].path, made.space[0].ends()) == (one.path, one.ends())
        tuned(made, {one.path: one.ends()[0]})


def trial(number: int, quality: float | None, spent_s: float) -> SearchTrial:
    reason = None if quality is not None else "ended by SIGKILL"
    return SearchTrial(number=number, settings={}, spent_s=spent_s, wall_s=spent_s + 1, quality=quality, reason=reason)


def test_the_best_trial_is_that_of_the_metric() -> None:
    """Of an error the smallest, of equals the first; a trial that failed spends and is never the best."""
    trials = (trial(1, 0.5, 2.0), trial(2, None, 3.0), trial(3, 0.4, 1.0), trial(4, 0.4, 1.0))
    error = EngineSearch(data="d", engine="e", metric="rmse", trials=trials)
    score = EngineSearch(data="d", engine="e", metric="auc", trials=trials)
    assert error.best is not None
    assert score.best is not None
    assert (error.best.number, score.best.number) == (3, 1)
    assert (error.spent_s, error.wall_s, error.failed, error.as_given) == (7.0, 11.0, 1, 0.5)
    assert list(error.course()) == [(2.0, 0.5), (5.0, 0.5), (6.0, 0.4), (7.0, 0.4)]
    nothing = EngineSearch(data="d", engine="e", metric="auc", trials=(trial(1, None, 1.0),))
    assert (nothing.best, list(nothing.course())) == (None, [])
