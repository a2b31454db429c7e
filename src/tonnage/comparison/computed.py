"""What the planner says of each alternative compared: money, time, latency and rate, at one volume and at others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date
from functools import cache
from typing import Final

from tonnage.catalog import Catalog
from tonnage.comparison.energy import Footprint, footprint
from tonnage.comparison.energy import total as sum_footprints
from tonnage.comparison.equivalents import Equivalent, equivalent_of
from tonnage.comparison.fronts import latency, pareto_front
from tonnage.comparison.profile_file import PeopleHours
from tonnage.comparison.reaching import WhyNot, enough_machines, narrow_to, only_of, why_none
from tonnage.comparison.request import Alternative, Stated
from tonnage.planning.plan import CatalogStamp, MachineOption, Option, Plan, PriceTrusted, TokenOption
from tonnage.planning.reasons import Reason
from tonnage.planning.reasons.risks import EstimatedFeeRisk
from tonnage.sizing.estimates import Figure, add_figures
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob, Workload
from tonnage.workload.token_models import plain_model_name

Planner = Callable[[Workload, Catalog], Plan]
Replan = Callable[[float], Figure | None]
NOTHING_STATED: Final = Stated()
SERVICE_GRID: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # volumes at which a service is planned again


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDemand:
    """One workload and how often its job runs a month (None: a service)."""

    workload: Workload
    jobs_per_month: float | None

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def requests_per_month(self) -> float | None:
        job = self.workload.job
        return job.requests_per_bill if isinstance(job, ServeJob) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtVolume:
    """Run cost a month at `factor` times the stated volume; None: nothing there can do it."""

    factor: float
    usd_per_month: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRow:
    """One alternative doing one workload: the cheapest option, or why there is none. Costs are without people."""

    alternative: str
    work: str
    kind: str
    model: str  # that the work asks for; "" for tables
    option: Option | None
    why_not: WhyNot | None
    usd_per_job: Figure | None
    usd_per_month: Figure | None
    at_volumes: tuple[AtVolume, ...]
    options: int
    volume: str
    stamp: CatalogStamp | None = None
    fastest: Option | None = None  # of all options, the one that ends first
    purchases: tuple[Option, ...] = ()  # the cheapest of each way of buying, cheapest first
    doubted: Option | None = None  # cheaper than all these, at a price that is not relied on
    footprint: Footprint | None = None  # of a month
    replan: Replan | None = field(default=None, compare=False, repr=False)  # of a service: its month at any volume
    front: tuple[Option, ...] = ()  # ways that nothing beats in both cost and time, the cheapest first
    by_devices: Mapping[float, Option] = field(default_factory=dict)  # the fastest on so many accelerators
    instead: Equivalent | None = (
        None  # done with another model than the one asked for, which the user has not said would do
    )

    @property
    def is_service(self) -> bool:
        return self.kind == "serve"

    @property
    def done_with(self) -> str:
        """The model that does the work: that of the token API, else the one asked for."""
        return plain_model_name(self.option.instance_type if isinstance(self.option, TokenOption) else self.model)

    @property
    def fee_estimate(self) -> EstimatedFeeRisk | None:
        """Of the cheapest option: its platform's fee where it was not read but estimated."""
        risks = () if self.option is None else self.option.risks
        return next((one for one in risks if isinstance(one, EstimatedFeeRisk)), None)

    @property
    def time_s(self) -> Figure | None:
        return self.option.time_s if self.option else None

    @property
    def latency_p95_s(self) -> Figure | None:
        return None if self.option is None else latency(self.option)

    @property
    def rates(self) -> tuple[tuple[str, Figure], ...]:
        return self.option.run.rates if isinstance(self.option, MachineOption) else ()

    @property
    def rate(self) -> tuple[str, Figure] | None:
        return next(iter(self.rates), None)

    @property
    def price_read_on(self) -> date | None:
        return self.option.price_read_on if self.option else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One alternative over all the work. None: not computed, because it cannot do some of it or a figure is not
    known."""

    alternative: str
    rows: tuple[WorkRow, ...]
    run_usd_per_month: Figure | None
    people_usd_per_month: Figure | None
    setup_usd: Figure | None
    setup_hours: PeopleHours | None
    footprint: Footprint
    time_at_budget_s: Figure | None = None  # of one run of each job, each for the same money on every alternative
    time_on_equal_devices_s: Figure | None = None  # the same, each on as many accelerators

    @property
    def energy_kwh_per_month(self) -> Figure | None:
        return self.footprint.energy_kwh

    @property
    def carbon_kg_per_month(self) -> Figure | None:
        return self.footprint.carbon_kg

    @property
    def can_do(self) -> bool:
        """Whether all the work has a way there, with another model if need be."""
        return all(row.option is not None for row in self.rows)

    @property
    def as_asked(self) -> bool:
        """Whether all the work is done with the models asked for, or such as its files name."""
        return self.can_do and all(row.instead is None for row in self.rows)

    @property
    def usd_per_month(self) -> Figure | None:
        """Running it, people included where their rate and hours are known."""
        if self.run_usd_per_month is None:
            return None
        return add_figures((self.run_usd_per_month, self.people_usd_per_month or ZERO))

    @property
    def time_s(self) -> Figure | None:
        """One run of each job, one after another."""
        times = [row.time_s for row in self.rows if not row.is_service]
        return add_figures(times) if times else None

    @property
    def latency_p95_s(self) -> Figure | None:
        """The slowest of the services."""
        found = [row.latency_p95_s for row in self.rows if row.is_service]
        known = [figure for figure in found if figure is not None]
        return max(known, key=lambda one: one.value) if known and len(known) == len(found) else None

    @property
    def throughput_per_s(self) -> Figure | None:
        """What the first workload's option carries."""
        return self.rows[0].rate[1] if len(self.rows) == 1 and self.rows[0].rate else None


