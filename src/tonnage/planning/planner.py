"""Workload x catalog -> plan: admit offers, size, join, rank, and say why each other candidate fell out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType
from tonnage.planning.assumed import left_out_notes, prediction_notes, terms_note
from tonnage.planning.choices import choose_deals, platform_notes
from tonnage.planning.grounds import Grounds
from tonnage.planning.joined import Joined, join
from tonnage.planning.market import admit_offers, refuse
from tonnage.planning.nearest import SHOWN, nearest_misses
from tonnage.planning.need import needs_of
from tonnage.planning.options import OptionBuilder
from tonnage.planning.order import ranked
from tonnage.planning.plan import CatalogStamp, Objective, Option, Plan, Refusal
from tonnage.planning.ranking import Limits, choose, pareto_rows, score, within
from tonnage.planning.relaxations import best_of_each_gpu, describe_relaxation, relaxations
from tonnage.planning.shortfalls import limit_misses
from tonnage.planning.sized_park import SizedPark, size_job
from tonnage.planning.summary import summarise
from tonnage.planning.terms import terms_of
from tonnage.planning.token_options import TokenOptions, token_options
from tonnage.pricing.deals import Deal
from tonnage.pricing.extras import OWN, Extras
from tonnage.pricing.rates import rates_of
from tonnage.workload.jobs import Constraints, ServeJob, Workload

__all__ = ["limits_of", "make_plan", "terms_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Everything ranked options are built from."""

    deals: Sequence[Deal]
    park: SizedPark
    joined: Joined


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
    fitting = {key for key, machine in park.index.items() if machine not in park.sized.misses}
    choices = choose_deals(market.offers, instances, catalog, workload, fitting)
    deals = [deal for deal in choices.deals if (deal.offer.provider, deal.offer.instance_type) in park.index]
    table = _join(workload, catalog, deals, park)
    built, rejected = _choose(workload, catalog, table, objective, service=service, max_age=max_price_age_days)
    tokens = token_options(workload, catalog, objective, max_price_age_days)
    refused = [
        *market.refused,
        *choices.refused,
        *_sizing_refusals(choices.deals, instances, park),
        *rejected,
        *tokens.refused,
    ]
    options = ranked([*built, *tokens.options], objective)
    return Plan(
        name=workload.name,
        kind=workload.kind,
        summary=summarise(workload),
        objective=objective,
        as_of=workload.as_of,
        horizon="month" if service else "job",
        need=needs_of(workload.job),
        options=options,
        refused=tuple(sorted(refused, key=lambda r: (r.provider, r.instance_type, r.purchase or "", r.platform))),
        catalog=_stamp(catalog, deals, tokens),
        notes=(*_notes(workload, catalog), *prediction_notes(workload, options, grounds)),
    )


def _join(workload: Workload, catalog: Catalog, deals: Sequence[Deal], park: SizedPark) -> _Table:
    machine = np.array([park.index[deal.offer.provider, deal.offer.instance_type] for deal in deals], dtype=np.intp)
    rates = rates_of(deals, catalog, workload)
    joined = join(deals, machine, rates, park.sized, terms=terms_of(workload.buy), workload=workload)
    return _Table(deals=deals, park=park, joined=joined)


def _choose(
    workload: Workload,
    catalog: Catalog,
    table: _Table,
    objective: Objective,
    *,
    service: bool,
    max_age: int,
) -> tuple[list[Option], list[Refusal]]:
    """The options on machines, and a refusal for each group whose every row breaks a limit."""
    joined, limits = table.joined, limits_of(workload.constraints)
    instances = {instance.key: instance for instance in catalog.instance_types}
    groups = _groups(table.deals)
    allowed = within(joined, limits)
    if service and getattr(workload.job, "spare_replicas", 0) < 1:
        allowed &= ~joined.spot
    rows = np.flatnonzero(allowed).astype(np.intp)
    value = score(joined, objective, service=service)
    front = np.zeros(len(joined.run), dtype=bool)
    front[rows] = pareto_rows(joined.cost_usd[rows], joined.wall_s[rows])
    shown_front = front if objective == "pareto" else np.zeros_like(front)
    chosen = choose(joined, rows, groups, value, shown_front)
    builder = OptionBuilder(
        workload=workload,
        services=catalog.services,
        deals=table.deals,
        instances=instances,
        sized=table.park.sized,
        joined=joined,
        terms=terms_of(workload.buy),
        service=service,
        max_age_days=max_age,
        expected=ExpectedPrices(catalog),
    )
    rejected = limit_misses(
        table.deals,
        instances,
        joined,
        groups,
        allowed,
        limits,
        service=service,
        startup_s=terms_of(workload.buy).startup_s,
    )
    return builder.built(chosen, front), rejected


def limits_of(constraints: Constraints) -> Limits:
    return Limits(
        deadline_s=np.inf if constraints.deadline_s is None else constraints.deadline_s,
        budget_usd=np.inf if constraints.budget_usd is None else constraints.budget_usd,
        hold=constraints.hold,
    )


def _groups(deals: Sequence[Deal]) -> np.ndarray:
    """One number per (provider, instance type, purchase, platform), in order of first appearance."""
    numbers: dict[tuple[str, str, str, str], int] = {}
    return np.array([numbers.setdefault(deal.group, len(numbers)) for deal in deals], dtype=np.intp)


def _sizing_refusals(
    deals: Sequence[Deal], instances: dict[tuple[str, str], InstanceType], park: SizedPark
) -> list[Refusal]:
    """Instance types that cannot be sized or on which nothing fits, once per purchase mode and platform, at their
    lowest price."""
    lowest: dict[tuple[str, str, str, str], Deal] = {}
    for deal in deals:
        group, price = deal.group, deal.offer.usd_per_instance_hour
        if group not in lowest or price < lowest[group].offer.usd_per_instance_hour:
            lowest[group] = deal
    out = []
    for (provider, name, _, _), deal in lowest.items():
        miss = park.unsized.get((provider, name))
        if miss is None:
            miss = park.sized.misses.get(park.index[provider, name])
        if miss is not None:
            offer = deal.offer
            where = {"region": offer.region, "purchase": offer.purchase, "platform": deal.platform}
            out.append(refuse(instances[provider, name], miss, **where))  # type: ignore[arg-type]
    return out


def _stamp(catalog: Catalog, deals: Sequence[Deal], tokens: TokenOptions) -> CatalogStamp:
    """The age of every price compared: offers, platform fees, tokens."""
    read = [deal.offer.read_on for deal in deals if deal.platform == "vm"]
    read += [deal.fee.read_on for deal in deals if deal.fee is not None]
    read += [line.read_on for option in tokens.options for line in option.ledger.lines if line.source != OWN]
    dates = [day for day in read if day is not None]
    return CatalogStamp(
        snapshot=catalog.name,
        built_on=catalog.built_on,
        oldest_price=min(dates, default=None),
        undated_prices=sum(day is None for day in read),
        offers=len(catalog.offers),
    )


def _notes(workload: Workload, catalog: Catalog) -> tuple[str, ...]:
    """What to know before relying on the plan: missing purchase modes and what was assumed."""
    sold = {offer.purchase for offer in catalog.offers}
    missing = [purchase for purchase in workload.buy.purchases if purchase not in sold]
    notes = [f"no {purchase} price is in the catalog: such options are left out, not free" for purchase in missing]
    if workload.kind != "serve" and (note := terms_note(workload.buy)) is not None:
        notes.append(note)
    gaps = Extras(workload=workload, services=catalog.services).gaps()
    return (*left_out_notes(catalog), *notes, *gaps, *platform_notes(workload, catalog))
