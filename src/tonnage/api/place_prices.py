"""What an hour at a place costs: as places.toml says, else as the catalog has its machine, with the platform's fee."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from tonnage.reports.wording import render_machines, render_purchase
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.file import AnyPlace
    from tonnage.places.terms import CatalogMachine
    from tonnage.pricing.deals import Deal
    from tonnage.settings import Settings


OWN: Final = ("places.toml", "the plan")  # whoever wrote these says the price
OLD_DAYS: Final = 180  # a price that was read longer ago is doubted


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
        document = {"what": self.what, "usd_per_hour": self.usd_per_hour, "source": self.source, "read_on": day}
        return {**document, "undated": self.read_on is None and self.source not in OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyPrice:
    """Lines that sum to what all machines of a run cost in an hour."""

    lines: tuple[HourlyLine, ...]

    @property
    def source_lines(self) -> tuple[HourlyLine, ...]:
        """Those of the catalog."""
        return tuple(line for line in self.lines if line.source not in OWN)

    def described(self, today: date) -> str:
        """Where it is from, and how old it is."""
        if not self.source_lines:
            return self.lines[0].source
        days = [(today - line.read_on).days for line in self.source_lines if line.read_on is not None]
        if len(days) < len(self.source_lines):
            return "catalog, undated"
        return f"catalog, {max(days)} days old"

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


def price_doubts(place: AnyPlace, price: HourlyPrice | None, *, today: date) -> Iterator[tuple[str, str]]:
    """What is doubtful of a price, with what mends it: its age, and a bid that does not reach it."""
    if price is None:
        return
    mends = "usd_per_hour in places.toml, once you have looked it up"
    for line in price.source_lines:
        if line.read_on is None:
            yield f"the price of {line.what} is undated ({line.source})", mends
        elif (days := (today - line.read_on).days) > OLD_DAYS:
            yield f"the price of {line.what} was read {days} days ago ({line.source})", mends
    most, each = getattr(place, "most_usd_per_hour", None), price.usd_per_hour / place.machines
    if most is not None and each > most:
        said = f"a machine's price, ${each:,.2f} an hour, is above most_usd_per_hour = {most:g}"
        yield f"{said}: none may be had at that", "raise most_usd_per_hour, or leave it out: on-demand's price then"


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
