"""Committed prices -> offers of the machines a catalog has; those whose basis has moved are set aside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tonnage.catalog.managed import Quarantined, ReservedPrice
from tonnage.catalog.market import InstanceType, Offer

SAME_PRICE_TOLERANCE: Final = 0.01  # an on-demand price further from the one a discount was read against has moved


def reserved_offers(
    prices: Iterable[ReservedPrice], instances: Iterable[InstanceType], offers: Iterable[Offer]
) -> tuple[tuple[Offer, ...], tuple[Quarantined, ...]]:
    """Offers that the catalog's own rows lack, and those whose basis has moved.

    A committed price is based on the on-demand price of its day. Where that has moved since, or the committed price is
    not below today's on-demand price, the row is set aside: the discount is known, the price it applies to is gone.
    """
    machines = {instance.key for instance in instances}
    known = {(one.provider, one.instance_type, one.region, one.purchase): one for one in offers}
    found: list[Offer] = []
    aside: list[Quarantined] = []
    for price in prices:
        key = (price.provider, price.instance_type, price.region)
        if key[:2] not in machines or (*key, price.purchase) in known:
            continue
        today = known.get((*key, "on_demand"))
        why = _moved(price, today)
        if why is None:
            found.append(_offer(price, "" if today else "no on-demand price in the catalog to compare with"))
        else:
            aside.append(Quarantined(offer=_offer(price, why), why=why))
    return tuple(found), tuple(aside)


def uncommitted_offers(offers: Iterable[Offer], prices: Iterable[ReservedPrice]) -> tuple[Offer, ...]:
    """The offers without those that rest only on such committed prices."""
    stated = {(*_key(price), price.usd_per_instance_hour) for price in prices}
    return tuple(one for one in offers if (*_key(one), one.usd_per_instance_hour) not in stated)


def _key(one: ReservedPrice | Offer) -> tuple[str, str, str, str]:
    return (one.provider, one.instance_type, one.region, one.purchase)


def _moved(price: ReservedPrice, today: Offer | None) -> str | None:
    """Why a committed price is not believed, or None."""
    if today is None:
        return None
    now = today.usd_per_instance_hour
    then = price.on_demand_then_usd
    if then is not None and abs(float(then / now) - 1) > SAME_PRICE_TOLERANCE:
        return f"it was read when on-demand was ${then:.4f} an hour, which is ${now:.4f} since {today.read_on}"
    if price.usd_per_instance_hour >= now:
        return f"it is not below the on-demand price of ${now:.4f} an hour"
    return None


def _offer(price: ReservedPrice, notes: str) -> Offer:
    return Offer(
        provider=price.provider,
        instance_type=price.instance_type,
        region=price.region,
        purchase=price.purchase,
        usd_per_instance_hour=price.usd_per_instance_hour,
        read_on=price.source.read_on,
        notes=notes,
        source=price.source,
    )
