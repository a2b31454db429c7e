"""Prices of deals as columns, and totals of whole columns of runs: the ledger's arithmetic without its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal

import numpy as np

from tonnage.catalog import Catalog
from tonnage.pricing.deals import Deal
from tonnage.pricing.extras import Extras, exact
from tonnage.pricing.usage import TERM_HOURS, Array, Sessions, billed_hours, unused_hours
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.discounts import percent_off
from tonnage.workload.jobs import Buy, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Columns, one row per deal; discounts are taken off. A quantum of 0: not known."""

    machine_usd_per_h: Array
    fee_usd_per_h: Array  # billed by the machine's provider
    databricks_usd_per_h: Array
    quantum_s: Array
    minimum_s: Array
    term_h: Array  # 0: no commitment
    once_usd: Array
    outside_usd: Array  # people; data leaving another provider, after its credit
    credit_usd: Array  # with the machine's provider
    databricks_credit_usd: Array

    def take(self, rows: np.ndarray) -> Rates:
        return Rates(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @property
    def all_in_usd_per_h(self) -> Array:
        """A machine with its platform's fee, per hour."""
        return self.machine_usd_per_h + self.fee_usd_per_h + self.databricks_usd_per_h


def machine_percent(deal: Deal, buy: Buy) -> float:
    return percent_off(buy.discount_percent, deal.machine_billers, deal.machine_sku)


def fee_percent(deal: Deal, buy: Buy) -> float:
    return 0.0 if deal.fee is None else percent_off(buy.discount_percent, deal.fee_billers, deal.fee.sku)


def after_discount(price: Decimal, percent: float) -> Decimal:
    """
    >>> after_discount(Decimal("10"), 12.5)
    Decimal('8.75')
    """
    return price * (100 - exact(percent)) / 100 if percent else price


def rates_of(deals: Sequence[Deal], catalog: Catalog, workload: Workload) -> Rates:
    """The columns of `deals`."""
    buy, extras = workload.buy, Extras(workload=workload)
    credit = dict(buy.committed_usd)
    rules: dict[tuple[str, str], tuple[float, float]] = {}
    people = {deal.platform: 0.0 for deal in deals}
    people = {platform: extras.people_usd(platform) for platform in people}
    columns = np.zeros((len(deals), 10))
    for row, deal in enumerate(deals):
        offer, fee = deal.offer, deal.fee
        key = (offer.provider, offer.instance_type)
        if key not in rules:
            rule = catalog.billing_rule(*key)
            rules[key] = (0.0, 0.0) if rule is None else (rule.quantum_s, rule.minimum_s)
        machine = float(offer.usd_per_instance_hour)
        if buy.discount_percent:
            machine *= 1 - machine_percent(deal, buy) / 100
        added = 0.0 if fee is None else float(fee.usd_per_instance_hour) * (1 - fee_percent(deal, buy) / 100)
        databricks = deal.platform == "databricks"
        columns[row] = (
            machine,
            0.0 if databricks else added,
            added if databricks else 0.0,
            *rules[key],
            TERM_HOURS.get(offer.purchase, 0.0),
            *_once(extras, deal, people[deal.platform], credit),
            credit.get(offer.provider, 0.0),
            credit.get("databricks", 0.0),
        )
    return Rates(**{field.name: columns[:, index] for index, field in enumerate(fields(Rates))})


def _once(extras: Extras, deal: Deal, people_usd: float, credit: dict[str, float]) -> tuple[float, float]:
    """(billed once by the machine's provider, billed once by others): data that moves, and people."""
    data, moved = extras.workload.data, extras.egress_usd(deal)
    if data is None or data.provider == deal.offer.provider:
        return moved, people_usd
    return 0.0, people_usd + max(moved - credit.get(data.provider, 0.0), 0.0)


def total_usd(rates: Rates, nodes: Array, sessions: Sessions, workload: Workload) -> Array:
    """USD of each run: `rates` and the other columns have one row per run.

    total = max(nodes · (billed + unused) · machine + nodes · billed · (fee + disk) + wall · place + once - credit, 0)
          + max(nodes · billed · databricks - credit, 0) + outside
    """
    extras = Extras(workload=workload)
    billed = billed_hours(sessions, idle_s=workload.buy.idle_s, quantum_s=rates.quantum_s, minimum_s=rates.minimum_s)
    unused = unused_hours(billed, rates.term_h, workload.buy, service=extras.service)
    machines = nodes * ((billed + unused) * rates.machine_usd_per_h)
    hourly = nodes * billed * (rates.fee_usd_per_h + extras.disk_usd_per_machine_hour)
    place = sessions.wall_s / SECONDS_PER_HOUR * extras.place_usd_per_hour if extras.place_usd_per_hour else 0.0
    provider = np.maximum(machines + hourly + place + rates.once_usd - rates.credit_usd, 0.0)
    databricks = np.maximum(nodes * billed * rates.databricks_usd_per_h - rates.databricks_credit_usd, 0.0)
    return provider + databricks + rates.outside_usd
