"""Prices of deals as columns, and totals of whole columns of runs: the ledger's arithmetic without its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal

import numpy as np

from tonnage.catalog import Catalog
from tonnage.pricing.deals import Deal
from tonnage.pricing.extras import Extras, exact
from tonnage.pricing.usage import TERM_HOURS, Array, Sessions, billed_hours, unused_hours
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.discounts import percent_off
from tonnage.workload.jobs import BuyTerms, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Columns, one row per deal; discounts are taken off. A quantum of 0: not known."""

    machine_usd_per_h: Array
    fee_usd_per_h: Array  # billed by the machine's provider
    databricks_usd_per_h: Array
    quantum_s: Array
    minimum_s: Array
    term_h: Array  # 0: no commitment
    disk_usd_per_h: Array  # of one machine
    place_usd_per_h: Array  # of the whole run: object storage, load balancer
    once_usd: Array
    outside_usd: Array  # people; data leaving another provider, after its credit
    credit_usd: Array  # with the machine's provider
    databricks_credit_usd: Array

    def take(self, rows: np.ndarray) -> Rates:
        """One row per entry of `rows`; columns of zeros, which most are, take no room."""

        def column(name: str) -> Array:
            values: Array = getattr(self, name)
            return values[rows] if values.any() else np.broadcast_to(np.float64(0.0), len(rows))

        return Rates(**{field.name: column(field.name) for field in fields(self)})

    @property
    def all_in_usd_per_h(self) -> Array:
        """A machine with its platform's fee, per hour."""
        return self.machine_usd_per_h + self.fee_usd_per_h + self.databricks_usd_per_h


def machine_percent(deal: Deal, buy: BuyTerms) -> float:
    return percent_off(buy.discount_percent, deal.machine_billers, deal.machine_sku)


def fee_percent(deal: Deal, buy: BuyTerms) -> float:
    return 0.0 if deal.fee is None else percent_off(buy.discount_percent, deal.fee_billers, deal.fee.sku)


def after_discount(price: Decimal, percent: float) -> Decimal:
    """
    >>> after_discount(Decimal("10"), 12.5)
    Decimal('8.75')
    """
    return price * (100 - exact(percent)) / 100 if percent else price


def rates_of(deals: Sequence[Deal], catalog: Catalog, workload: Workload) -> Rates:
    """The columns of `deals`: what holds for a whole group is looked up once for it."""
    buy, extras = workload.buy, Extras(workload=workload, services=catalog.services)
    credit = dict(buy.committed_usd)
    number: dict[tuple[str, str, str, str], int] = {}
    group = np.array([number.setdefault(deal.group, len(number)) for deal in deals], dtype=np.intp)
    shared = np.array([_shared(deal, catalog, extras, credit) for deal in _firsts(deals, number)]).reshape(-1, 7)
    machine = np.fromiter((float(deal.offer.usd_per_instance_hour) for deal in deals), np.float64, len(deals))
    columns = np.zeros((len(deals), 6))  # fee, databricks, once, outside, disk, place
    besides = _Besides(extras)
    for row, deal in enumerate(deals):
        if deal.fee is not None:
            fee = float(deal.fee.usd_per_instance_hour) * (1 - fee_percent(deal, buy) / 100)
            columns[row, 1 if deal.platform == "databricks" else 0] = fee
        if besides.any:
            columns[row, 2:4] = _once(besides, deal, credit)
            columns[row, 4:] = besides.hourly(deal)
    shares, quantum, minimum, term, people, provider, databricks = shared[group].T
    return Rates(
        machine_usd_per_h=machine * shares,
        fee_usd_per_h=columns[:, 0],
        databricks_usd_per_h=columns[:, 1],
        quantum_s=quantum,
        minimum_s=minimum,
        term_h=term,
        disk_usd_per_h=columns[:, 4],
        place_usd_per_h=columns[:, 5],
        once_usd=columns[:, 2],
        outside_usd=columns[:, 3] + people,
        credit_usd=provider,
        databricks_credit_usd=databricks,
    )


