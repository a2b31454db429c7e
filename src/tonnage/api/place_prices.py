"""What an hour at a place costs: as places.toml says, else as the catalog has its machine, with the platform's fee."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any

from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.file import AnyPlace
    from tonnage.places.terms import CatalogMachine
    from tonnage.pricing.deals import Deal
    from tonnage.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyLine:
    """A part of an hour's price, of all machines of a run."""

    what: str
    usd_per_hour: float
    source: str
    read_on: date | None = None

    def document(self) -> dict[str, Any]:
        """For `-o json`."""
        day = None if self.read_on is None else self.read_on.isoformat()
        return {"what": self.what, "usd_per_hour": self.usd_per_hour, "source": self.source, "read_on": day}


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyPrice:
    """Lines that sum to what all machines of a run cost in an hour."""

    lines: tuple[HourlyLine, ...]

    @property
    def usd_per_hour(self) -> float:
        return sum(line.usd_per_hour for line in self.lines)


def stated_price(usd_per_hour: float, source: str) -> HourlyPrice:
    """One that is known as a whole."""
    return HourlyPrice(lines=(HourlyLine(what="all machines of a run", usd_per_hour=usd_per_hour, source=source),))


def price_at(settings: Settings, place: AnyPlace) -> HourlyPrice | None:
    """What an hour of a run there costs; None where neither places.toml nor the catalog has a price.

    The catalog is asked where the place says which machine it is, in which region, and how it is bought. Of several
    machines that a run may get it is the dearest; where the price of one is not known, neither is that of the place.
    """
    if place.run_usd_per_hour is not None:
        return stated_price(place.run_usd_per_hour, "places.toml")
    deals = [_deal_of(settings, machine) for machine in place.possible_machines]
    prices = [None if deal is None else HourlyPrice(lines=tuple(_lines(deal, place.machines))) for deal in deals]
    known = [price for price in prices if price is not None]
    return max(known, key=lambda one: one.usd_per_hour) if known and len(known) == len(prices) else None


def _deal_of(settings: Settings, machine: CatalogMachine) -> Deal | None:
    """The machine as its platform sells it, by the function that plans use; a fee that was not read is not guessed."""
    if machine.region is None or machine.purchase is None:
        return None
    from tonnage.api.catalogs import market_of
    from tonnage.pricing.deals import platform_deals
    from tonnage.workload.jobs import BuyTerms

    catalog = market_of(None, settings)
    offers = [
        one for one in catalog.offers
        if (one.provider, one.instance_type) == (machine.provider, machine.instance_type)
        and one.purchase == machine.purchase and one.region in (machine.region, "")
    ]  # fmt: skip
    deals, _ = platform_deals(offers, catalog, (machine.platform,), kind="train", buy=BuyTerms())
    return min(deals, key=lambda one: one.offer.usd_per_instance_hour, default=None)


def _lines(deal: Deal, machines: int) -> Iterator[HourlyLine]:
    from tonnage.reports.wording import render_machines, render_purchase

    offer, fee = deal.offer, deal.fee
    where = f" in {offer.region}" if offer.region else ""
    named = render_machines(machines, offer.instance_type)
    yield HourlyLine(
        what=f"{named} at {offer.provider}{where}, {render_purchase(offer.purchase)}",
        usd_per_hour=float(offer.usd_per_instance_hour) * machines, source=offer.source.text, read_on=offer.read_on,
    )  # fmt: skip
    if fee is not None:
        yield HourlyLine(
            what=f"{fee.what}: {fee.quantity_per_hour * machines} {fee.unit} an hour",
            usd_per_hour=float(fee.usd_per_instance_hour) * machines, source=str(fee.source), read_on=fee.read_on,
        )  # fmt: skip
