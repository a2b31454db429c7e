"""H2O AutoML beside other engines: the same budget, the rows it may see, its curve.

H2O itself: `tonnage bench setup h2o` ends with a trial of it, and the last test here runs it where TONNAGE_H2O_HOME
names a home that has its environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tonnage.benchmarks.engines.apart.engine_workers.h2o_automl import AutoML
from tonnage.benchmarks.engines.apart.engine_workers.table import BenchTable
from tonnage.benchmarks.engines.environments import missing
from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.session import carry_out
from tonnage.errors import WorkloadError
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.searches import with_budget
from tonnage.side_by_side.spec import BenchSpec


def bench(engine: str, more: str = "repeats: 1") -> BenchSpec:
    return read_bench(
        f"bench:\n  name: t\n  threads: 2\n  price: {{usd_per_hour: 3.6}}\n  {more}\n"
        f"  data: [{{name: d, generate: {{rows: 3000, columns: 5}}}}]\n  engines: [{engine}]\n"
    )


def test_its_budget_is_that_of_the_others() -> None:
    """As many models as trials, the same seconds, the seconds of the same dollars; without a search `models`."""
    found = []
    for budget in ("trials: 7", "time: 90s", "cost_usd: 0.05"):
        spec = bench("{engine: h2o-automl}", f"search: {{{budget}, validation: 0.3}}")
        engine = with_budget(spec.engines[0], spec)
        found.append((engine.models, engine.search_s, engine.held_fraction, engine.space))
    assert found[0] == (7, None, 0.3, ())
    assert [one[1] for one in found[1:]] == [90.0, pytest.approx(50.0)]
    spec = bench("{engine: h2o-automl, models: 4}")
    assert with_budget(spec.engines[0], spec).models == 4


@pytest.mark.parametrize(
    ("engine", "more", "fault"),
    [
        ("{engine: h2o-automl, rounds: 3}", "repeats: 1", "no such parameter"),
        ("{engine: h2o-automl, learning_rate: 0.1}", "repeats: 1", "no such parameter"),
        ("{engine: xgboost, models: 3}", "repeats: 1", "no such parameter"),
        ("{engine: h2o-automl, models: 3}", "search: {trials: 3}", "is its budget"),
        ("{engine: h2o-automl, search: {depth: [3]}}", "search: {trials: 3}", "searches by itself"),
    ],
)
def test_what_it_has_no_key_for_is_refused(engine: str, more: str, fault: str) -> None:
    """It takes no hyper-parameters, and others take no number of models."""
    with pytest.raises(WorkloadError, match=fault):
        bench(engine, more)


class Frames(AutoML):
    """AutoML over arrays; a model predicts its own quality as the share of rows it gets right."""

    def pandas_frame(self, part: str) -> Any:
        return self.table.features[part]

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        del passes
        target = self.table.target[part]
        right = np.arange(len(target)) < self._model.quality * len(target)
        return [np.where(right, target, 1.0 - target)]


def job(**more: Any) -> dict[str, Any]:
    given = {"seed": 3, "held_fraction": 0.25, "metric": "accuracy", "search_s": None, "passes": 3, "native": {}}
    return given | {"task": "binary", "engine": "h2o-automl"} | more


def table() -> BenchTable:
    made = object.__new__(BenchTable)
    random = np.random.default_rng(0)
    made.features = {part: random.standard_normal((rows, 2)) for part, rows in
                     (("train", 80), ("validation", 20), ("test", 20))}  # fmt: skip
    made.target = {part: (one[:, 0] > 0).astype(np.float32) for part, one in made.features.items()}
    return made


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A module `h2o` whose AutoML trains three models: the second is worse than the first, the third is best."""
    asked: list[dict[str, Any]] = []
    models = {name: SimpleNamespace(model_id=name, end_time=0.0, quality=value)
              for name, value in (("a", 0.7), ("b", 0.6), ("c", 0.9))}  # fmt: skip

    class Searched:
        def __init__(self, **given: Any) -> None:
            asked.append(given)
            self.leader = models["c"]
            self.leaderboard = SimpleNamespace(as_data_frame=lambda **_: {"model_id": ["c", "a", "b"]})

        def train(self, **frames: Any) -> None:
            import time

            asked[-1]["frames"] = frames
            for number, model in enumerate(models.values(), start=1):
                model.end_time = (time.time() + number) * 1000.0

    module = SimpleNamespace(get_model=models.__getitem__)
    monkeypatch.setitem(sys.modules, "h2o", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "h2o.automl", SimpleNamespace(H2OAutoML=Searched))  # type: ignore[arg-type]
    return asked


