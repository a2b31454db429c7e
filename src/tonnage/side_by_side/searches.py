"""A search for hyper-parameters as it went: its trials, what it spent, the best settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tonnage.side_by_side.spaces import NATIVE
from tonnage.side_by_side.spec import BenchSpec, EngineSpec, MetricName, direction_of, is_better
from tonnage.values import dataclass


def tuned(engine: EngineSpec, settings: Mapping[str, Any]) -> EngineSpec:
    """The engine with other hyper-parameters: keys of its own entry, or `native.NAME`.

    >>> xgboost = EngineSpec(name="a", engine="xgboost", threads=1, native={"gamma": 1})
    >>> other = tuned(xgboost, {"depth": 8, "native.subsample": 0.5})
    >>> other.depth, dict(other.native)
    (8, {'gamma': 1, 'subsample': 0.5})
    """
    own: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                           for name, value in settings.items() if not name.startswith(NATIVE)}  # fmt: skip
    native = {name.removeprefix(NATIVE): value for name, value in settings.items() if name.startswith(NATIVE)}
    return replace(engine, native={**engine.native, **native}, **own)


def with_budget(engine: EngineSpec, spec: BenchSpec) -> EngineSpec:
    """AutoML with the budget of the bench's search; every other engine as it is."""
    terms = spec.search
    if terms is None or engine.family != "automl":
        return engine
    return replace(engine, models=terms.trials or engine.models, search_s=terms.seconds(spec.usd_per_hour),
                   held_fraction=terms.validation_fraction)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTrial:
    """One trial. `spent_s` counts against the budget: preparing and training, or of a trial that failed all its
    seconds. `quality`: on rows held out of the training rows; None with a `reason`."""

    number: int
    settings: Mapping[str, Any]
    spent_s: float
    wall_s: float
    quality: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSearch:
    """The search of one engine on one data set. Trial 1 has the settings of the file."""

    data: str
    engine: str
    metric: MetricName
    trials: tuple[SearchTrial, ...]

    @property
    def spent_s(self) -> float:
        return sum(one.spent_s for one in self.trials)

    @property
    def wall_s(self) -> float:
        """With start-up, loading and warm-up of every trial."""
        return sum(one.wall_s for one in self.trials)

    @property
    def failed(self) -> int:
        return sum(one.quality is None for one in self.trials)

    @property
    def as_given(self) -> float | None:
        """The quality of the file's own settings."""
        return self.trials[0].quality if self.trials else None

    @property
    def best(self) -> SearchTrial | None:
        """Of equals the first."""
        sign = 1.0 if direction_of(self.metric) == "minimize" else -1.0
        done = [one for one in self.trials if one.quality is not None]
        return min(done, key=lambda one: sign * (one.quality or 0.0), default=None)

    def course(self) -> Iterator[tuple[float, float]]:
        """Seconds spent so far, and the best quality by then."""
        spent, best = 0.0, None
        for one in self.trials:
            spent += one.spent_s
            if one.quality is not None and (best is None or is_better(self.metric, one.quality, best)):
                best = one.quality
            if best is not None:
                yield spent, best