ZERO: Final = Figure(value=0.0, low=0.0, high=0.0)


def people_usd(hours: PeopleHours | None, usd_per_hour: float | None) -> Figure | None:
    """Hours at a rate: an assumption with its range."""
    if hours is None or usd_per_hour is None:
        return None
    return Figure(
        value=hours.likely * usd_per_hour, low=hours.low * usd_per_hour, high=hours.high * usd_per_hour, basis="assumed"
    )


def compute_total(
    alternative: Alternative,
    works: Sequence[WorkDemand],
    catalog: Catalog,
    planner: Planner,
    *,
    factors: Sequence[float],
    usd_per_hour: float | None,
    power: Stated,
    file: str | None = None,
) -> Total:
    """All the work on one alternative."""
    rows = tuple(
        compute_row(alternative, one, catalog, planner, factors=factors, power=power, file=file) for one in works
    )
    return Total(
        alternative=alternative.name,
        rows=rows,
        run_usd_per_month=add_figures(row.usd_per_month for row in rows),
        people_usd_per_month=people_usd(alternative.operation_hours_per_month, usd_per_hour),
        setup_usd=people_usd(alternative.setup_hours, usd_per_hour),
        setup_hours=alternative.setup_hours,
        footprint=sum_footprints({row.work: row.footprint for row in rows}),
    )


def compute_row(
    alternative: Alternative,
    work: WorkDemand,
    catalog: Catalog,
    planner: Planner,
    *,
    factors: Sequence[float],
    power: Stated = NOTHING_STATED,
    file: str | None = None,
) -> WorkRow:
    """The cheapest way of one alternative to do one workload, planned again at each volume of a service."""
    blank = _blank_row(alternative, work)
    narrowed = narrow_to(alternative, work.workload, catalog, file)
    if isinstance(narrowed, Reason):
        return replace(blank, why_not=narrowed)
    plan = enough_machines(planner(*narrowed), alternative)
    blank = replace(blank, stamp=plan.catalog)
    instead = None
    if plan.best is None:
        why = why_none(plan, alternative)
        found_instead = equivalent_of(narrowed[0])
        if found_instead is not None:
            instead, narrowed = found_instead[1], (found_instead[0], narrowed[1])
            plan = planner(*narrowed)
        if plan.best is None:
            return replace(blank, why_not=why)
    found = replace(
        blank,
        instead=instead,
        option=plan.best,
        options=len(plan.options),
        fastest=_fastest(plan),
        purchases=_by_purchase(plan),
        doubted=next((one.option for one in plan.cheaper if isinstance(one, PriceTrusted)), None),
        footprint=footprint(plan.best, _hours_held(plan.best, work), catalog, power, load=_load(plan.best, work)),
        front=pareto_front(plan.choices),
        by_devices=_by_devices(plan),
    )
    if isinstance(work.workload.job, ServeJob):
        return _service_row(found, narrowed, planner, factors)
    assert work.jobs_per_month is not None
    cost = plan.best.cost_usd
    monthly = cost.scaled(work.jobs_per_month)
    return replace(
        found,
        usd_per_job=cost,
        usd_per_month=monthly,
        at_volumes=tuple(AtVolume(factor=factor, usd_per_month=monthly.scaled(factor)) for factor in factors),
    )


