"""Workload x catalog -> plan: admit offers, size, join, rank, and say why each other candidate fell out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType, Offer
from tonnage.planning.assumed import prediction_notes, terms_note
from tonnage.planning.grounds import Grounds
from tonnage.planning.joined import Joined, join
from tonnage.planning.market import admit_offers, refuse
from tonnage.planning.nearest import SHOWN, nearest_misses
from tonnage.planning.need import needs_of
from tonnage.planning.options import OptionBuilder
from tonnage.planning.plan import CatalogStamp, Objective, Option, Plan, Refusal
from tonnage.planning.ranking import Limits, choose, pareto_rows, score, within
from tonnage.planning.relaxations import best_of_each_gpu, describe_relaxation, relaxations
from tonnage.planning.shortfalls import limit_misses
from tonnage.planning.sized_park import SizedPark, size_job
from tonnage.planning.summary import summarise
from tonnage.pricing.interruptions import Terms
from tonnage.workload.jobs import Buy, Constraints, ServeJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Everything ranked options are built from."""

    offers: Sequence[Offer]
    park: SizedPark
    joined: Joined
    price: np.ndarray


def make_plan(
    workload: Workload,
    catalog: Catalog,
    *,
    objective: Objective = "cost",
    grounds: Grounds | None = None,
    max_price_age_days: int = 180,
) -> Plan:
    """Rank every way in the catalog to do `workload`. `grounds`: what predictions stand on; the packaged calibration
    by default.

    Raises nothing when nothing fits: the plan then has no options, and `nearest_misses` says what came closest.
    """
    grounds = grounds or Grounds.packaged()
    plan = _plan(workload, catalog, objective, grounds, max_price_age_days)
    if plan.options:
        return plan

    def again(changed: Workload, offered: Catalog = catalog) -> Plan:
        return _plan(changed, offered, objective, grounds, max_price_age_days)

    free = relaxations(workload, again)
    chosen = [option for _, freed in free for option in best_of_each_gpu(freed.options, SHOWN)]
    return replace(
        plan,
        relaxations=tuple(describe_relaxation(text, freed.options[0]) for text, freed in free),
        nearest_misses=nearest_misses(workload, catalog, plan.refused, chosen, again),
    )


def _plan(
    workload: Workload, catalog: Catalog, objective: Objective, grounds: Grounds, max_price_age_days: int
) -> Plan:
    service = isinstance(workload.job, ServeJob)
    market = admit_offers(workload, catalog)
    instances = {instance.key: instance for instance in catalog.instance_types}
    keys = sorted({(offer.provider, offer.instance_type) for offer in market.offers})
    park = size_job(workload, catalog, [instances[key] for key in keys], grounds)
    offers = [offer for offer in market.offers if (offer.provider, offer.instance_type) in park.index]
    table = _join(workload, offers, park, service=service)
    options, rejected = _rank(workload, catalog, table, objective, service=service, max_age=max_price_age_days)
    refused = [*market.refused, *_sizing_refusals(market.offers, instances, park), *rejected]
    return Plan(
        name=workload.name,
        kind=workload.kind,
        summary=summarise(workload),
        objective=objective,
        as_of=workload.as_of,
        horizon="month" if service else "job",
        need=needs_of(workload.job),
        options=options,
        refused=tuple(sorted(refused, key=lambda r: (r.provider, r.instance_type, r.purchase or ""))),
        catalog=_stamp(catalog, offers),
        notes=(*_notes(workload, catalog), *prediction_notes(workload, options, grounds)),
    )


def terms_of(buy: Buy) -> Terms:
    """The terms of starting and interrupting: what the workload states, else the assumptions of pricing."""
    default = Terms()
    rate = buy.interruptions_per_hour
    return Terms(
        startup_s=default.startup_s if buy.startup_s is None else buy.startup_s,
        checkpoint_s=default.checkpoint_s,
        interruptions_per_hour=default.interruptions_per_hour if rate is None else rate,
        interruptions_low_per_hour=default.interruptions_low_per_hour if rate is None else rate,
        interruptions_high_per_hour=default.interruptions_high_per_hour if rate is None else rate,
        checkpoint_interval_s=buy.checkpoint_interval_s,
    )


def discounted(offer: Offer, buy: Buy) -> Decimal:
    """The offer's price per instance-hour after the workload's own discount for its provider, USD."""
    percent = dict(buy.discount_percent).get(offer.provider, 0.0)
    return offer.usd_per_instance_hour * (Decimal(100) - Decimal(repr(percent))) / Decimal(100)