def _firsts(deals: Sequence[Deal], number: dict[tuple[str, str, str, str], int]) -> list[Deal]:
    """The first deal of each group, in the order of the groups' numbers."""
    found: dict[tuple[str, str, str, str], Deal] = {}
    for deal in deals:
        found.setdefault(deal.group, deal)
    return [found[key] for key in number]


def _shared(deal: Deal, catalog: Catalog, extras: Extras, credit: dict[str, float]) -> tuple[float, ...]:
    """What all deals of a group have in common: share of the price left after the discount, rounding, term, ..."""
    offer = deal.offer
    rule = catalog.billing_rule(offer.provider, offer.instance_type)
    return (
        1 - machine_percent(deal, extras.workload.buy) / 100,
        0.0 if rule is None else rule.quantum_s,
        0.0 if rule is None else rule.minimum_s,
        TERM_HOURS.get(offer.purchase, 0.0),
        extras.people_usd(deal.platform),
        credit.get(offer.provider, 0.0),
        credit.get("databricks", 0.0),
    )


class _Besides:
    """What the places of deals cost besides machines, looked up once for each place."""

    def __init__(self, extras: Extras) -> None:
        buy = extras.workload.buy
        self.extras, self._known = extras, dict[tuple[str, str], tuple[float, float, float]]()
        balancer = extras.service and bool(buy.prices.load_balancer_usd_per_hour)
        self.any = extras.workload.data is not None or buy.disk_gb > 0 or balancer

    def _of(self, deal: Deal) -> tuple[float, float, float]:
        place = (deal.offer.provider, deal.offer.region)
        if place not in self._known:
            extras = self.extras
            self._known[place] = (
                extras.egress_usd(*place),
                extras.disk_usd_per_machine_hour(*place),
                extras.place_usd_per_hour(*place),
            )
        return self._known[place]

    def moved(self, deal: Deal) -> float:
        """USD once for the data."""
        return self._of(deal)[0]

    def hourly(self, deal: Deal) -> tuple[float, float]:
        """USD an hour: the disk of a machine, and what the place costs."""
        return self._of(deal)[1:]


def _once(besides: _Besides, deal: Deal, credit: dict[str, float]) -> tuple[float, float]:
    """Data that moves: (billed by the machine's own provider, billed by another, after its credit)."""
    data, moved = besides.extras.workload.data, besides.moved(deal)
    if data is None or data.provider == deal.offer.provider:
        return moved, 0.0
    return 0.0, max(moved - credit.get(data.provider, 0.0), 0.0)


def idle_s(workload: Workload) -> float:
    """How long a machine stays on after the work; a service has no after."""
    return 0.0 if workload.is_service else workload.buy.idle_s


def total_usd(rates: Rates, nodes: Array, sessions: Sessions, workload: Workload) -> Array:
    """USD of each run: `rates` and the other columns have one row per run.

    total = max(nodes · (billed + unused) · machine + nodes · billed · (fee + disk) + wall · place + once - credit, 0)
          + max(nodes · billed · databricks - credit, 0) + outside

    Endless where the hours are (spot that is interrupted before it gets anywhere).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        usd = _total_usd(rates, nodes, sessions, workload)
    return np.where(np.isfinite(sessions.on_s), usd, np.inf)


def _total_usd(rates: Rates, nodes: Array, sessions: Sessions, workload: Workload) -> Array:
    billed = billed_hours(sessions, idle_s=idle_s(workload), quantum_s=rates.quantum_s, minimum_s=rates.minimum_s)
    unused = unused_hours(billed, rates.term_h, workload.buy, service=workload.is_service)
    machines = nodes * ((billed + unused) * rates.machine_usd_per_h)
    hourly = nodes * billed * (rates.fee_usd_per_h + rates.disk_usd_per_h)
    place = sessions.wall_s / SECONDS_PER_HOUR * rates.place_usd_per_h if rates.place_usd_per_h.any() else 0.0
    provider = np.maximum(machines + hourly + place + rates.once_usd - rates.credit_usd, 0.0)
    databricks = np.maximum(nodes * billed * rates.databricks_usd_per_h - rates.databricks_credit_usd, 0.0)
    return provider + databricks + rates.outside_usd
