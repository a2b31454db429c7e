"""Limits that no way to buy anything could hold: told before a plan is made, as bad input."""

from __future__ import annotations

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.terms import terms_of
from tonnage.planning.token_ways import wanted_models
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.durations import render_duration
from tonnage.workload.jobs import ServeJob, Workload


def check_limits(workload: Workload, catalog: Catalog) -> None:
    """Raises InputError for a budget below one billing quantum of the cheapest machine, and for a deadline (or a day of
    a schedule) no longer than it takes a machine to start. Work that a token API may do is not held to the latter."""
    _check_budget(workload, catalog)
    startup_s = terms_of(workload.buy).startup_s
    schedule = workload.buy.schedule
    if isinstance(workload.job, ServeJob):
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
    budget = workload.constraints.budget_usd
    if budget is None or wanted_models(workload, catalog, training=False):
        return
    wanted = workload.constraints.providers
    cheapest = min(
        (
            (float(offer.usd_per_instance_hour) * rule.minimum_s / SECONDS_PER_HOUR, offer, rule)
            for offer in catalog.offers
            if (not wanted or offer.provider in wanted) and offer.purchase in workload.buy.purchases
            if (rule := catalog.billing_rule(offer.provider, offer.instance_type)) is not None
        ),
        key=lambda found: found[0],
        default=None,
    )
    if cheapest is None or budget >= cheapest[0]:
        return
    usd, offer, rule = cheapest
    raise InputError(
        f"a budget of ${budget:g} is less than the least that is ever billed: ${usd:.2g} for {rule.minimum_s:g} s of "
        f"{offer.provider} {offer.instance_type}",
        hint="raise constraints.budget_usd; it is in US dollars",
    )
