"""A price source that gives prepared answers."""

from __future__ import annotations

from threading import Event

from tonnage.catalog import InstanceType, Offer
from tonnage.sources import ManagedPriceRow, QuarantinedRow, SourceReport, SourceResult
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSource:
    """Answers `instances`, `offers` and `managed`; raises `error` where one is given; waits for `gate` first.

    >>> FakeSource(name="mine").fetch().report.rows_used
    0
    """

    name: str
    instances: tuple[InstanceType, ...] = ()
    offers: tuple[Offer, ...] = ()
    managed: tuple[ManagedPriceRow, ...] = ()
    quarantined: tuple[QuarantinedRow, ...] = ()
    error: Exception | None = None
    gate: Event | None = None  # one that is never set is a source that hangs

    def fetch(self) -> SourceResult:
        """The answer; raises `error`."""
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            raise self.error
        used, bad = len(self.offers) + len(self.managed), len(self.quarantined)
        report = SourceReport(source=self.name, rows_read=used + bad, rows_used=used, dropped=())
        return SourceResult(
            instances=self.instances,
            offers=self.offers,
            report=report,
            managed=self.managed,
            quarantined=self.quarantined,
        )
