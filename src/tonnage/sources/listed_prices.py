"""Prices as listings state them: a figure in a currency, for a machine in a region, from a day on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from tonnage.catalog.hardware import Source
from tonnage.catalog.loading import MAX_USD_PER_HOUR
from tonnage.catalog.market import InstanceType, Offer, Purchase
from tonnage.sources.machines import RowRejectedError
from tonnage.sources.results import RowTally, SourceResult
from tonnage.values import dataclass

HOURS_PER_YEAR = 8760  # how providers turn a year's commitment into an hourly rate


def read_price(value: object, *, most: float = MAX_USD_PER_HOUR) -> Decimal:
    """A price above zero (USD), from a JSON number or a text; raises RowRejectedError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise RowRejectedError("the price is not a number")
    try:
        price = Decimal(str(value).strip())
    except InvalidOperation:
        raise RowRejectedError("the price is not a number") from None
    if price.is_nan():
        raise RowRejectedError("the price is not a number")
    if price <= 0:
        raise RowRejectedError("the price is not above zero")
    if not price.is_finite() or price > Decimal(most):
        raise RowRejectedError(f"the price is a sentinel or in another unit (above {most:g} USD)")
    return price


def require_usd(currency: object) -> None:
    """Raise RowRejectedError unless the currency is USD: nothing is converted, nothing is assumed."""
    if currency != "USD":
        shown = currency[:12] if isinstance(currency, str) and currency else "not stated"
        raise RowRejectedError(f"the currency is {shown}, not USD")


def read_text(row: Mapping[str, Any], key: str) -> str:
    """A text that must be there; raises RowRejectedError."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RowRejectedError(f"{key} is missing or not a text")
    return value.strip()


def read_count(row: Mapping[str, Any], key: str, most: float = 1e6) -> float:
    """A figure above zero; raises RowRejectedError."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise RowRejectedError(f"{key} is not a figure above zero")
    return float(value)


@dataclass(frozen=True, slots=True)
class _Entry:
    price: Decimal
    since: str  # the ISO day the price holds from, "" where the listing does not say
    notes: str


class PriceBook:
    """Gathers listed prices by machine, region and mode, and settles what is listed twice."""

    def __init__(self, tally: RowTally) -> None:
        self._tally = tally
        self._machines: dict[tuple[str, str], InstanceType] = {}
        self._entries: dict[tuple[str, str, str, Purchase], list[_Entry]] = defaultdict(list)

    def add(
        self,
        machine: InstanceType,
        region: str,
        purchase: Purchase,
        price: Decimal,
        *,
        since: str = "",
        notes: str = "",
    ) -> None:
        """One listed price (USD a machine-hour)."""
        self._machines.setdefault(machine.key, machine)
        self._entries[machine.provider, machine.name, region, purchase].append(_Entry(price, since, notes))

    def result(self, *, read_on: date | None) -> SourceResult:
        """Offers with one price each; the rest is quarantined with the reason."""
        source = Source(text=self._tally.source, read_on=read_on)
        offers = []
        for (provider, name, region, purchase), entries in self._entries.items():
            entry = self._settle((provider, name, region, purchase), entries)
            if entry is None:
                continue
            self._tally.used += 1
            offers.append(
                Offer(
                    provider=provider,
                    instance_type=name,
                    region=region,
                    purchase=purchase,
                    usd_per_instance_hour=entry.price,
                    read_on=read_on,
                    notes=entry.notes,
                    source=source,
                )
            )
        used = {(offer.provider, offer.instance_type) for offer in offers}
        machines = tuple(machine for key, machine in self._machines.items() if key in used)
        return SourceResult(
            instances=machines,
            offers=tuple(offers),
            report=self._tally.report(),
            quarantined=tuple(self._tally.quarantined),
        )

    def _settle(self, key: tuple[str, str, str, Purchase], entries: list[_Entry]) -> _Entry | None:
        """The entry with the latest day; None where that day has two prices."""
        last = max(entry.since for entry in entries)
        latest = [entry for entry in entries if entry.since == last]
        for entry in entries:
            if entry.since != last:
                self._refuse(key, entry, "two dates for one row: the later one is kept")
        prices = {entry.price for entry in latest}
        for entry in latest[1:] if len(prices) == 1 else latest:
            why = "the same row twice" if len(prices) == 1 else "two prices for one machine, region and mode"
            self._refuse(key, entry, why)
        return latest[0] if len(prices) == 1 else None

    def _refuse(self, key: tuple[str, str, str, Purchase], entry: _Entry, reason: str) -> None:
        figure = f"{entry.price} since {entry.since}" if entry.since else str(entry.price)
        self._tally.quarantine(reason, provider=key[0], name=key[1], region=key[2], purchase=key[3], figure=figure)
