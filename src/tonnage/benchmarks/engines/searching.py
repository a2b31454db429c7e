"""A search for hyper-parameters before the cells: trials of all engines in turn, each a worker, until the budget is up.

Optuna keeps each study in a file of the bench's folder. Values are on the disk before a trial starts, and what it spent
before the study learns how it ended; after a kill the trial under way is done again with the same values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tonnage.benchmarks.engines.data import SplitRows, prepare_search
from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.worker_process import run_cell
from tonnage.files import make_private_folder
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.searches import EngineSearch, SearchTrial, tuned
from tonnage.side_by_side.spec import BenchData, BenchSpec, EngineSpec, direction_of
from tonnage.trials.study import OptunaStudy, StudyTerms, Tried

NO_TRIAL = "no trial of the search came to its end within the budget"


def search_all(
    spec: BenchSpec,
    folder: BenchFolder,
    home: Path,
    *,
    tables: dict[str, SplitRows],
    lacking: dict[str, str | None],
    say: Callable[[str], None],
    run: Callable[..., BenchCell] = run_cell,
) -> None:
    """Until every engine that can run has spent its budget. MissingExtra where Optuna is not installed.

    Engines take turns, so that a machine that slows down meets all alike. `run`: who carries out a trial.
    """
    if spec.search is None:
        return
    for data in spec.data:
        rows = prepare_search(tables[data.name], spec.search.validation_fraction, spec.seed)
        open_ones = [
            _Searched(spec, data, engine, folder, home, rows, run)
            for engine in spec.engines if engine.space and lacking[engine.name] is None
        ]  # fmt: skip
        while open_ones := [one for one in open_ones if one.may_go_on()]:
            for one in open_ones:
                say(one.go_on())


def searches_of(spec: BenchSpec, folder: BenchFolder) -> tuple[EngineSearch, ...]:
    """Every search that has begun."""
    found = []
    for data in spec.data:
        for engine in spec.engines:
            file = study_file(folder, data, engine)
            if spec.search is not None and engine.space and file.is_file():
                study = OptunaStudy(file, _terms(spec, data, engine))
                trials = tuple(_trial(one) for one in study.tried() if one.state != "running")
                found.append(EngineSearch(data=data.name, engine=engine.name, metric=data.metric, trials=trials))
    return tuple(found)


def study_file(folder: BenchFolder, data: BenchData, engine: EngineSpec) -> Path:
    """Where the study of an engine on a data set is kept."""
    return folder.path / "search" / f"{data.name}-{engine.name}.db"


def _terms(spec: BenchSpec, data: BenchData, engine: EngineSpec) -> StudyTerms:
    assert spec.search is not None
    return StudyTerms(
        name=f"{data.name}-{engine.name}", direction=direction_of(data.metric), parameters=engine.space,
        sampler=spec.search.sampler, seed=spec.search.seed, plain_first=True,
    )  # fmt: skip


class _Searched:
    """The search of one engine on one data set."""

    def __init__(
        self,
        spec: BenchSpec,
        data: BenchData,
        engine: EngineSpec,
        folder: BenchFolder,
        home: Path,
        rows: Path,
        run: Callable[..., BenchCell],
    ) -> None:
        assert spec.search is not None
        self._spec, self._data, self._engine, self._terms = spec, data, engine, spec.search
        self._folder, self._home, self._rows, self._run = folder, home, rows, run
        file = study_file(folder, data, engine)
        make_private_folder(file.parent)
        self._study = OptunaStudy(file, _terms(spec, data, engine))
        self._most_s = spec.search.seconds(spec.usd_per_hour)

    def may_go_on(self) -> bool:
        """Whether a trial is under way, or the budget leaves one more."""
        tried = self._study.tried()
        if any(one.state == "running" for one in tried):
            return True
        if self._terms.trials is not None:
            return len(tried) < self._terms.trials
        assert self._most_s is not None
        return self._spent_s(tried) < self._most_s

    def go_on(self) -> str:
        """One trial: the one that a kill left under way, or the next; a line about it."""
        left = [one for one in self._study.tried() if one.state == "running"]
        chosen = self._study.complete(left[0].number) if left else self._study.begin()
        begun = time.monotonic()
        cell = self._run(self._data, tuned(self._engine, chosen.values), 0, table=self._rows, seed=self._spec.seed,
                         timeout_s=self._spec.timeout_s, bench=self._folder.path, home=self._home,
                         trial=chosen.number)  # fmt: skip
        wall_s = time.monotonic() - begun
        return self._settle(chosen, cell, wall_s)

    def _settle(self, chosen: Tried, cell: BenchCell, wall_s: float) -> str:
        spent_s = wall_s if cell.work_s is None else cell.work_s
        reason = cell.reason
        before_s = self._spent_s(self._study.tried())
        if reason is None and self._most_s is not None and before_s + spent_s > self._most_s:
            reason = "ended after the budget was spent"
        self._study.note(chosen.number, spent_s=spent_s, wall_s=wall_s, reason=reason)
        self._study.tell(chosen.number, "failed" if reason else "complete", cell.quality if reason is None else None)
        said = reason or f"{spent_s:.2f} s, {self._data.metric} {cell.quality:.4f}"
        return f"search {self._data.name} {self._engine.name}, trial {chosen.number}{self._of_all()}: {said}"

    def _of_all(self) -> str:
        if self._terms.trials is not None:
            return f" of {self._terms.trials}"
        return f" ({self._spent_s(self._study.tried()):.1f} of {self._most_s:.1f} s spent)"

    @staticmethod
    def _spent_s(tried: list[Tried]) -> float:
        return sum(float(one.attributes.get("spent_s", 0.0)) for one in tried if one.state != "running")


def _trial(one: Tried) -> SearchTrial:
    said: dict[str, Any] = dict(one.attributes)
    return SearchTrial(
        number=one.number, settings=dict(one.values), spent_s=float(said.get("spent_s", 0.0)),
        wall_s=float(said.get("wall_s", 0.0)), quality=one.value, reason=said.get("reason"),
    )  # fmt: skip
