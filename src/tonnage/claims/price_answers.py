"""Is a price so? Against today's dated offers, and against prices that held earlier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tonnage.catalog import Catalog, InstanceType, Offer
from tonnage.claims.facts import EarlierPrice, earlier_prices
from tonnage.claims.figures import Amount
from tonnage.claims.findings import ClaimAnswer, Verdict
from tonnage.claims.names import Names
from tonnage.claims.statements import PriceClaim

PRICE_TOLERANCE: Final = 0.005
ROUGH_TOLERANCE: Final = 0.05  # a price printed with «~» or «about»
MONTH_HOURS: Final = 730.0
MONTHS_HOURS: Final = (720.0, 730.0, 744.0)  # 30 days, a twelfth of a year, 31 days
LONG_PRICE: Final = 4  # digits from which an equal price of another machine is no chance


def answer_price(claim: PriceClaim, names: Names) -> ClaimAnswer:
    """The verdict on a price of a machine: of the regions the claim names, else of any region."""
    machine = claim.machine
    if machine.kind == "mistaken":
        return _of_nothing(claim, names)
    if not machine.machines:
        return ClaimAnswer(verdict="unknown", hint=f"'{machine.text}' is not in the catalog of {names.catalog.name}")
    offers = _offers(claim, names.catalog)
    if not offers:
        return ClaimAnswer(verdict="unknown", hint=f"no {claim.purchase.replace('_', '-')} price of it in the catalog")
    near = min(offers, key=lambda offer: _nearness(claim, offer))
    if claim.purchase == "spot":
        return _answer("unknown", near, "spot prices move every hour: this is one reading")
    if any(_equals(claim, float(offer.usd_per_instance_hour)) for offer in offers):
        return _answer("ok", near, "")
    return _differing(claim, offers, names)


def _offers(claim: PriceClaim, catalog: Catalog) -> tuple[Offer, ...]:
    """The offers of the machine in the regions that the claim's line or headings name, else in all."""
    machines = claim.machine.machines
    if claim.machine.kind == "series" and claim.gpus is not None:
        machines = tuple(one for one in machines if one.accelerator_count == claim.gpus) or machines
    found = [offer for one in machines for offer in catalog.offers_of(one) if offer.purchase == claim.purchase]
    text = " ".join((claim.place.text, *claim.place.headings))
    named = [offer for offer in found if offer.region and offer.region in text]
    return tuple(named or found)


def _equals(claim: PriceClaim, usd_per_hour: float) -> bool:
    tolerance = ROUGH_TOLERANCE if claim.amount.approximate else PRICE_TOLERANCE
    times: tuple[float, ...] = MONTHS_HOURS if claim.is_monthly else (1.0, claim.count)
    if claim.is_per_gpu:
        times = tuple(each / _gpus(claim) for each in times)
    return any(claim.amount.covers(usd_per_hour * each, tolerance_fraction=tolerance) for each in times)


def _gpus(claim: PriceClaim) -> float:
    """GPUs of the machine that a price per GPU is of; of a series the size the claim counts, else the largest."""
    counts = [machine.accelerator_count for machine in claim.machine.machines if machine.accelerator_count]
    return claim.gpus if claim.gpus in counts and claim.gpus else max(counts, default=1.0)


def _nearness(claim: PriceClaim, offer: Offer) -> tuple[float, bool, str]:
    """The nearest price first; of those as near (to a tenth of a cent) one with a date."""
    price, usd_per_hour = _middle(claim.amount, claim), float(offer.usd_per_instance_hour)
    distance = min(abs(usd_per_hour * count - price) for count in (1.0, claim.count))
    return (round(distance, 3), offer.read_on is None, offer.region)


def _middle(amount: Amount, claim: PriceClaim) -> float:
    high = amount.low if amount.high == float("inf") else amount.high
    whole = (amount.low + high) / 2 * (_gpus(claim) if claim.is_per_gpu else 1.0)
    return whole / (MONTH_HOURS if claim.is_monthly else 1.0)


