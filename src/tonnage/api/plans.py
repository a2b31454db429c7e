"""Plans, sizes and comparisons as functions: `tonnage.plan`, `tonnage.size`, `tonnage.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.answers import Result
from tonnage.api.catalogs import CatalogSource, market_of
from tonnage.api.inputs import (
    CalibrationSource,
    Clock,
    WorkloadSource,
    calibrated_model_of,
    load_workload,
    read_workload,
)
from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.overrides import override_constraints, parse_override_gpus
from tonnage.planning.assumed import assumptions_used
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.kept_work import KeptWork
from tonnage.planning.limits import check_limits
from tonnage.planning.plan import Objective, Option, Plan, Refusal
from tonnage.planning.planner import make_plan, rank_options
from tonnage.planning.reasons.flips import Flip
from tonnage.planning.sizes import SizeReport, make_size_report
from tonnage.planning.whatif.flips import Planner, flips_of
from tonnage.planning.whatif.scenario import Scenario
from tonnage.reports.plan import plan_report
from tonnage.reports.rendering import Report
from tonnage.settings import Settings, current_settings
from tonnage.sizing.assumption_table import Assumption
from tonnage.values import dataclass
from tonnage.workload.forced_layout import force_layout
from tonnage.workload.jobs import Workload

if TYPE_CHECKING:
    from tonnage.api.compared import ShownComparison


@dataclass(frozen=True, slots=True)
class PlanResult(Result):
    """A plan, with the catalog and the assumptions it is based on. `top` options are shown, all are held."""

    plan: Plan
    catalog: Catalog
    assumptions: tuple[Assumption, ...]
    scenario: Scenario
    planner: Planner = field(repr=False)
    top: int = 10

    def flips(self, loser: Option | Refusal) -> tuple[Flip, ...]:
        """The smallest change in each dimension that makes `loser` win (an option, where it was refused), tried."""
        return flips_of(loser, self.plan, self.scenario, self.planner)

    @property
    def best(self) -> Option | None:
        return self.plan.best

    @property
    def options(self) -> tuple[Option, ...]:
        return self.plan.options

    @property
    def refused(self) -> tuple[Refusal, ...]:
        return self.plan.refused

    def explain(self, name: str | None = None) -> Explanation:
        """Why it came out so, or what became of `name`; UnknownName with the nearest where there is no such thing."""
        return Explanation(self, name)

    def report(self) -> Report:
        return plan_report(self.plan, top=self.top)


@dataclass(frozen=True, slots=True)
class Explanation(Result):
    """The answer of `explain`: the winner in full, or one instance type, GPU or provider."""

    result: PlanResult
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:  # an unknown name is reported now, not when it is shown
            from tonnage.reports.selection import select_candidates

            select_candidates(self.result.plan, self.result.catalog, self.name)

    def report(self) -> Report:
        from tonnage.reports.explain import explain_report
        from tonnage.reports.selection import select_candidates

        plan, catalog, name = self.result.plan, self.result.catalog, self.name
        selection = None if name is None else select_candidates(plan, catalog, name)
        return explain_report(plan, selection, self.result.assumptions, top=self.result.top)


@dataclass(frozen=True, slots=True)
class SizeResult(Result):
    """What the job needs and the machines that hold it."""

    size: SizeReport
    every_row: bool = False
    top: int = 30

    def report(self) -> Report:
        from tonnage.reports.size import size_report

        return size_report(self.size, top=self.top, every_row=self.every_row)


class _LastWork:
    """What the last plans of this process found, for the next of the same catalog and calibration: a page makes one
    for each move of a slider."""

    def __init__(self) -> None:
        self._kept: KeptWork | None = None

    def of(self, market: Catalog, calibrated: CalibratedModel) -> KeptWork:
        kept = self._kept
        if kept is None or not kept.serves(market, calibrated):
            kept = self._kept = KeptWork(market, calibrated)
        return kept


_LAST = _LastWork()


def plan(
    workload: WorkloadSource,
    *,
    rank: Objective = "cost",
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    layout: str | None = None,
    memory_margin: float | None = None,
    max_price_age_days: int | None = None,
    top: int = 10,
    settings: Settings | None = None,
    **constraints: Any,
) -> PlanResult:
    """Rank every way to do the work. `constraints` replace the workload's: providers, platforms, regions, gpus,
    deadline, budget_usd, residency, interruptible, max_gpus, max_nodes.

    `calibration` (a file, say) gives the fitted figures and intervals; by default the settings' one, else the packaged.
    `layout` ('tp=2,pp=2,micro_batch=4') goes before the workload's own. `memory_margin` is the share of device memory
    kept free (0 to 0.5). A plan where nothing fits has no options.
    """
    if rank not in ("cost", "time", "pareto"):
        raise InputError(f"cannot rank by '{rank}'", hint="one of cost, time, pareto")
    if top < 1:
        raise InputError(f"found {top} for top, expected 1 or more")
    settings = settings or current_settings(as_of=as_of)
    market = market_of(catalog, settings)
    job = override_constraints(read_workload(workload, as_of, market, settings), market, **constraints)
    job = job if layout is None else force_layout(job, layout)
    calibrated = calibrated_model_of(calibration, memory_margin, settings)
    age = settings.max_price_age_days if max_price_age_days is None else max_price_age_days
    check_limits(job, market)

    how = {
        "objective": rank,
        "calibrated": calibrated,
        "max_price_age_days": age,
        "before": _LAST.of(market, calibrated),
    }
    planner: Planner = partial(rank_options, **how)  # type: ignore[arg-type]
    made = make_plan(job, market, **how)  # type: ignore[arg-type]
    scenario = Scenario(workload=job, catalog=market)
    return PlanResult(made, market, assumptions_used(job, calibrated), scenario, planner, top)


def size(
    workload: WorkloadSource,
    *,
    gpus: str | tuple[str, ...] | list[str] = (),
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    layout: str | None = None,
    memory_margin: float | None = None,
    top: int = 30,
    settings: Settings | None = None,
) -> SizeResult:
    """What the job needs, and how it runs on each kind of machine (or on those of `gpus`), without prices.

    `layout` ('tp=2,pp=2,micro_batch=4') goes before the workload's own.
    """
    settings = settings or current_settings(as_of=as_of)
    market = market_of(catalog, settings)
    filters = parse_override_gpus(gpus, market)
    job = read_workload(workload, as_of, market, settings)
    job = job if layout is None else force_layout(job, layout)
    made = make_size_report(
        job, market, gpus=filters, calibrated=calibrated_model_of(calibration, memory_margin, settings)
    )
    return SizeResult(made, every_row=bool(filters), top=top)


def compare(
    file: Path | str,
    *,
    profile_folders: Sequence[Path] = (),
    weights: Mapping[str, float] | None = None,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    memory_margin: float | None = None,
    settings: Settings | None = None,
) -> ShownComparison:
    """Compare platforms as a compare file asks; profiles of `profile_folders` join the packaged ones.

    `weights` (criterion: weight) go before the file's own; `comparison.comparing.reweighted` weighs one that was made.
    Raises InputError for what is no criterion.
    """
    from tonnage.api.compared import shown
    from tonnage.comparison.comparing import compare as compare_all
    from tonnage.comparison.comparing import reweighted
    from tonnage.comparison.request import load_request

    settings = settings or current_settings(as_of=as_of)
    market = market_of(catalog, settings)
    request = load_request(file, profile_folders=profile_folders)
    read = [load_workload(work.file, catalog=market, settings=settings) for work in request.works]
    named = [
        one if work.name is None else replace(one, name=work.name)
        for work, one in zip(request.works, read, strict=True)
    ]
    calibrated = calibrated_model_of(calibration, memory_margin, settings)

    for job in named:
        check_limits(job, market)

    def planner(workload: Workload, offers: Catalog) -> Plan:
        return make_plan(
            workload, offers, objective="cost", calibrated=calibrated, max_price_age_days=settings.max_price_age_days
        )

    assumed = {one.name: one for job in named for one in assumptions_used(job, calibrated)}
    now = settings.as_of or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    made = compare_all(request, named, market, planner, as_of=now, assumptions=tuple(assumed.values()))
    if weights:
        made = reweighted(made, weights)
    return shown(made)
