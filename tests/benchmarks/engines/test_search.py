"""The search of a bench: an equal budget for every engine, rows that no trial may see, a kill in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tonnage.benchmarks.engines.data import prepare_data, prepare_search
from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.searching import search_all, searches_of
from tonnage.benchmarks.engines.session import carry_out, prepare_all
from tonnage.reports.engine_bench import engine_bench_report
from tonnage.reports.rendering import render_report
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.spec import BenchData, BenchSpec, EngineSpec

pytest.importorskip("optuna")
ENGINES = "{engine: xgboost, rounds: 5}, {engine: scikit-learn, rounds: 5}"


def bench(budget: str = "trials: 3", engines: str = ENGINES) -> BenchSpec:
    return read_bench(
        f"bench:\n  name: t\n  repeats: 1\n  price: {{usd_per_hour: 3.6}}\n  search: {{{budget}}}\n"
        f"  data: [{{name: d, generate: {{rows: 600, columns: 5}}, target: 0.6}}]\n  engines: [{engines}]\n"
    )


class Pretended:
    """Trials that take `seconds` each and are as good as their depth; one may be killed, one may fail."""

    def __init__(self, seconds: float = 2.0, *, killed_at: int | None = None, failing: str | None = None) -> None:
        self.seconds, self.killed_at, self.failing = seconds, killed_at, failing
        self.ran: list[tuple[str, int, int]] = []

    def __call__(self, data: BenchData, engine: EngineSpec, turn: int, *, trial: int, **_: Any) -> BenchCell:
        self.ran.append((engine.name, trial, engine.depth))
        if len(self.ran) == self.killed_at:
            raise KeyboardInterrupt
        cell = BenchCell(data=data.name, engine=engine.name, turn=turn)
        if engine.name == self.failing:
            return replace(cell, reason="ended by SIGKILL")
        return replace(cell, prepare_s=0.5, train_s=self.seconds - 0.5, quality=0.5 + engine.depth / 100)


def searched(spec: BenchSpec, place: Path, run: Pretended) -> None:
    folder = BenchFolder(place)
    search_all(spec, folder, place, tables=prepare_all(spec, folder), say=print, run=run,
               lacking={one.name: None for one in spec.engines})  # fmt: skip


def test_every_engine_has_as_many_trials_in_turn(tmp_path: Path) -> None:
    """The first with the settings of the file; the best is kept with its settings."""
    spec, run = bench(), Pretended()
    searched(spec, tmp_path, run)
    assert [(name, number) for name, number, _ in run.ran] == [
        (name, number) for number in (1, 2, 3) for name in ("xgboost", "scikit-learn")
    ]
    assert run.ran[0][2] == 6
    for one in searches_of(spec, BenchFolder(tmp_path)):
        depths = [depth for name, _, depth in run.ran if name == one.engine]
        assert one.best is not None
        assert one.best.settings.get("depth", 6) == max(depths)
        assert one.spent_s == 6.0


@pytest.mark.parametrize("budget", ["time: 5s", "cost_usd: 0.005"])
def test_seconds_are_the_same_for_all_and_a_late_trial_counts_for_nothing(budget: str, tmp_path: Path) -> None:
    """2 s each of 5 (half a cent at 3.60 an hour): two trials count, the third ends too late."""
    spec, run = bench(budget), Pretended()
    searched(spec, tmp_path, run)
    for one in searches_of(spec, BenchFolder(tmp_path)):
        assert [trial.reason for trial in one.trials] == [None, None, "ended after the budget was spent"]
        assert [trial.quality is None for trial in one.trials] == [False, False, True]


def test_a_failed_trial_is_one_of_the_budget(tmp_path: Path) -> None:
    """An engine that always fails has no settings; the other is not touched."""
    spec = bench()
    searched(spec, tmp_path, Pretended(failing="xgboost"))
    bad, good = searches_of(spec, BenchFolder(tmp_path))
    assert (bad.best, bad.failed, len(bad.trials)) == (None, 3, 3)
    assert good.best is not None


@pytest.mark.parametrize("killed_at", [1, 4])
def test_a_killed_search_tries_what_one_left_alone_tries(killed_at: int, tmp_path: Path) -> None:
    """The trial under way is done again with the same values, and nothing is done twice besides."""
    spec, whole, broken = bench(), Pretended(), Pretended(killed_at=killed_at)
    searched(spec, tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        searched(spec, tmp_path / "broken", broken)
    again = Pretended()
    searched(spec, tmp_path / "broken", again)
    assert sorted(broken.ran[:-1] + again.ran) == sorted(whole.ran)
    assert broken.ran[-1] in again.ran


def test_no_row_of_validation_or_test_reaches_a_trial(tmp_path: Path) -> None:
    """Its folder holds the training rows alone, each once, in two parts."""
    spec = bench()
    split = prepare_data(spec, spec.data[0], tmp_path / "d", memory_bytes=1e9)
    folder = prepare_search(split, 0.2, spec.seed)
    assert sorted(one.name for one in folder.glob("*.npy")) == [
        f"{part}_{kind}.npy" for part in ("train", "validation") for kind in ("features", "target")
    ]
    seen = np.concatenate([np.load(folder / f"{part}_features.npy") for part in ("train", "validation")])
    training = np.load(split.folder / "train_features.npy")
    assert len(seen) == len(training) == split.rows["train"]
    assert {row.tobytes() for row in seen} == {row.tobytes() for row in training}
    assert len(np.load(folder / "validation_target.npy")) == round(len(training) * 0.2)


@pytest.mark.heavy
@pytest.mark.usefixtures("light_engines")
def test_cells_have_the_best_settings(tmp_path: Path) -> None:
    """A search in real processes beside an engine as given: the cell's job has the settings, report and rows name
    them."""
    engines = "{engine: xgboost, rounds: 5}, {engine: scikit-learn, rounds: 5, search: {}}"
    spec = bench("trials: 2", engines)
    found = carry_out(spec, BenchFolder(tmp_path), tmp_path / "home", say=print)
    tuned_cell, plain = found.cells
    (search,) = found.searches
    assert search.best is not None
    assert (tuned_cell.reason, plain.reason, plain.settings) == (None, None, None)
    assert tuned_cell.settings == search.best.settings
    assert all(one.quality is not None for one in search.trials)
    page = render_report(engine_bench_report(found), "table")
    assert "search with 2 trials for each engine" in page
    document = engine_bench_report(found).document()
    assert document["search"]["engines"][0]["best_trial"] == search.best.number
    assert document["engines"][0]["settings"] == dict(search.best.settings)
    metrics = [row[9] for row in engine_bench_report(found).rows()]
    assert metrics.count("search_quality") == metrics.count("search_s") == 2
