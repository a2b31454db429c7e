"""Fees of platforms whose price for a machine was not read, estimated from prices that were. Each says from which.

They are made only where a platform is asked for by name, and the plan marks them: an estimate is no offer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from tonnage.catalog.hardware import Source
from tonnage.catalog.managed import DbuPrice, DbuRate
from tonnage.catalog.market import Offer
from tonnage.values import dataclass

Parts = Literal["ratio of other machines there", "ratio of one machine there", "units of the machine's own jobs"]
VERTEX_RANGE: Final = (Decimal("1.1"), Decimal("1.3"))  # of its price over the machine's: a judgement around one ratio
SERVING_SKUS: Final = ("Jobs Compute", "Jobs Serverless", "All-Purpose Compute")  # least, likely and most for a unit
CENT: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRatio:
    """The usual ratio of a platform's prices to those of plain machines, of so many that it lists."""

    machines: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRatio:
    """The ratio of the one machine whose price there is on record."""

    ratio: Decimal
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsOfJobs:
    """The units of a machine's own jobs, at the price of a unit of `sku`."""

    instance_type: str
    units_source: str
    sku: str
    price_source: str


EstimateSource = ListedRatio | StatedRatio | UnitsOfJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Dollars that a platform adds to an hour of a machine, with the range that the parts leave."""

    parts: Parts
    usd_per_instance_hour: float
    low_usd_per_instance_hour: float
    high_usd_per_instance_hour: float
    source: EstimateSource
    read_on: date | None


def ratio_estimate(offer: Offer, ratios: Sequence[tuple[float, Source]]) -> Estimate | None:
    """The median ratio of a platform's prices to plain machines, from its lower to its upper tenth.

    >>> from tonnage.pricing.fee_estimates import middle
    >>> middle([1.15, 1.2, 1.4, 1.4], 0.5)
    1.4
    """
    if not ratios:
        return None
    values = sorted(ratio for ratio, _ in ratios)
    plain = float(offer.usd_per_instance_hour)
    days = [source.read_on for _, source in ratios]
    known = [day for day in days if day is not None]
    usual = middle(values, 0.5)
    return Estimate(
        parts="ratio of other machines there",
        usd_per_instance_hour=plain * (usual - 1),
        low_usd_per_instance_hour=plain * (middle(values, 0.1) - 1),
        high_usd_per_instance_hour=plain * (middle(values, 0.9) - 1),
        source=ListedRatio(machines=len(values), ratio=usual),
        read_on=min(known) if known and len(known) == len(days) else None,
    )


def middle(values: Sequence[float], share: float) -> float:
    """The value at a share of a sorted list."""
    return values[min(int(len(values) * share), len(values) - 1)]


def vertex_estimate(offer: Offer, ratio: Decimal, source: Source) -> Estimate:
    """The ratio of the one machine whose price at Vertex AI is on record, for another machine."""
    plain = offer.usd_per_instance_hour
    low, high = VERTEX_RANGE
    return Estimate(
        parts="ratio of one machine there",
        usd_per_instance_hour=float(plain * (ratio - 1)),
        low_usd_per_instance_hour=float(plain * (low - 1)),
        high_usd_per_instance_hour=float(plain * (high - 1)),
        source=StatedRatio(ratio=ratio, source=source.text),
        read_on=source.read_on,
    )


def serving_estimate(offer: Offer, rate: DbuRate | None, prices: Mapping[str, DbuPrice]) -> Estimate | None:
    """Databricks Model Serving: the plain machine and its units, at the price of a unit of Jobs Serverless, from that
    of Jobs Compute to that of All-Purpose Compute. The units that an endpoint is billed were not read."""
    if rate is None or any(sku not in prices for sku in SERVING_SKUS):
        return None
    low, likely, high = (float(rate.dbu_per_instance_hour * prices[sku].usd_per_dbu) for sku in SERVING_SKUS)
    price = prices[SERVING_SKUS[1]].source
    first, second = price.read_on, rate.source.read_on
    return Estimate(
        parts="units of the machine's own jobs",
        usd_per_instance_hour=likely,
        low_usd_per_instance_hour=low,
        high_usd_per_instance_hour=high,
        source=UnitsOfJobs(
            instance_type=offer.instance_type,
            units_source=rate.source.text,
            sku=SERVING_SKUS[1],
            price_source=price.text,
        ),
        read_on=None if first is None or second is None else min(first, second),
    )