def _differing(claim: PriceClaim, offers: Sequence[Offer], names: Names) -> ClaimAnswer:
    """Stale where it held once; partly where it lies between the regions; else wrong."""
    cheapest = min(offers, key=_by_price)
    dearest = max(offers, key=lambda offer: offer.usd_per_instance_hour)
    earlier = _earlier(claim)
    if earlier is not None:
        until = f"until {earlier.last_seen}, gone by {earlier.gone_by}"
        return _answer("stale", cheapest, f"${earlier.usd_per_instance_hour:g} held {until} ({earlier.source})")
    price = _middle(claim.amount, claim)
    if claim.is_monthly and price < float(dearest.usd_per_instance_hour):
        hours = price * MONTH_HOURS / float(cheapest.usd_per_instance_hour)
        return _answer("unknown", cheapest, f"it would be {hours:.0f} hours of the month; the text names none")
    if float(cheapest.usd_per_instance_hour) < price < float(dearest.usd_per_instance_hour):
        between = f"no region lists it: ${cheapest.usd_per_instance_hour} to ${dearest.usd_per_instance_hour}"
        return _answer("partly", cheapest, between)
    ratio = price / float(cheapest.usd_per_instance_hour) - 1
    hint = f"{ratio:+.0%} against the cheapest region"
    other = _whose_price(claim, names.catalog)
    return _answer("wrong", cheapest, f"{hint}; it is the price of {other}" if other else hint)


def _by_price(offer: Offer) -> tuple[float, bool, str]:
    """The cheapest first; of equal prices (to a tenth of a cent) one with a date."""
    return (round(float(offer.usd_per_instance_hour), 3), offer.read_on is None, offer.region)


def _earlier(claim: PriceClaim) -> EarlierPrice | None:
    keys = {machine.key for machine in claim.machine.machines}
    if claim.purchase != "on_demand":
        return None
    return next(
        (
            row
            for row in earlier_prices()
            if (row.provider, row.instance_type) in keys and _equals(claim, row.usd_per_instance_hour)
        ),
        None,
    )


def _whose_price(claim: PriceClaim, catalog: Catalog) -> str:
    """Another machine that costs exactly this, where the price has enough digits to tell."""
    if claim.is_monthly or claim.amount.is_range or len(f"{claim.amount.low:g}".replace(".", "")) < LONG_PRICE:
        return ""
    found = {
        f"{offer.instance_type} of {offer.provider}"
        for offer in catalog.offers
        if offer.purchase == claim.purchase and abs(float(offer.usd_per_instance_hour) - claim.amount.low) < 1e-9
    }
    return min(found) if len(found) == 1 else ""


def _of_nothing(claim: PriceClaim, names: Names) -> ClaimAnswer:
    mistake = claim.machine.mistake
    assert mistake is not None
    for name in mistake.what_exists:
        found = names.machine(name)
        machines = found.machines if found else ()
        priced = [offer for one in machines for offer in _on_demand(one, names.catalog)]
        if priced:
            cheapest = min(priced, key=_by_price)
            return _answer("wrong", cheapest, f"'{claim.machine.text}' does not exist, so it has no price", named=True)
    return ClaimAnswer(verdict="wrong", right="no such machine", source=mistake.source, hint=mistake.what_is_wrong)


def _on_demand(machine: InstanceType, catalog: Catalog) -> tuple[Offer, ...]:
    return tuple(offer for offer in catalog.offers_of(machine) if offer.purchase == "on_demand")


def _answer(verdict: Verdict, offer: Offer, hint: str, *, named: bool = False) -> ClaimAnswer:
    name = f"{offer.instance_type}: " if named else ""
    where = f" in {offer.region}" if offer.region else ""
    return ClaimAnswer(
        verdict=verdict,
        right=f"{name}${offer.usd_per_instance_hour}/h{where}",
        source=offer.source.text,
        read_on=offer.read_on,
        hint="; ".join(part for part in (hint, offer.notes if offer.read_on is None else "") if part),
    )
