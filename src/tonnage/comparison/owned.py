"""Machines of one's own: what their owner states, as dollars an hour and as an offer the planner can use."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Final

from pydantic import Field

from tonnage.catalog import Catalog, InstanceType, Offer, Source
from tonnage.errors import UnknownName, WorkloadError
from tonnage.workload.file.fields import Positive, PositiveOrZero, StrictModel, Word

PROVIDER: Final = "on-premise"
HOURS_PER_YEAR: Final = 8766.0
SMALLEST: Final = Decimal("0.000001")
Share = Annotated[float, Field(gt=0, le=1)]


class Owned(StrictModel):
    """One kind of machine: `owned:` of an alternative in a compare file. Money and power are of one machine."""

    like: Word
    machines: Annotated[int, Field(ge=1, le=100_000)] = 1
    capex_usd: Positive
    years: Positive
    utilisation: Share
    kw: Positive
    usd_per_kwh: PositiveOrZero
    pue: Annotated[float, Field(ge=1, le=5)] = 1.0
    resale_usd: PositiveOrZero = 0.0
    other_usd_per_year: PositiveOrZero = 0.0

    def usd_per_hour(self, *, dedicated: bool) -> tuple[tuple[str, float], ...]:
        """What one machine costs an hour at work, by part. `dedicated`: it serves one service all the time, so that
        no other work fills its idle hours and every hour counts.

        >>> own = Owned(like="x", machines=1, capex_usd=87660, years=2, utilisation=0.5, kw=5, usd_per_kwh=0.2,
        ...             pue=1.5, resale_usd=0, other_usd_per_year=0)
        >>> own.usd_per_hour(dedicated=False)
        (('purchase over its years', 10.0), ('power', 1.5), ('room, support and the rest', 0.0))
        """
        worked = HOURS_PER_YEAR * (1.0 if dedicated else self.utilisation)
        return (
            ("purchase over its years", (self.capex_usd - self.resale_usd) / (self.years * worked)),
            ("power", self.kw * self.pue * self.usd_per_kwh),
            ("room, support and the rest", self.other_usd_per_year / worked),
        )


def with_owned(catalog: Catalog, owned: Owned, *, dedicated: bool, file: str | None) -> Catalog:
    """The catalog with that one machine for sale, at what its owner states. WorkloadError where none is like it."""
    like = _find(catalog, owned.like, file)
    name = f"own {like.name}"
    hourly = sum(usd for _, usd in owned.usd_per_hour(dedicated=dedicated))
    source = Source(text=f"stated in {file or 'the compare file'}: owned", read_on=None)
    machine = replace(like, provider=PROVIDER, name=name, source=source)
    offer = Offer(
        provider=PROVIDER,
        instance_type=name,
        region="",
        purchase="on_demand",
        usd_per_instance_hour=Decimal(repr(hourly)).quantize(SMALLEST),
        read_on=None,
        notes="",
        source=source,
    )
    return replace(catalog, instance_types=(machine,), offers=(offer,))


def _find(catalog: Catalog, name: str, file: str | None) -> InstanceType:
    try:
        return catalog.instance_type(name)
    except UnknownName as error:
        raise WorkloadError(str(error), hint=error.hint, file=file, key="owned.like") from error
