"""What has been tried, kept by Optuna in a SQLite file: which values, how good, how it ended."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import MissingExtra
from tonnage.trials.parameters import TrialParameter
from tonnage.values import dataclass
from tonnage.workload.file.sweep_fields import Direction, Pruning, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTerms:
    """What a study looks for, and how. `plain_first`: the first trial changes nothing, so that the best is no worse
    than what was there before."""

    name: str
    direction: Direction
    parameters: tuple[TrialParameter, ...]
    sampler: Sampler
    pruning: Pruning = "none"
    seed: int = 0
    plain_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One trial as the study holds it. `number` counts from 1."""

    number: int
    state: str  # running, complete, pruned, failed
    values: Mapping[str, Any]
    value: float | None = None
    attributes: Mapping[str, Any]


class OptunaStudy:
    """The study in a folder. MissingExtra where Optuna is not installed."""

    def __init__(self, file: Path, terms: StudyTerms) -> None:
        self._optuna = find_optuna()
        self._terms = terms
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite's own files take its mode
        self._study = self._optuna.create_study(
            storage=f"sqlite:///{file}",
            study_name=terms.name,
            direction=terms.direction,
            load_if_exists=True,
            pruner=self._pruner(),
            sampler=self._sampler(0),
        )

    def tried(self) -> list[Tried]:
        """Every trial so far, by number."""
        return [self._read(one) for one in self._study.get_trials(deepcopy=False)]

    def begin(self) -> Tried:
        """Choose the values of the next trial and write them down."""
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._sampler(number)
        return self._choose(self._study.ask())

    def complete(self, number: int) -> Tried:
        """The values of a trial that was begun; those that a kill left out are chosen now."""
        self._study.sampler = self._sampler(number - 1)
        return self._choose(self._trial(number))

    def note(self, number: int, **attributes: Any) -> None:
        """Remember something of a trial under way."""
        trial = self._trial(number)
        for name, value in attributes.items():
            trial.set_user_attr(name, value)

    def is_poor(self, number: int, course: Mapping[int, float]) -> bool:
        """Report evaluations by step; whether the newest is worse than the median of the others."""
        trial = self._trial(number)
        known = self._frozen(number).intermediate_values
        for step, value in sorted(course.items()):
            if step not in known:
                trial.report(value, step)
        return bool(course) and trial.should_prune()

    def tell(self, number: int, state: str, value: float | None = None) -> None:
        """How a trial ended: complete (with its value), pruned or failed."""
        states = self._optuna.trial.TrialState
        if state == "complete":
            self._study.tell(number - 1, value)
        else:
            self._study.tell(number - 1, state=states.PRUNED if state == "pruned" else states.FAIL)

    def _choose(self, trial: Trial) -> Tried:
        place = trial.number
        if self._terms.plain_first and place == 0:
            return self._read(self._frozen(1))
        fixed = self._grid_point(place) if self._terms.sampler == "grid" else {}
        for one in self._terms.parameters:
            if one.path in fixed:
                trial.set_user_attr(f"value:{one.path}", fixed[one.path])
            else:
                _suggest(trial, one)
        return self._read(self._frozen(place + 1))

    def _grid_point(self, place: int) -> dict[str, Any]:
        """The combination of a place; the seed shuffles them, so that a part of the grid is spread over it."""
        points = list(itertools.product(*(one.grid() for one in self._terms.parameters)))
        random.Random(self._terms.seed).shuffle(points)
        return {one.path: value for one, value in zip(self._terms.parameters, points[place], strict=True)}

    def _read(self, frozen: FrozenTrial) -> Tried:
        names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        values = {}
        for one in self._terms.parameters:
            if f"value:{one.path}" in frozen.user_attrs:
                values[one.path] = frozen.user_attrs[f"value:{one.path}"]
            elif one.path in frozen.params:
                values[one.path] = _meant(one, frozen.params[one.path])
        return Tried(
            number=frozen.number + 1,
            state=names.get(frozen.state.name, "running"),
            values=values,
            value=frozen.value if frozen.state.name == "COMPLETE" else None,
            attributes={name: value for name, value in frozen.user_attrs.items() if not name.startswith("value:")},
        )

    def _frozen(self, number: int) -> FrozenTrial:
        found: FrozenTrial = self._study.get_trials(deepcopy=False)[number - 1]
        return found

    def _trial(self, number: int) -> Trial:
        found: Trial = self._optuna.trial.Trial(self._study, self._frozen(number)._trial_id)
        return found

    def _sampler(self, place: int) -> BaseSampler:
        """The sampler of one trial: a seed of its own, so that a resumed sweep does not draw the same again."""
        digest = hashlib.sha256(f"{self._terms.seed}:{place}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        samplers = self._optuna.samplers
        made: BaseSampler = (
            samplers.TPESampler(seed=seed) if self._terms.sampler == "tpe" else samplers.RandomSampler(seed=seed)
        )
        return made

    def _pruner(self) -> Any:
        pruners = self._optuna.pruners
        return pruners.MedianPruner() if self._terms.pruning == "median" else pruners.NopPruner()


def best_of(tried: list[Tried], direction: Direction) -> Tried | None:
    """The trial with the best value; of equals the first."""
    done = [one for one in tried if one.value is not None]
    sign = 1.0 if direction == "minimize" else -1.0
    return min(done, key=lambda one: sign * (one.value or 0.0), default=None)


def find_optuna() -> Any:
    """Optuna. MissingExtra where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("a search for hyper-parameters", "sweep") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _suggest(trial: Trial, parameter: TrialParameter) -> None:
    if parameter.choices is not None:
        trial.suggest_categorical(parameter.path, [_label(value) for value in parameter.choices])
    elif parameter.whole:
        ends = int(parameter.low), int(parameter.high)
        trial.suggest_int(parameter.path, *ends, step=int(parameter.step or 1), log=parameter.log)
    else:
        span = float(parameter.low), float(parameter.high)
        trial.suggest_float(parameter.path, *span, step=parameter.step, log=parameter.log)


def _label(value: Any) -> Any:
    """A choice as Optuna keeps it: lists and mappings as their JSON.

    >>> _label(16), _label([64, 32])
    (16, '[64, 32]')
    """
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _meant(parameter: TrialParameter, kept: Any) -> Any:
    if parameter.choices is None:
        return kept
    return next(value for value in parameter.choices if _label(value) == kept)
