"""What moved between two snapshots: offers new, gone or at another price, machines described otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Final, Literal, TypeVar

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.market import InstanceType, Offer
from tonnage.values import dataclass

Kind = Literal["new", "gone", "price", "spec"]
PriceKey = tuple[str, str, str, str]  # provider, machine or SKU, region, mode or unit
K = TypeVar("K", bound=PriceKey)
KINDS: Final[tuple[Kind, ...]] = ("price", "new", "gone", "spec")
NOT_A_SPEC: Final = ("provider", "name", "notes", "source", "network_source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that moved. `what` is "price", or the field of a specification; figures as they are in the rows."""

    kind: Kind
    provider: str
    name: str
    region: str
    purchase: str
    what: str
    before: str | None  # None: not there
    after: str | None
    change_pct: float | None  # of a price that moved


def compare_catalogs(before: Catalog, after: Catalog) -> tuple[Difference, ...]:
    """Every difference in offers and specifications; the largest moves of price first, then new, gone and spec."""
    moved = [
        *compare_offers(before.offers, after.offers),
        *compare_specs(before.instance_types, after.instance_types),
    ]
    return sorted_differences(moved)


def compare_offers(before: Iterable[Offer], after: Iterable[Offer]) -> Iterator[Difference]:
    """Offers that are new, gone or at another price (USD a machine-hour)."""
    old, new = (
        {(one.provider, one.instance_type, one.region, one.purchase): one.usd_per_instance_hour for one in offers}
        for offers in (before, after)
    )
    return compare_prices(old, new)


def compare_prices(before: Mapping[K, Decimal], after: Mapping[K, Decimal]) -> Iterator[Difference]:
    """Prices that are new, gone or moved."""
    for key in (*before, *(key for key in after if key not in before)):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        kind: Kind = "new" if old is None else "gone" if new is None else "price"
        yield Difference(
            kind=kind, provider=key[0], name=key[1], region=key[2], purchase=key[3], what="price",
            before=None if old is None else f"{old:f}", after=None if new is None else f"{new:f}",
            change_pct=None if old is None or new is None else float(100 * (new - old) / old),
        )  # fmt: skip


def sorted_differences(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """By kind, the largest move first, then by name."""
    order = {kind: place for place, kind in enumerate(KINDS)}

    def key(one: Difference) -> tuple[object, ...]:
        name = (one.provider, one.name, one.region, one.purchase, one.what)
        return (order[one.kind], -abs(one.change_pct or 0.0), *name)

    return tuple(sorted(differences, key=key))


def compare_specs(before: Iterable[InstanceType], after: Iterable[InstanceType]) -> Iterator[Difference]:
    """Fields of machines in both that differ."""
    old = {machine.key: machine for machine in before}
    names = [field.name for field in fields(InstanceType) if field.name not in NOT_A_SPEC]
    for machine in after:
        was = old.get(machine.key)
        for name in names if was is not None else ():
            left, right = getattr(was, name), getattr(machine, name)
            if left != right:
                yield Difference(
                    kind="spec", provider=machine.provider, name=machine.name, region="", purchase="", what=name,
                    before=None if left in (None, "") else str(left),
                    after=None if right in (None, "") else str(right), change_pct=None,
                )  # fmt: skip