def _blank_row(alternative: Alternative, work: WorkDemand) -> WorkRow:
    """What is known of a row before anything is planned."""
    job = work.workload.job
    if isinstance(job, ServeJob):
        volume = f"{work.requests_per_month:,.0f} requests a month"
    else:
        volume = f"{work.jobs_per_month:g} job{'' if work.jobs_per_month == 1 else 's'} a month"
    model = getattr(job, "model", None)
    return WorkRow(
        alternative=alternative.name, work=work.name, kind=work.workload.kind, model=model.name if model else "",
        option=None, why_not=None, usd_per_job=None, usd_per_month=None, at_volumes=(), options=0, volume=volume,
    )  # fmt: skip


def _service_row(
    found: WorkRow, narrowed: tuple[Workload, Catalog], planner: Planner, factors: Sequence[float]
) -> WorkRow:
    workload, catalog = narrowed
    assert found.option is not None
    best: dict[float, Option | None] = {1.0: found.option}
    for factor in sorted({*factors, *SERVICE_GRID} - {1.0}):
        best[factor] = planner(_at_rate(workload, factor), catalog).best
    volumes = tuple(
        AtVolume(factor=at, usd_per_month=one.cost_usd if one else None) for at, one in sorted(best.items())
    )
    used = only_of(catalog, [one for one in best.values() if one is not None])

    @cache
    def replan(factor: float) -> Figure | None:
        option = planner(_at_rate(workload, factor), used).best
        return option.cost_usd if option else None

    return replace(found, usd_per_month=found.option.cost_usd, at_volumes=volumes, replan=replan)


def _at_rate(workload: Workload, factor: float) -> Workload:
    """The service at so many times its rate."""
    job = workload.service
    return replace(workload, job=replace(job, rate_per_s=job.rate_per_s * factor))


def _fastest(plan: Plan) -> Option | None:
    """None for a service, which has no end."""
    timed = [(one.time_s.value, one.cost_usd.value, place) for place, one in enumerate(plan.choices) if one.time_s]
    return plan.choices[min(timed)[2]] if timed else None


def _by_devices(plan: Plan) -> dict[float, Option]:
    """The fastest way on each number of accelerators; of equally fast ones the cheapest."""
    found: dict[float, Option] = {}
    for one in plan.choices:
        devices = one.gpu_count * one.count
        before = found.get(devices)
        if one.time_s is None or not one.gpu:
            continue
        if before is None or before.time_s is None or one.time_s.value < before.time_s.value:
            found[devices] = one
    return found


def _by_purchase(plan: Plan) -> tuple[Option, ...]:
    """The first, that is the cheapest, option of each way of buying."""
    found: dict[str, Option] = {}
    for one in plan.choices:
        found.setdefault(one.purchase, one)
    return tuple(sorted(found.values(), key=lambda one: one.cost_usd.value))


def _load(option: Option, work: WorkDemand) -> float | None:
    """The share of its capacity that an option uses while it is held: all of it for a job; None: not known."""
    if not work.workload.is_service:
        return 1.0
    return option.run.utilisation if isinstance(option, MachineOption) else None


def _hours_held(option: Option, work: WorkDemand) -> Figure:
    """Hours of a month in which the machines of an option work or stand by, all of them together being one."""
    job = work.workload.job
    if isinstance(job, ServeJob):
        return Figure(value=job.hours_per_month, low=job.hours_per_month, high=job.hours_per_month)
    if isinstance(option, TokenOption):
        return ZERO
    assert option.time_s is not None
    assert work.jobs_per_month is not None
    return option.time_s.scaled(work.jobs_per_month / SECONDS_PER_HOUR)