class FrameOf(SimpleNamespace):
    """What is asked of a frame here."""

    columns = ("f0", "f1", "target")


def prepared(monkeypatch: pytest.MonkeyPatch, **more: Any) -> Frames:
    from tonnage.benchmarks.engines.apart.engine_workers.h2o_models import H2OEngine

    def keep(self: Any, split: Any) -> None:
        self.table = split
        self.frames = {part: FrameOf(rows=len(split.target[part]), part=part) for part in split.target}

    monkeypatch.setattr(H2OEngine, "prepare", keep)
    engine = Frames(job(**more))
    engine.prepare(table())
    return engine


def test_it_judges_by_a_share_of_the_training_rows(
    pretended: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter is held out; validation and test rows of the bench reach neither the training nor the leaderboard."""
    engine = prepared(monkeypatch)
    assert engine.fit(3)[0][0] == 3
    frames = pretended[-1]["frames"]
    assert {name: one.part for name, one in frames.items() if name.endswith("frame")} == {
        "training_frame": "train", "validation_frame": "held", "leaderboard_frame": "held",
    }  # fmt: skip
    assert (frames["training_frame"].rows, frames["leaderboard_frame"].rows) == (60, 20)
    whole = table().features["train"]
    both = np.concatenate([engine.table.features[part] for part in ("train", "held")])
    assert {row.tobytes() for row in both} == {row.tobytes() for row in whole}
    assert (pretended[-1]["max_models"], pretended[-1]["max_runtime_secs"], pretended[-1]["nfolds"]) == (3, None, 0)


def test_a_budget_of_seconds_is_given_as_such(pretended: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """And no number of models beside it; the warm-up is one model without a clock."""
    engine = prepared(monkeypatch, search_s=12.4)
    engine.warm_up()
    engine.fit(3)
    assert [(one["max_models"], one["max_runtime_secs"]) for one in pretended] == [(1, None), (None, 12)]


def test_its_curve_rises_with_each_better_model(
    pretended: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which models were done; one that is worse on the rows held out is passed over."""
    engine = prepared(monkeypatch)
    engine.fit(3)
    curve = engine.known_curve()
    assert curve is not None
    assert [(number, round(value, 2)) for number, _, value in curve] == [(1, 0.7), (3, 0.9)]
    assert [round(seconds) for _, seconds, _ in curve] == [1, 3]
    assert engine._model.model_id == "c"
    assert len(pretended) == 1


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["h2o-automl, models: 2", "h2o-gbm, rounds: 5", "h2o-xgboost, rounds: 5"])
def test_h2o_keeps_the_contract(engine: str, tmp_path: Path) -> None:
    """It learns more than chance and times every phase."""
    home = Path(os.environ.get("TONNAGE_H2O_HOME", tmp_path))
    kind = engine.split(",")[0]
    if (lack := missing(kind, home)) is not None:  # type: ignore[arg-type]
        pytest.skip(lack)
    (cell,) = carry_out(bench(f"{{engine: {engine}, memory_gib: 1}}"), BenchFolder(tmp_path), home, say=print).cells
    assert cell.reason is None
    assert cell.quality is not None
    assert cell.quality > 0.6
    assert cell.curve
    assert cell.train_s is not None
    assert cell.curve[-1][1] <= cell.train_s + 1.0
