"""What a price source hands back: machines, offers, and an account of every row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from tonnage.catalog.market import InstanceType, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """How many rows a source had, how many were used, and why the others were not. `error`: it failed."""

    source: str
    rows_read: int
    rows_used: int
    dropped: tuple[tuple[str, int], ...]  # reason, rows; most frequent first
    error: str | None = None

    @property
    def rows_dropped(self) -> int:
        return sum(count for _, count in self.dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """Machines and offers of one source."""

    instances: tuple[InstanceType, ...]
    offers: tuple[Offer, ...]
    report: SourceReport


class PriceSource(Protocol):
    """Something that knows prices. `fetch` uses the disk or the network; the parsing behind it does not."""

    @property
    def name(self) -> str:
        """What reports and snapshot rows call it."""

    def fetch(self) -> SourceResult:
        """Read everything once; raises SourceError when the source cannot be read at all."""


class Tally:
    """Counts rows while a source is parsed."""

    def __init__(self, source: str) -> None:
        self.source, self.read, self.used = source, 0, 0
        self._dropped: Counter[str] = Counter()

    def drop(self, reason: str) -> None:
        """One row was left out, and why."""
        self._dropped[reason] += 1

    def report(self) -> SourceReport:
        """The account so far."""
        dropped = sorted(self._dropped.items(), key=lambda item: (-item[1], item[0]))
        return SourceReport(source=self.source, rows_read=self.read, rows_used=self.used, dropped=tuple(dropped))
