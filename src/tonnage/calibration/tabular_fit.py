"""How measured work on tables corrects its prediction, by engine and device.

    seconds of a cell = g_device · (f_engine · T + o_engine · passes + c_engine)

T: seconds by the physics (`sizing.tabular`). f: how much slower the engine is than what the physics is of (XGBoost's
histograms, an eager network); o: what a tree or an epoch costs however few the rows (a job of Spark, a call of Java);
c: what a training costs once. g: how much slower a device is than its cores say. Fitted in logarithms by damped least
squares (Levenberg 1944, Marquardt 1963), with normal priors: ln f about 0 as wide as the interval before any row; ln g
about 0 (the speed of a core of one generation over another's); o and c over two orders of magnitude each way, so that
rows decide. Rows of one configuration count as their mean.

Each table is left out in turn: the errors of what was left out give the 80 % interval, with the interval before any
row counting as `PRIOR_TABLES` tables. A device that no row is of is as far off besides as devices differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, fsum, log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.engine_costs import LOG_SD, added_seconds, costs_of, thread_seconds
from tonnage.calibration.local_profile import NORMAL_80, combined_log_sd, log_sd_of
from tonnage.calibration.tabular_rows import TabularRow, engine_key
from tonnage.sizing.estimates import Spread
from tonnage.sizing.tabular import MLP_TIME_SPREAD, TREES_TIME_ON_CPUS_SPREAD, TREES_TIME_ON_GPUS_SPREAD
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob

PRIOR_TABLES: Final = 3.0  # judgement, range 2 to 6
DEVICE_LOG_SD: Final = 0.3  # between cores that the physics takes as alike: judgement, range 0.15 to 0.5
ENGINE_LOG_SD: Final = 1.0  # an engine that no row is of, over the one that the physics is of: judgement, 0.5 to 1.5
OVERHEAD_LOG_SD: Final = 4.6  # two orders of magnitude
PASS_S: Final = 1e-4  # where the priors of o and c lie: what a call costs in C++
START_S: Final = 1e-2
CELL_LOG_SD: Final = 0.2  # what the physics leaves out of one table, in logarithms: judgement, range 0.1 to 0.4
STEPS: Final = 200
REFERENCE_ENGINES: Final[Mapping[str, str]] = {"boosted-trees": "xgboost", "mlp": "pytorch"}
PRIORS: Final[Mapping[str, Spread]] = {"boosted-trees": TREES_TIME_ON_CPUS_SPREAD, "mlp": MLP_TIME_SPREAD}
GPU_PRIORS: Final[Mapping[str, Spread]] = {"boosted-trees": TREES_TIME_ON_GPUS_SPREAD, "mlp": MLP_TIME_SPREAD}
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """What rows say of one engine. `tables`: how many tables it was seen on; `left_out_log_sd`: how far off
    predictions were of tables that were left out, with the prior as `PRIOR_TABLES` of them."""

    engine: str
    method: str
    factor: float
    pass_s: float
    start_s: float
    rows: int
    tables: int
    log_sd: float
    before_median_pct: float  # absolute errors of the physics alone
    left_out_median_pct: float | None  # of what was left out; None: one table, nothing to leave out
    left_out_inside: float | None  # share of left-out tables within their 80 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularFit:
    """Corrections by engine, and by device as factors over what its cores say."""

    made_on: str
    rows_sha256: str
    engines: tuple[EngineFigures, ...]
    devices: tuple[tuple[str, float], ...]

    def of(self, method: str, engine: str | None, workers: int = 1) -> EngineFigures | None:
        """The figures of an engine; without one those of the engine that the physics is of."""
        wanted = engine_key(engine or REFERENCE_ENGINES[method], workers)
        return next((one for one in self.engines if (one.engine, one.method) == (wanted, method)), None)

    def device_factor(self, device: str | None) -> float | None:
        """How much slower the device is than its cores say; None where no row is of it."""
        return next((factor for name, factor in self.devices if name == device), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularCorrection:
    """How one prediction changes: seconds = device · (factor · physics + added_s + thread_s / threads), within
    `spread`."""

    factor: float
    added_s: float
    thread_s: float = 0.0
    device: float
    spread: Spread
    engine: str
    tables: int
    own_device: bool

    def seconds(self, predicted_s: Floats, threads: Floats | float) -> Floats:
        return np.asarray(self.device * (self.factor * predicted_s + self.added_on(threads)))

    def added_on(self, threads: Floats | float) -> Floats:
        """Seconds beside the physics on so many threads."""
        return np.asarray(self.added_s + self.thread_s / threads)


def correction(
    fit: TabularFit | None,
    *,
    method: str,
    engine: str | None,
    passes: float,
    device: str | None,
    workers: int = 1,
    job: TabularJob | None = None,
) -> TabularCorrection:
    """What the fit says of an engine on a device (None: any other). Where no row is of the engine: what it costs as far
    as that is known beforehand (`engine_costs`, by the job), else the physics alone."""
    prior = log_sd_of(PRIORS[method])
    reference = REFERENCE_ENGINES[method]
    named = engine_key(engine or reference, workers)
    found = None if fit is None else fit.of(method, engine, workers)
    costs = None if engine is None or job is None else costs_of(engine, workers)
    if found is None and costs is not None and job is not None:
        return TabularCorrection(
            factor=costs.factor, added_s=added_seconds(costs, job, passes, workers),
            thread_s=thread_seconds(costs, job), device=1.0, spread=_spread(LOG_SD), engine=named, tables=0,
            own_device=False,
        )  # fmt: skip
    if fit is None or found is None:
        unseen = ENGINE_LOG_SD if named != reference else 0.0
        spread = PRIORS[method] if not unseen else _spread(combined_log_sd(prior, unseen))
        return TabularCorrection(factor=1.0, added_s=0.0, device=1.0, spread=spread, engine=named, tables=0,
                                 own_device=False)  # fmt: skip
    own = fit.device_factor(device)
    wide = found.log_sd if own is not None else combined_log_sd(found.log_sd, DEVICE_LOG_SD)
    return TabularCorrection(
        factor=found.factor, added_s=found.pass_s * passes + found.start_s, device=1.0 if own is None else own,
        spread=_spread(wide), engine=named, tables=found.tables, own_device=own is not None,
    )  # fmt: skip


def gpu_spread(job: TabularJob) -> Spread:
    """80 % interval of the seconds on GPUs, where no bench corrects anything yet: wider for an engine that the physics
    is not of."""
    known = GPU_PRIORS[job.method]
    if job.engine in (None, REFERENCE_ENGINES[job.method]):
        return known
    return _spread(combined_log_sd(log_sd_of(known), ENGINE_LOG_SD))


def _spread(log_sd: float) -> Spread:
    return Spread(low_factor=exp(-NORMAL_80 * log_sd), high_factor=exp(NORMAL_80 * log_sd))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """All repeats of one configuration: their mean in logarithms."""

    engine: str
    device: str
    method: str
    table: str
    passes: float
    predicted_s: float
    log_s: float
    repeats: int


def fit_tabular(rows: Sequence[TabularRow], *, made_on: str, rows_sha256: str) -> TabularFit:
    """Corrections from rows; the same whatever their order."""
    cells = _pooled(rows)
    whole = _solve(cells)
    errors: defaultdict[str, list[float]] = defaultdict(list)
    tables = sorted({one.table for one in cells})
    for table in tables if len(tables) > 1 else ():
        kept = [one for one in cells if one.table != table]
        others = _solve(kept)
        for one in cells:
            if one.table == table and any(other.engine == one.engine for other in kept):
                errors[one.engine].append(one.log_s - others.log_seconds(one))
    counts = {name: sum(one.repeats for one in cells if one.engine == name) for name in whole.engines}
    found = []
    for name in sorted(whole.engines):
        mine = [one for one in cells if one.engine == name]
        left = errors.get(name, [])
        prior = log_sd_of(PRIORS[mine[0].method])
        log_sd = _log_sd(prior, left)
        factor, pass_s, start_s = whole.engines[name]
        found.append(
            EngineFigures(
                engine=name, method=mine[0].method, factor=factor, pass_s=pass_s, start_s=start_s, rows=counts[name],
                tables=len({one.table for one in mine}), log_sd=log_sd,
                before_median_pct=_median_pct(one.log_s - log(one.predicted_s) for one in mine),
                left_out_median_pct=_median_pct(left) if left else None,
                left_out_inside=_inside(prior, left) if left else None,
            )
        )  # fmt: skip
    return TabularFit(
        made_on=made_on, rows_sha256=rows_sha256, engines=tuple(found), devices=tuple(sorted(whole.devices.items()))
    )


def _log_sd(prior: float, errors: Sequence[float]) -> float:
    """Spread of what was left out, with the prior as `PRIOR_TABLES` errors beside them; never wider than where one
    begins plus what was seen.

    >>> round(_log_sd(0.5, []), 3), round(_log_sd(0.5, [0.1] * 9), 3)
    (0.5, 0.265)
    """
    return sqrt((PRIOR_TABLES * prior**2 + fsum(one**2 for one in errors)) / (PRIOR_TABLES + len(errors)))


def _inside(prior: float, errors: Sequence[float]) -> float:
    """Share of the left-out errors within the interval that all the others give."""
    held = 0
    for place, error in enumerate(errors):
        others = [*errors[:place], *errors[place + 1 :]]
        held += abs(error) <= NORMAL_80 * _log_sd(prior, others)
    return held / len(errors)


def _median_pct(errors: Iterable[float]) -> float:
    """The middle absolute error of predictions, in percent of what was measured.

    >>> _median_pct([0.0, log(2.0), log(4.0)])
    50.0
    """
    off = sorted(abs(exp(-one) - 1.0) for one in errors)
    return 100.0 * (off[(len(off) - 1) // 2] + off[len(off) // 2]) / 2.0


def _pooled(rows: Sequence[TabularRow]) -> list[_Cell]:
    groups: defaultdict[tuple[str, str, str], list[TabularRow]] = defaultdict(list)
    for row in rows:
        groups[(row.engine, row.device, row.configuration)].append(row)
    found = []
    for key in sorted(groups):
        mine = groups[key]
        logs = [log(one.seconds) for one in mine]
        found.append(
            _Cell(engine=key[0], device=key[1], method=mine[0].method, table=mine[0].table, passes=mine[0].passes,
                  predicted_s=mine[0].predicted_s, log_s=fsum(logs) / len(logs), repeats=len(mine))
        )  # fmt: skip
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    engines: dict[str, tuple[float, float, float]]
    devices: dict[str, float]

    def log_seconds(self, cell: _Cell) -> float:
        factor, pass_s, start_s = self.engines[cell.engine]
        device = self.devices.get(cell.device, 1.0)
        return log(device * (factor * cell.predicted_s + pass_s * cell.passes + start_s))


def _solve(cells: Sequence[_Cell]) -> _Solved:
    """The most probable figures: damped least squares over the logarithms of all of them."""
    engines, devices = sorted({one.engine for one in cells}), sorted({one.device for one in cells})
    method = {one.engine: one.method for one in cells}
    centre = np.array(
        [*(value for _ in engines for value in (0.0, log(PASS_S), log(START_S))), *(0.0 for _ in devices)]
    )
    width = np.array(
        [*(value for name in engines for value in (_engine_sd(name, method[name]), OVERHEAD_LOG_SD, OVERHEAD_LOG_SD)),
         *(DEVICE_LOG_SD for _ in devices)]
    )  # fmt: skip
    problem = _Problem(cells=cells, engines=engines, devices=devices, centre=centre, width=width)
    place, cost = problem.descend(centre)
    for number, name in enumerate(engines):  # what a call costs may explain what a factor does: both are begun from
        mine = [one for one in cells if one.engine == name]
        for entry, most in (
            (1, min(exp(one.log_s) / one.passes for one in mine)),
            (2, min(exp(one.log_s) for one in mine)),
        ):
            begun = place.copy()
            begun[3 * number] = 0.0
            begun[3 * number + entry] = log(most / 2.0)
            tried, new_cost = problem.descend(begun)
            if new_cost < cost:
                place, cost = tried, new_cost
    found = np.exp(place)
    return _Solved(
        engines={name: (float(found[3 * n]), float(found[3 * n + 1]), float(found[3 * n + 2]))
                 for n, name in enumerate(engines)},
        devices={name: float(found[3 * len(engines) + n]) for n, name in enumerate(devices)},
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """The cells, and where the figures' logarithms are expected: `centre`, within `width`."""

    cells: Sequence[_Cell]
    engines: Sequence[str]
    devices: Sequence[str]
    centre: Floats
    width: Floats

    def descend(self, begun: Floats) -> tuple[Floats, float]:
        """The nearest lowest point, and how low it is."""
        place, damping = begun.copy(), 1e-3
        errors, slopes = _residuals(place, self.cells, self.engines, self.devices)
        cost = self._cost(errors, place)
        for _ in range(STEPS):
            normal = slopes.T @ slopes + np.diag(1.0 / self.width**2)
            downhill = slopes.T @ errors - (place - self.centre) / self.width**2
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
            tried = place + np.clip(step, -2.0, 2.0)
            new_errors, new_slopes = _residuals(tried, self.cells, self.engines, self.devices)
            new_cost = self._cost(new_errors, tried)
            if new_cost <= cost:
                done = cost - new_cost < 1e-12 * max(cost, 1.0)
                place, errors, slopes, cost, damping = tried, new_errors, new_slopes, new_cost, damping / 3.0
                if done:
                    break
            else:
                damping *= 4.0
                if damping > 1e12:
                    break
        return place, cost

    def _cost(self, errors: Floats, place: Floats) -> float:
        return float(errors @ errors + (((place - self.centre) / self.width) ** 2).sum())


def _engine_sd(engine: str, method: str) -> float:
    prior = log_sd_of(PRIORS[method])
    return prior if engine == REFERENCE_ENGINES[method] else combined_log_sd(prior, ENGINE_LOG_SD)


def _residuals(
    place: Floats, cells: Sequence[_Cell], engines: Sequence[str], devices: Sequence[str]
) -> tuple[Floats, Floats]:
    """Errors of the cells over `CELL_LOG_SD`, and the slopes of the model by each figure's logarithm."""
    errors, slopes = np.zeros(len(cells)), np.zeros((len(cells), len(place)))
    for row, one in enumerate(cells):
        first, device = 3 * engines.index(one.engine), 3 * len(engines) + devices.index(one.device)
        parts = np.exp(place[first : first + 3]) * np.array([one.predicted_s, one.passes, 1.0])
        whole = float(parts.sum())
        errors[row] = (one.log_s - log(whole) - place[device]) / CELL_LOG_SD
        slopes[row, first : first + 3] = parts / whole / CELL_LOG_SD
        slopes[row, device] = 1.0 / CELL_LOG_SD
    return errors, slopes
