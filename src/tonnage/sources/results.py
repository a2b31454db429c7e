"""What a price source hands back: machines, offers, and an account of every row."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from typing import Final, Protocol

from tonnage.catalog.market import InstanceType, Offer
from tonnage.errors import SourceError
from tonnage.values import dataclass

MANAGED_COLUMNS: Final = ("platform", "sku", "unit", "price_usd", "region_cloud", "conditions", "date", "source")
QUARANTINE_COLUMNS: Final = ("source", "provider", "instance_type", "region", "purchase", "figure", "reason")
_DAY: Final = re.compile(r"\d{4}-\d{2}(-\d{2})?")
MOST_QUARANTINED: Final = 20_000  # rows kept in full a source; those beyond are counted only


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedPriceRow:
    """A price that is not a machine-hour: tokens, DBU. Columns as in `managed_prices.csv`."""

    platform: str  # aws-bedrock, databricks
    sku: str
    unit: str  # "USD per 1M tokens", "USD per DBU"
    price_usd: Decimal
    region_cloud: str
    conditions: str
    date: str  # ISO day on which the price was read
    source: str

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        return (self.platform, self.sku, self.unit, self.region_cloud, self.conditions)

    @property
    def day(self) -> str:
        """Its date as texts order days, a month alone before its days; "" where it states none."""
        found = _DAY.match(self.date)
        return found[0] if found else ""

    def cells(self) -> list[str]:
        """In the order of MANAGED_COLUMNS."""
        return [
            self.platform, self.sku, self.unit, f"{self.price_usd:f}", self.region_cloud, self.conditions,
            self.date, self.source,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that was read and is not used, as it was, and why."""

    source: str
    provider: str
    instance_type: str
    region: str
    purchase: str
    figure: str
    reason: str

    def cells(self) -> list[str]:
        """In the order of QUARANTINE_COLUMNS."""
        return [
            self.source, self.provider, self.instance_type, self.region, self.purchase, self.figure, self.reason,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """How many rows a source had, how many were used, and why the others were not. `error`: it failed."""

    source: str
    rows_read: int
    rows_used: int
    dropped: tuple[tuple[str, int], ...]  # reason, rows; most frequent first
    error: str | None = None
    quarantined: tuple[tuple[str, int], ...] = ()  # of those dropped, the ones that are wrong rather than not wanted
    incomplete: tuple[str, ...] = ()  # parts (a region, say) that could not be read, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """Machines and offers of one source, prices that are no machine-hours, and the rows it would not trust."""

    instances: tuple[InstanceType, ...]
    offers: tuple[Offer, ...]
    report: SourceReport
    managed: tuple[ManagedPriceRow, ...] = ()
    quarantined: tuple[QuarantinedRow, ...] = ()


class PriceSource(Protocol):
    """Something that knows prices. `fetch` uses the disk or the network; the parsing behind it does not."""

    @property
    def name(self) -> str:
        """What reports and snapshot rows call it."""

    def fetch(self) -> SourceResult:
        """Read everything once; raises SourceError when the source cannot be read at all."""


class RowTally:
    """Counts rows while a source is parsed, and keeps those that are wrong."""

    def __init__(self, source: str) -> None:
        self.source, self.read, self.used = source, 0, 0
        self.quarantined: list[QuarantinedRow] = []
        self._unread: dict[str, list[str]] = {}
        self._dropped: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()

    def drop(self, reason: str) -> None:
        """One row was left out, and why."""
        self._dropped[reason] += 1

    def miss(self, part: str, why: str) -> None:
        """A part (a region, say) that could not be read at all."""
        self._unread.setdefault(why, []).append(part)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Parts that could not be read, those with one reason together."""
        return tuple(f"{', '.join(parts)}: {why}" for why, parts in self._unread.items())

    def require_some(self, parts: int) -> None:
        """Raise SourceError where all of so many parts could not be read."""
        if parts and sum(map(len, self._unread.values())) == parts:
            raise SourceError("; ".join(self.incomplete))

    def quarantine(
        self, reason: str, *, provider: str, name: str = "", region: str = "", purchase: str = "", figure: object = ""
    ) -> None:
        """One row is wrong: left out like any other, and kept for a person to look at."""
        self.drop(reason)
        self._wrong[reason] += 1
        if len(self.quarantined) < MOST_QUARANTINED:
            cells = [str(cell)[:200] for cell in (provider, name, region, purchase, figure)]
            self.quarantined.append(
                QuarantinedRow(
                    source=self.source, provider=cells[0], instance_type=cells[1], region=cells[2],
                    purchase=cells[3], figure=cells[4], reason=reason,
                )
            )  # fmt: skip

    def report(self) -> SourceReport:
        """The account so far."""
        return SourceReport(
            source=self.source,
            rows_read=self.read,
            rows_used=self.used,
            dropped=most_frequent_first(self._dropped),
            quarantined=most_frequent_first(self._wrong),
            incomplete=self.incomplete,
        )


def most_frequent_first(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    """(reason, rows), the largest count first, then by name."""
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
