"""Workload x catalog -> plan: admit offers, size, join, rank, and say why each other candidate fell out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.chosen import MOST_DOUBT, Choice, doubt_levels, limits_of
from tonnage.planning.kept_work import KeptWork
from tonnage.planning.need import needs_of
from tonnage.planning.notes import plan_notes
from tonnage.planning.offers.choices import choose_deals
from tonnage.planning.offers.market import admit_offers, refuse
from tonnage.planning.offers.spot_columns import spot_columns
from tonnage.planning.order import ranked
from tonnage.planning.plan import CatalogStamp, Objective, Plan, Refusal, Relaxation
from tonnage.planning.risks import PRICE_AGE_DAYS
from tonnage.planning.scaled_fleets import with_scaling
from tonnage.planning.sized_machines import SizedMachines
from tonnage.planning.summary import summarise
from tonnage.planning.terms import terms_of
from tonnage.planning.tokens.options import TokenOptions, token_options
from tonnage.planning.whatif.cheaper import cheaper_than
from tonnage.planning.whatif.relaxations import SHOWN, best_of_each_gpu, nearest_misses, relaxations
from tonnage.pricing.deals import Deal
from tonnage.pricing.extras import OWN
from tonnage.pricing.rates import rates_of
from tonnage.workload.jobs import ServeJob, Workload

__all__ = ["limits_of", "make_plan", "rank_options", "terms_of"]


def make_plan(
    workload: Workload,
    catalog: Catalog,
    *,
    objective: Objective = "cost",
    calibrated: CalibratedModel | None = None,
    max_price_age_days: int = PRICE_AGE_DAYS,
    before: KeptWork | None = None,
) -> Plan:
    """Rank every way in the catalog to do `workload`. `calibrated`: what predictions rest on; the packaged calibration
    by default. `before`: of the same catalog and calibration; what earlier plans found, and later ones may use.

    Raises nothing when nothing fits: the plan then has no options, and `nearest_misses` says what came closest.
    """
    calibrated = calibrated or CalibratedModel.packaged()
    kept = before or KeptWork(catalog, calibrated)

    def again(changed: Workload, offered: Catalog = catalog) -> Plan:
        return rank_options(
            changed, offered, objective=objective, calibrated=calibrated, max_price_age_days=max_price_age_days,
            before=kept,
        )  # fmt: skip

    plan = again(workload)
    if plan.options:
        return plan
    free = relaxations(workload, again)
    chosen = [option for _, freed in free for option in best_of_each_gpu(freed.options, SHOWN)]
    return replace(
        plan,
        relaxations=tuple(Relaxation(change=change, best=freed.options[0]) for change, freed in free),
        nearest_misses=nearest_misses(workload, catalog, plan.refused, chosen, again),
    )


def rank_options(
    workload: Workload,
    catalog: Catalog,
    *,
    objective: Objective = "cost",
    calibrated: CalibratedModel | None = None,
    max_price_age_days: int = PRICE_AGE_DAYS,
    before: KeptWork | None = None,
) -> Plan:
    """The plan of `make_plan` but for what would help where nothing fits, which takes dozens of plans to find.
    `before`: what earlier ones of them found."""
    calibrated = calibrated or CalibratedModel.packaged()
    market = admit_offers(workload, catalog)
    instances = {instance.key: instance for instance in catalog.instance_types}
    keys = sorted({(offer.provider, offer.instance_type) for offer in market.offers})
    kept = before or KeptWork(catalog, calibrated)
    sized_machines = kept.size(workload, catalog, [instances[key] for key in keys])
    fitting = {key for key, machine in sized_machines.index.items() if machine not in sized_machines.sized.misses}
    choices = choose_deals(market.offers, instances, catalog, workload, fitting)
    deals = [deal for deal in choices.deals if (deal.offer.provider, deal.offer.instance_type) in sized_machines.index]
    choice = _choice(workload, catalog, deals, sized_machines, objective, max_price_age_days, kept.expected(catalog))
    priced = choice.priced(sized_machines.sized)
    if isinstance(workload.job, ServeJob) and workload.job.traffic is not None:
        sized_machines = replace(
            sized_machines, sized=with_scaling(choice, priced, used=calibrated.assumed.target_utilisation)
        )
        choice = replace(choice, sized_machines=sized_machines)
        priced = choice.priced(sized_machines.sized)
    built, rejected = choice.options(priced)
    tokens = token_options(workload, catalog, objective, max_price_age_days)
    refused = [
        *market.refused,
        *choices.refused,
        *_sizing_refusals(choices.deals, instances, sized_machines),
        *rejected,
        *tokens.refused,
    ]
    options = ranked([*built, *tokens.options], objective, trust=workload.constraints.trust)
    level = options[0].doubt_level if options else 0
    return Plan(
        name=workload.name,
        kind=workload.kind,
        summary=summarise(workload),
        objective=objective,
        as_of=workload.as_of,
        horizon="month" if workload.is_service else "job",
        need=needs_of(workload.job),
        options=options,
        refused=tuple(sorted(refused, key=lambda r: (r.provider, r.instance_type, r.purchase or "", r.platform))),
        catalog=_stamp(catalog, deals, tokens),
        notes=plan_notes(workload, catalog, options, calibrated),
        any_price=workload.constraints.trust == "any",
        cheaper=cheaper_than(
            options,
            bolder=choice.best_of(sized_machines.sized.risky, most=level),
            unverified=choice.best_of(sized_machines.sized.unverified, most=level),
            doubted=choice.best_of(sized_machines.sized, priced, least=level + 1, most=MOST_DOUBT),
            refused=refused,
            objective=objective,
        ),
    )


def _choice(
    workload: Workload,
    catalog: Catalog,
    deals: Sequence[Deal],
    sized_machines: SizedMachines,
    objective: Objective,
    max_age: int,
    expected: ExpectedPrices,
) -> Choice:
    instances = {instance.key: instance for instance in catalog.instance_types}
    return Choice(
        workload=workload,
        objective=objective,
        deals=deals,
        instances=instances,
        spots=spot_columns(deals, instances, workload, terms_of(workload.buy).startup_s),
        machine=np.array(
            [sized_machines.index[deal.offer.provider, deal.offer.instance_type] for deal in deals], dtype=np.intp
        ),
        rates=rates_of(deals, catalog, workload),
        sized_machines=sized_machines,
        max_age_days=max_age,
        expected=expected,
        catalog=catalog,
        doubt=doubt_levels(workload, deals, expected, max_age),
    )


def _sizing_refusals(
    deals: Sequence[Deal], instances: dict[tuple[str, str], InstanceType], sized_machines: SizedMachines
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
        miss = sized_machines.unsized.get((provider, name))
        if miss is None:
            miss = sized_machines.sized.misses.get(sized_machines.index[provider, name])
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
