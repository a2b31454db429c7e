"""What the planner says of each thing compared: money, time, latency and rate, at one volume and at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Final

from tonnage.catalog import Catalog, parse_gpu_filter
from tonnage.comparison.fronts import front_of
from tonnage.comparison.profiles import Hours
from tonnage.comparison.request import Thing
from tonnage.planning import CatalogStamp, Option, Plan
from tonnage.sizing.estimates import Figure
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.jobs import ServeJob, TabularJob, Workload

Planner = Callable[[Workload, Catalog], Plan]
SERVICE_GRID: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # volumes at which a service is planned anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """One workload and how often its job runs a month (None: a service)."""

    workload: Workload
    jobs_per_month: float | None

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def requests_per_month(self) -> float | None:
        job = self.workload.job
        return job.rate_per_s * job.hours_per_month * SECONDS_PER_HOUR if isinstance(job, ServeJob) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtVolume:
    """Run cost a month at `factor` times the stated volume; None: nothing there can do it."""

    factor: float
    usd_per_month: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing doing one workload: the cheapest option, or why there is none. Costs are without people."""

    thing: str
    work: str
    kind: str
    option: Option | None
    why_not: str
    usd_per_job: Figure | None
    usd_per_month: Figure | None
    at_volumes: tuple[AtVolume, ...]
    options: int
    volume: str
    stamp: CatalogStamp | None = None
    front: tuple[Option, ...] = ()  # ways that nothing beats in both cost and time, the cheapest first

    @property
    def time_s(self) -> Figure | None:
        return self.option.time_s if self.option else None

    @property
    def latency_p95_s(self) -> Figure | None:
        return None if self.option is None else self.option.run.latency_p95_s or self.option.run.ttft_p95_s

    @property
    def rate(self) -> tuple[str, Figure] | None:
        return self.option.run.rates[0] if self.option and self.option.run.rates else None

    @property
    def price_read_on(self) -> date | None:
        return self.option.price_read_on if self.option else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One thing over all the work. None: not computed, because it cannot do some of it or a figure is not known."""

    thing: str
    rows: tuple[Row, ...]
    run_usd_per_month: Figure | None
    people_usd_per_month: Figure | None
    setup_usd: Figure | None
    setup_hours: Hours | None

    @property
    def can_do(self) -> bool:
        return all(row.option is not None for row in self.rows)

    @property
    def usd_per_month(self) -> Figure | None:
        """Running it, people included where their rate and hours are known."""
        if self.run_usd_per_month is None:
            return None
        return add((self.run_usd_per_month, self.people_usd_per_month or ZERO))

    @property
    def time_s(self) -> Figure | None:
        """One run of each job, one after another."""
        times = [row.time_s for row in self.rows if row.kind != "serve"]
        return add(times) if times else None

    @property
    def latency_p95_s(self) -> Figure | None:
        """The slowest of the services."""
        found = [row.latency_p95_s for row in self.rows if row.kind == "serve"]
        known = [figure for figure in found if figure is not None]
        return max(known, key=lambda one: one.value) if known and len(known) == len(found) else None

    @property
    def throughput_per_s(self) -> Figure | None:
        """What the first workload's option carries."""
        return self.rows[0].rate[1] if len(self.rows) == 1 and self.rows[0].rate else None


ZERO: Final = Figure(value=0.0, low=0.0, high=0.0)


def add(figures: Iterable[Figure | None]) -> Figure | None:
    """The sum, its interval as wide as if all were off together; None where one is not known."""
    known = []
    for figure in figures:
        if figure is None:
            return None
        known.append(figure)
    return Figure(
        value=sum(one.value for one in known),
        low=sum(one.low for one in known),
        high=sum(one.high for one in known),
        basis="assumed" if any(one.basis == "assumed" for one in known) else "computed",
    )


def people_usd(hours: Hours | None, usd_per_hour: float | None) -> Figure | None:
    """Hours at a rate: an assumption with its range."""
    if hours is None or usd_per_hour is None:
        return None
    return Figure(
        value=hours.likely * usd_per_hour, low=hours.low * usd_per_hour, high=hours.high * usd_per_hour, basis="assumed"
    )


def compute_total(
    thing: Thing,
    works: Sequence[Sought],
    catalog: Catalog,
    planner: Planner,
    *,
    factors: Sequence[float],
    usd_per_hour: float | None,
) -> Total:
    """All the work on one thing."""
    rows = tuple(compute_row(thing, one, catalog, planner, factors=factors) for one in works)
    return Total(
        thing=thing.name,
        rows=rows,
        run_usd_per_month=add(row.usd_per_month for row in rows),
        people_usd_per_month=people_usd(thing.operation_hours_per_month, usd_per_hour),
        setup_usd=people_usd(thing.setup_hours, usd_per_hour),
        setup_hours=thing.setup_hours,
    )


