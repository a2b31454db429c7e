"""Which freshly read prices to doubt: far off what the catalog leads one to expect, or spot above on-demand.

The expectation is the same offer's price of before, else that of other regions, else the provider's like machines,
else the market (`catalog.expected_prices`): the first that is known. A price FACTOR times above or below it waits in
quarantine for a person. A spot price is excused where it lies within SPOT_FRACTIONS of the on-demand price beside it:
spot markets do move that far. A managed price (tokens, DBU) is held against its own price of before, and must load.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType, Offer
from tonnage.errors import CatalogError
from tonnage.sources.managed_prices import as_catalog
from tonnage.sources.results import ManagedPriceRow, QuarantinedRow
from tonnage.values import dataclass

FACTOR: Final = 4.0
SPOT_FRACTIONS: Final = (0.08, 1.0)  # of on-demand; AWS, Azure and GCP discount by up to about 90 %
OfferKey = tuple[str, str, str, str]


def offer_key(offer: Offer) -> OfferKey:
    """What makes two prices those of one offer."""
    return (offer.provider, offer.instance_type, offer.region, offer.purchase)


@dataclass(frozen=True, slots=True)
class JudgedOffers:
    """Offers that can be used, and those that cannot."""

    offers: tuple[Offer, ...]
    quarantined: tuple[QuarantinedRow, ...]


def judge_offers(known: Catalog, machines: Sequence[InstanceType], offers: Sequence[Offer]) -> JudgedOffers:
    """Each offer against `known`'s prices (and the other new ones' on-demand prices, for spot)."""
    keys = {machine.key: machine for machine in (*known.instance_types, *machines)}
    prices = ExpectedPrices(replace(known, instance_types=tuple(keys.values())))
    before = {offer_key(offer): offer for offer in known.offers}
    standing: list[Offer] = []
    refused: list[QuarantinedRow] = []
    plain = _on_demand(before.values())
    for offer in sorted(offers, key=lambda one: one.purchase == "spot"):  # on-demand first: spot leans on it
        reason = _doubt(offer, before.get(offer_key(offer)), plain, prices)
        if reason is None:
            standing.append(offer)
            plain.update(_on_demand([offer]))
        else:
            refused.append(refused_offer(offer, reason))
    return JudgedOffers(tuple(standing), tuple(refused))


def judge_managed(
    before: Iterable[ManagedPriceRow], rows: Iterable[ManagedPriceRow], source: str
) -> tuple[tuple[ManagedPriceRow, ...], tuple[QuarantinedRow, ...]]:
    """Prices that can be used and those that cannot: far off the price of before, or not such as a catalog loads."""
    known = {row.key: row for row in before}
    standing: list[ManagedPriceRow] = []
    refused: list[QuarantinedRow] = []
    for row in rows:
        was = known.get(row.key)
        reason = (
            None if was is None else _far_off(float(row.price_usd), float(was.price_usd), "the price it had before")
        )
        reason = reason or _unloadable(row)
        if reason is None:
            standing.append(row)
            continue
        refused.append(
            QuarantinedRow(
                source=source, provider=row.platform, instance_type=row.sku, region=row.region_cloud,
                purchase=row.unit, figure=f"{row.price_usd:f}", reason=reason,
            )
        )  # fmt: skip
    return tuple(standing), tuple(refused)


def _unloadable(row: ManagedPriceRow) -> str | None:
    """Why a catalog would not load a row, without its whereabouts."""
    try:
        as_catalog([row])
    except CatalogError as error:
        return error.fault
    return None


def refused_offer(offer: Offer, reason: str) -> QuarantinedRow:
    """An offer as a row of the quarantine."""
    return QuarantinedRow(
        source=offer.source.text, provider=offer.provider, instance_type=offer.instance_type, region=offer.region,
        purchase=offer.purchase, figure=f"{offer.usd_per_instance_hour:f}", reason=reason,
    )  # fmt: skip


def _on_demand(offers: Iterable[Offer]) -> dict[tuple[str, str, str], float]:
    return {
        (offer.provider, offer.instance_type, offer.region): float(offer.usd_per_instance_hour)
        for offer in offers
        if offer.purchase == "on_demand"
    }


def _doubt(
    offer: Offer, before: Offer | None, plain: dict[tuple[str, str, str], float], prices: ExpectedPrices
) -> str | None:
    price = float(offer.usd_per_instance_hour)
    if offer.purchase == "spot":
        beside = plain.get((offer.provider, offer.instance_type, offer.region))
        if beside is not None and price > beside * SPOT_FRACTIONS[1]:
            return "spot above on-demand"
        if beside is not None and price >= beside * SPOT_FRACTIONS[0]:
            return None
    if before is not None:
        return _far_off(price, float(before.usd_per_instance_hour), "the price it had before")
    expectation = next(iter(prices.expectations(offer)), None)
    if expectation is None:
        return None
    return _far_off(price, expectation.usd_per_instance_hour, "the expected price")


def _far_off(price: float, expected: float, what: str) -> str | None:
    """A constant text, so that reasons add up."""
    if price > FACTOR * expected:
        return f"more than {FACTOR:g} times {what}"
    return f"less than 1/{FACTOR:g} of {what}" if price < expected / FACTOR else None
