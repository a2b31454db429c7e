"""The prices of a snapshot row by row: one that cannot be used is left out and named, and the rest counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from importlib.resources.abc import Traversable
from pathlib import Path

from tonnage.catalog.market import Offer
from tonnage.catalog.rows import Row, read_rows
from tonnage.errors import CatalogError
from tonnage.values import dataclass

OFFER_COLUMNS = (
    "provider", "instance_type", "region", "purchase", "usd_per_instance_hour", "read_on", "notes", "source",
)  # fmt: skip
OPTIONAL_COLUMNS = ("currency",)  # blank or USD: nothing here knows a rate of exchange
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRows:
    """The offers of a table, and what was left out of it: «offers.csv, line 9, column 'read_on': ...»."""

    offers: tuple[Offer, ...]
    left_out: tuple[str, ...]


def read_offers(
    path: Traversable | Path, known: Iterable[tuple[str, str]], read_offer: Callable[[Row], Offer], *, unique: bool
) -> OfferRows:
    """The offers of machines in `known`. With `unique` one row an offer: of several the newest is kept.

    Raises CatalogError where the file is not such a table, or no row of it can be used.
    """
    machines, kept, left_out = set(known), list[tuple[Row, Offer]](), list[str]()
    for row in read_rows(path, OFFER_COLUMNS, OPTIONAL_COLUMNS):
        try:
            offer = read_offer(row)
            _check(row, offer, machines)
        except CatalogError as fault:
            left_out.append(fault.message)
        else:
            kept.append((row, offer))
    offers = [offer for _, offer in kept]
    if unique:
        offers = list(_one_each(kept, left_out))
    if left_out and not offers:
        more = f" ({len(left_out) - 1} more rows alike)" if len(left_out) > 1 else ""
        raise CatalogError(f"no price can be used: {left_out[0]}{more}", hint="rebuild the snapshot from its source")
    return OfferRows(offers=tuple(offers), left_out=tuple(left_out))


def _check(row: Row, offer: Offer, machines: set[tuple[str, str]]) -> None:
    currency = row.cells.get("currency", "")
    if currency not in ("", "USD"):
        row.fail("currency", f"'{currency}' is not USD, and no rate of exchange is known here")
    if (offer.provider, offer.instance_type) not in machines:
        row.fail("instance_type", f"'{offer.instance_type}' of {offer.provider} is not in instances.csv")


def _one_each(kept: Iterable[tuple[Row, Offer]], left_out: list[str]) -> Iterator[Offer]:
    """One row an offer: of the same price twice the first, of several dates the newest, of a contradiction none."""
    groups: dict[Key, list[tuple[Row, Offer]]] = {}
    for row, offer in kept:
        groups.setdefault((offer.provider, offer.instance_type, offer.region, offer.purchase), []).append((row, offer))
    for group in groups.values():
        newest = max(offer.read_on or date.min for _, offer in group)
        standing = [offer for _, offer in group if (offer.read_on or date.min) == newest]
        agreed = len({offer.usd_per_instance_hour for offer in standing}) == 1
        if agreed:
            yield standing[0]
        for row, offer in group:
            if not agreed or offer is not standing[0]:
                left_out.append(f"{row.file}, line {row.line}: {_why(offer, standing, agreed=agreed)}")


def _why(offer: Offer, standing: list[Offer], *, agreed: bool) -> str:
    what = (
        f"a second {offer.purchase} price of {offer.provider} {offer.instance_type} in {offer.region or 'any region'}"
    )
    if offer not in standing:
        return f"{what}, read before the one that counts"
    return f"{what}, the same again" if agreed else f"{what} of the same day, and another: neither counts"
