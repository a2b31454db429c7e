"""Limits that no offer could satisfy: reported as bad input before a plan is made."""

from __future__ import annotations

from tonnage.catalog import Catalog
from tonnage.catalog.market import Offer
from tonnage.errors import InputError
from tonnage.planning.offers.market import admit_offers
from tonnage.planning.terms import terms_of
from tonnage.planning.tokens.ways import wanted_models
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.discounts import percent_off
from tonnage.workload.durations import render_duration
from tonnage.workload.jobs import Workload


def check_limits(workload: Workload, catalog: Catalog) -> None:
    """Raises InputError for a budget below the least that any admitted machine bills, and for a deadline (or a day of
    a schedule) no longer than it takes a machine to start. Work that a token API may do is not held to the latter."""
    _check_budget(workload, catalog)
    startup_s = terms_of(workload.buy).startup_s
    schedule = workload.buy.schedule
    if workload.is_service:
        return
    if schedule is not None and schedule.hours_per_day * SECONDS_PER_HOUR <= startup_s:
        raise InputError(
            f"a day of {schedule.hours_per_day:g} h on the schedule is no longer than a machine takes to start "
            f"({render_duration(startup_s)})",
            hint="raise buy.schedule.hours_per_day, or state buy.startup",
        )
    deadline_s = workload.constraints.deadline_s
    if deadline_s is None or deadline_s > startup_s or wanted_models(workload, catalog, training=False):
        return
    raise InputError(
        f"the deadline is {render_duration(deadline_s)} away, and a machine starts in {render_duration(startup_s)}",
        hint="give a later deadline, or state how fast yours start: buy.startup: 2m",
    )


def _check_budget(workload: Workload, catalog: Catalog) -> None:
    """The least that is ever billed is the provider's minimum, of a job at least the time a machine takes to start."""
    budget = workload.constraints.budget_usd
    if budget is None or wanted_models(workload, catalog, training=False) or workload.buy.committed_usd:
        return
    service = workload.is_service
    startup_s = 0.0 if service else terms_of(workload.buy).startup_s
    machines = {instance.key: instance for instance in catalog.instance_types}
    least: tuple[float, float, Offer] | None = None
    for offer in admit_offers(workload, catalog).offers:
        if workload.kind != "tabular" and machines[offer.provider, offer.instance_type].accelerator is None:
            continue
        rule = catalog.billing_rule(offer.provider, offer.instance_type)
        billed_s = max(startup_s, 0.0 if rule is None else rule.minimum_s)
        off = percent_off(workload.buy.discount_percent, [offer.provider], offer.instance_type)
        usd = float(offer.usd_per_instance_hour) * (1 - off / 100) * billed_s / SECONDS_PER_HOUR
        if least is None or usd < least[0]:
            least = usd, billed_s, offer
    if least is None or budget >= least[0]:
        return
    usd, billed_s, offer = least
    raise InputError(
        f"a budget of ${budget:g} is less than the least that is ever billed: ${usd:.2g} for {billed_s:g} s of "
        f"{offer.provider} {offer.instance_type}",
        hint="raise constraints.budget_usd; it is in US dollars",
    )
