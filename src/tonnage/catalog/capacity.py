"""Machines that money alone does not get at once: sold for a date ahead, or not before a quota is raised."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal, get_args

from tonnage.catalog.hardware import Source
from tonnage.catalog.market import Purchase
from tonnage.catalog.rows import Row, read_rows
from tonnage.values import dataclass

CapacityWay = Literal["capacity block", "future reservation", "quota"]
CAPACITY_COLUMNS: Final = (
    "provider", "instance_types", "purchases", "way", "lead_days", "longest_days", "read_on", "source", "notes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRule:
    """How a machine is got. `lead_days`: how long before the start at most; `longest_days`: of one reservation."""

    provider: str
    instance_types: tuple[str, ...]
    purchases: tuple[Purchase, ...]  # whose offers it is of
    way: CapacityWay
    lead_days: float | None
    longest_days: float | None
    source: Source

    @property
    def keys(self) -> tuple[tuple[str, str, Purchase], ...]:
        """Provider, machine and purchase of each offer it is of."""
        return tuple((self.provider, name, purchase) for name in self.instance_types for purchase in self.purchases)


def read_capacity(path: Traversable | Path, providers: Sequence[str]) -> tuple[CapacityRule, ...]:
    """The rows of capacity.csv; raises CatalogError on a row that names no way or no purchase."""
    return tuple(_read(row, providers) for row in read_rows(path, CAPACITY_COLUMNS))


def _read(row: Row, providers: Sequence[str]) -> CapacityRule:
    purchases = tuple(row.text("purchases").split())
    for one in purchases:
        if one not in get_args(Purchase):
            row.fail("purchases", f"'{one}' is not a way to buy")
    return CapacityRule(
        provider=row.one_of("provider", providers),
        instance_types=tuple(row.text("instance_types").split()),
        purchases=purchases,  # type: ignore[arg-type]
        way=row.one_of("way", get_args(CapacityWay)),  # type: ignore[arg-type]
        lead_days=row.number("lead_days", 0, 1000),
        longest_days=row.number("longest_days", 0, 1000),
        source=row.source(),
    )