def _join(workload: Workload, offers: Sequence[Offer], park: SizedPark, *, service: bool) -> _Table:
    machine = np.array([park.index[offer.provider, offer.instance_type] for offer in offers], dtype=np.intp)
    price = np.array([float(discounted(offer, workload.buy)) for offer in offers], dtype=np.float64)
    joined = join(offers, machine, price, park.sized, terms=terms_of(workload.buy), service=service)
    return _Table(offers=offers, park=park, joined=joined, price=price)


def _rank(
    workload: Workload,
    catalog: Catalog,
    table: _Table,
    objective: Objective,
    *,
    service: bool,
    max_age: int,
) -> tuple[tuple[Option, ...], list[Refusal]]:
    """Ranked options, and a refusal for each group whose every row breaks a limit."""
    joined, limits = table.joined, limits_of(workload.constraints)
    instances = {instance.key: instance for instance in catalog.instance_types}
    groups = _groups(table.offers)
    allowed = within(joined, limits)
    if service and getattr(workload.job, "spare_replicas", 0) < 1:
        allowed &= ~joined.spot
    rows = np.flatnonzero(allowed).astype(np.intp)
    value = score(joined, objective, service=service)
    front = np.zeros(len(joined.run), dtype=bool)
    front[rows] = pareto_rows(joined.cost_usd[rows], joined.wall_s[rows])
    shown_front = front if objective == "pareto" else np.zeros_like(front)
    chosen = choose(joined, rows, groups, value, shown_front)
    if objective == "pareto":
        chosen = chosen[np.argsort(~front[chosen], kind="stable")]
    builder = OptionBuilder(
        workload=workload,
        offers=table.offers,
        instances=instances,
        sized=table.park.sized,
        joined=joined,
        price=table.price,
        terms=terms_of(workload.buy),
        service=service,
        max_age_days=max_age,
        expected=ExpectedPrices(catalog),
    )
    options = builder.ranked(chosen, front, objective)
    rejected = limit_misses(
        table.offers,
        instances,
        joined,
        groups,
        allowed,
        limits,
        service=service,
        startup_s=terms_of(workload.buy).startup_s,
    )
    return options, rejected


def limits_of(constraints: Constraints) -> Limits:
    return Limits(
        deadline_s=np.inf if constraints.deadline_s is None else constraints.deadline_s,
        budget_usd=np.inf if constraints.budget_usd is None else constraints.budget_usd,
        hold=constraints.hold,
    )


def _groups(offers: Sequence[Offer]) -> np.ndarray:
    """One number per (provider, instance type, purchase), in order of first appearance."""
    numbers: dict[tuple[str, str, str], int] = {}
    return np.array(
        [numbers.setdefault((o.provider, o.instance_type, o.purchase), len(numbers)) for o in offers],
        dtype=np.intp,
    )


def _sizing_refusals(
    offers: Sequence[Offer], instances: dict[tuple[str, str], InstanceType], park: SizedPark
) -> list[Refusal]:
    """Instance types that cannot be sized or on which nothing fits, once per purchase mode, at their lowest price."""
    lowest: dict[tuple[str, str, str], Offer] = {}
    for offer in offers:
        group = (offer.provider, offer.instance_type, offer.purchase)
        if group not in lowest or offer.usd_per_instance_hour < lowest[group].usd_per_instance_hour:
            lowest[group] = offer
    out = []
    for (provider, name, _), offer in lowest.items():
        miss = park.unsized.get((provider, name))
        if miss is None:
            miss = park.sized.misses.get(park.index[provider, name])
        if miss is not None:
            out.append(refuse(instances[provider, name], miss, region=offer.region, purchase=offer.purchase))
    return out


def _stamp(catalog: Catalog, offers: Sequence[Offer]) -> CatalogStamp:
    dates = [offer.read_on for offer in offers if offer.read_on is not None]
    return CatalogStamp(
        snapshot=catalog.name,
        built_on=catalog.built_on,
        oldest_price=min(dates, default=None),
        undated_prices=sum(offer.read_on is None for offer in offers),
        offers=len(catalog.offers),
    )


def _notes(workload: Workload, catalog: Catalog) -> tuple[str, ...]:
    """What to know before relying on the plan: missing purchase modes and what was assumed."""
    sold = {offer.purchase for offer in catalog.offers}
    missing = [purchase for purchase in workload.buy.purchases if purchase not in sold]
    notes = [f"no {purchase} price is in the catalog: such options are left out, not free" for purchase in missing]
    if workload.kind != "serve" and (note := terms_note(workload.buy)) is not None:
        notes.append(note)
    return tuple(notes)
