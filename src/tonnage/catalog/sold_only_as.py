"""Machines that their provider sells in some ways only, though list prices can be put together for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from tonnage.catalog.market import Offer
from tonnage.catalog.rows import read_rows

COLUMNS: Final = ("provider", "instance_type", "purchase", "source", "read_on")


def sold_offers(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The offers that one can buy: a figure summed from prices of parts is no offer where the whole is not sold so."""
    only: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in read_rows(files("tonnage.catalog") / "data" / "sold_only_as.csv", COLUMNS):
        only[row.text("provider"), row.text("instance_type")].add(row.text("purchase"))
    return tuple(one for one in offers if one.purchase in only.get((one.provider, one.instance_type), {one.purchase}))