def compute_row(thing: Thing, work: Sought, catalog: Catalog, planner: Planner, *, factors: Sequence[float]) -> Row:
    """The cheapest way of one thing to do one workload, planned anew at each volume of a service."""
    job = work.workload.job
    if isinstance(job, ServeJob):
        volume = f"{work.requests_per_month:,.0f} requests a month"
    else:
        volume = f"{work.jobs_per_month:g} jobs a month"
    blank = Row(
        thing=thing.name, work=work.name, kind=work.workload.kind, option=None, why_not="", usd_per_job=None,
        usd_per_month=None, at_volumes=(), options=0, volume=volume,
    )  # fmt: skip
    narrowed = _narrow(thing, work.workload, catalog)
    if isinstance(narrowed, str):
        return replace(blank, why_not=narrowed)
    plan = planner(*narrowed)
    blank = replace(blank, stamp=plan.catalog)
    if plan.best is None:
        return replace(blank, why_not=_why_none(plan, thing))
    found = replace(blank, option=plan.best, options=len(plan.options), front=front_of(plan.options))
    if isinstance(job, ServeJob):
        return _service_row(found, narrowed, planner, factors)
    assert work.jobs_per_month is not None
    monthly = plan.best.cost_usd.scaled(work.jobs_per_month)
    return replace(
        found,
        usd_per_job=plan.best.cost_usd,
        usd_per_month=monthly,
        at_volumes=tuple(AtVolume(factor=factor, usd_per_month=monthly.scaled(factor)) for factor in factors),
    )


def _service_row(found: Row, narrowed: tuple[Workload, Catalog], planner: Planner, factors: Sequence[float]) -> Row:
    workload, catalog = narrowed
    job = workload.job
    assert isinstance(job, ServeJob)
    assert found.option is not None
    out = []
    for factor in sorted({*factors, *SERVICE_GRID}):
        best = found.option
        if factor != 1.0:
            other = planner(replace(workload, job=replace(job, rate_per_s=job.rate_per_s * factor)), catalog).best
            out.append(AtVolume(factor=factor, usd_per_month=other.cost_usd if other else None))
        else:
            out.append(AtVolume(factor=factor, usd_per_month=best.cost_usd))
    return replace(found, usd_per_month=found.option.cost_usd, at_volumes=tuple(out))


def _narrow(thing: Thing, workload: Workload, catalog: Catalog) -> tuple[Workload, Catalog] | str:
    """The workload and catalog as far as the thing reaches, or why it cannot do it."""
    reach, limits = thing.profile.reach, workload.constraints
    if not reach.computed:
        return f"not computed: {reach.why_not}"
    if reach.kinds and workload.kind not in reach.kinds:
        return f"cannot be computed for kind {workload.kind}: {reach.why_not or 'outside what it does'}"
    own = _both(reach.providers, thing.providers)
    providers = None if own is None else _both(own, limits.providers)
    if providers is None:
        return "the workload's providers and its own have none in common"
    gpus = tuple(parse_gpu_filter(text) for text in thing.gpus) or limits.gpus
    platforms = _both(reach.platforms, limits.platforms)
    if platforms is None:
        return "the workload's platforms and its own have none in common"
    limits = replace(limits, providers=providers, gpus=gpus, platforms=platforms)  # type: ignore[arg-type]
    job = workload.job
    if isinstance(job, TabularJob) and reach.tabular_method is not None:
        job = replace(job, method=reach.tabular_method)  # type: ignore[arg-type]
    team = replace(workload.team, hourly_usd=None)  # people are counted once, by the comparison
    return replace(workload, constraints=limits, job=job, team=team), _with_machines(catalog, thing.machines)


def _both(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names in both, where an empty tuple is no limit; None where nothing is left."""
    if not left or not right:
        return left or right
    return tuple(name for name in left if name in right) or None


def _with_machines(catalog: Catalog, patterns: tuple[str, ...]) -> Catalog:
    if not patterns:
        return catalog
    return replace(
        catalog,
        offers=tuple(one for one in catalog.offers if _matches(one.instance_type, patterns)),
        instance_types=tuple(one for one in catalog.instance_types if _matches(one.name, patterns)),
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _why_none(plan: Plan, thing: Thing) -> str:
    """The change that would let something fit, other than leaving what is compared; else the nearest miss within it."""
    for relaxation in plan.relaxations:
        if not any(f"constraints.{own}" in relaxation for own in ("platforms", "providers", "gpus")):
            return f"nothing fits: {relaxation}"
    reach = thing.profile.reach.platforms
    within = [one for one in plan.refused if one.binding not in ("platform", "provider", "gpu", "purchase")
              and (not reach or one.platform in reach)]  # fmt: skip
    if within:
        miss = min(within, key=lambda one: (one.shortfall, one.provider, one.instance_type))
        return f"nothing fits: {miss.provider} {miss.instance_type} needs {miss.needs}, has {miss.has}"
    if "bedrock" in reach:
        return "no model of its price list is named for this work (buy.token_models names those that would do)"
    return f"the catalog has no price there for work of kind {plan.kind}"
