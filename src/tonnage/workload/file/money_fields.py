"""The sections that say what is paid and where the data is: schedule, own prices, discounts, hours of people."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from tonnage.catalog.market import Platform
from tonnage.workload.file.fields import Percent, Positive, PositiveOrZero, Spelled, StrictModel, Usd, Word, key

Discounts = Annotated[
    dict[str, Percent], Field(max_length=100), Spelled("`provider`, `provider/family` or `provider/SKU`: percent")
]
Committed = Annotated[dict[str, Usd], Field(max_length=100), Spelled("provider: USD")]


def _by_platform(value: Any) -> Any:
    """One number holds for every platform."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return dict.fromkeys(get_args(Platform), value)
    return value


PlatformHours = Annotated[
    dict[Platform, PositiveOrZero], BeforeValidator(_by_platform), Spelled("number, or platform: hours")
]


class Schedule(StrictModel):
    """Machines run only at set hours: a service, or a job that is stopped and resumed."""

    hours_per_day: Annotated[float, Field(gt=0, le=24), Spelled("number above 0, to 24")] = key(
        "Hours a day.", unit="hours", example="8"
    )
    days_per_month: Annotated[float, Field(gt=0, le=31), Spelled("number above 0, to 31")] = key(
        "Days a month.", unit="days", example="22"
    )

    @property
    def hours_per_month(self) -> float:
        """
        >>> Schedule(hours_per_day=8, days_per_month=22).hours_per_month
        176.0
        """
        return self.hours_per_day * self.days_per_month


class OwnPrices(StrictModel):
    """Prices of your own, before those of the catalog (`tonnage catalog services`). No price at all is a stated gap."""

    object_storage_usd_per_gb_month: PositiveOrZero | None = key(
        "Object storage of the data.", default=None, shown="the catalog's", unit="USD per GB and month", example="0.02"
    )
    block_storage_usd_per_gb_month: PositiveOrZero | None = key(
        "Disks of the machines.", default=None, shown="the catalog's", unit="USD per GB and month", example="0.08"
    )
    egress_usd_per_gb: PositiveOrZero | None = key(
        "Data that leaves the provider that holds it.",
        default=None,
        shown="the catalog's, else refused",
        unit="USD per GB",
        example="0.09",
    )
    egress_region_usd_per_gb: PositiveOrZero | None = key(
        "Data that moves to another region of its provider.",
        default=None,
        shown="the catalog's, else refused",
        unit="USD per GB",
        example="0.02",
    )
    load_balancer_usd_per_hour: PositiveOrZero | None = key(
        "Load balancer of a service.", default=None, shown="none", unit="USD per hour", example="0.025"
    )


class DataPlaceFields(StrictModel):
    """Where the data is, so that moving it can be priced."""

    location: Word | None = key(
        "Where the data is, as `provider/region`.", default=None, shown="not stated", example="aws/us-east-1"
    )
    size_gb: Positive | None = key("How much data there is.", default=None, unit="GB", example="200")
