"""managed_prices.csv and billing.csv -> frozen values, each row by its platform and unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from tonnage.catalog.hardware import Source
from tonnage.catalog.managed import (
    BatchTokenDiscount,
    BillingRule,
    CustomisationPrice,
    DbuPrice,
    DbuRate,
    ManagedPrices,
    ManagementFee,
    MlInstancePrice,
    OtherPrice,
    ProvisionedPrice,
    ReservedPrice,
    StoragePrice,
    TokenPrice,
)
from tonnage.catalog.rows import Row, read_rows

MANAGED_COLUMNS: Final = ("platform", "sku", "unit", "price_usd", "region_cloud", "conditions", "date", "source")
BILLING_COLUMNS: Final = ("provider", "instance_pattern", "quantum_s", "minimum_s", "read_on", "source")
PLATFORMS: Final = (
    "databricks", "aws-sagemaker", "gcp-vertex", "aws-bedrock", "aws-ec2-reserved", "gcp-cud", "oci",
)  # fmt: skip
MAX_PRICE: Final = 10_000.0
TOKEN_UNIT: Final = "USD per 1M tokens"

_DAY: Final = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?")
_RESERVED: Final = re.compile(r"(\S+) (?:standard RI|resource CUD) ([13])y")
_ON_DEMAND: Final = re.compile(r"on-demand(?: then)? ([\d.]*\d)")
_TOKENS: Final = re.compile(r"(?:Foundation Model API pay-per-token: )?(.+) (input|output|cache read|cache write)")
_PROVISIONED: Final = re.compile(r"provisioned throughput (.+), (?:(\d+)-month|no commitment)")
_TUNING: Final = re.compile(r"fine-tuning (.+) training")
_SURCHARGE: Final = re.compile(r"custom training surcharge on (\S+)")


def read_managed(path: Traversable | Path) -> ManagedPrices:
    """Every row of a managed_prices.csv. Raises CatalogError with file, line and column."""
    return collect_managed(read_rows(path, MANAGED_COLUMNS))


def collect_managed(rows: Iterable[Row]) -> ManagedPrices:
    """Rows of MANAGED_COLUMNS, by what they price. Raises CatalogError on the first that cannot be used."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        platform = row.one_of("platform", PLATFORMS)
        field, value = _READERS.get((platform, row.text("unit")), _other)(row)
        found.setdefault(field, []).append(value)
    return ManagedPrices(**{field: tuple(values) for field, values in found.items()})


def token_sku(sku: str) -> tuple[str, str]:
    """Model and kind of tokens that a SKU names; ("", "") where it names none.

    >>> token_sku("amazon.nova-lite-v1:0 cache read")
    ('amazon.nova-lite-v1:0', 'cache read')
    """
    found = _TOKENS.fullmatch(sku)
    return (found[1], found[2]) if found else ("", "")


def read_billing(path: Traversable | Path) -> tuple[BillingRule, ...]:
    """The billing rules, the more specific pattern of a provider before the general one."""
    return tuple(
        BillingRule(
            provider=row.text("provider"),
            instance_pattern=row.text("instance_pattern"),
            quantum_s=row.required("quantum_s", 0.001, 2_678_400),
            minimum_s=row.required("minimum_s", 0.001, 2_678_400),
            source=row.source(),
        )
        for row in read_rows(path, BILLING_COLUMNS)
    )


def _source(row: Row) -> Source:
    """A month alone counts from its first day; a text without a date is undated."""
    found = _DAY.match(row.cells["date"])
    day = None
    if found:
        try:
            day = date(int(found[1]), int(found[2]), int(found[3] or 1))
        except ValueError:
            row.fail("date", f"'{row.cells['date']}' is not a date such as 2026-11-20 or 2026-11")
    return Source(text=row.text("source"), read_on=day)


def _price(row: Row) -> Decimal:
    return row.price("price_usd", MAX_PRICE)


def _matched(row: Row, pattern: re.Pattern[str]) -> re.Match[str]:
    found = pattern.match(row.text("sku"))
    if found is None:
        row.fail("sku", f"'{row.cells['sku']}' is not written as its unit expects")
    return found


def _dbu_rate(row: Row) -> tuple[str, object]:
    name = row.text("sku").removeprefix("DBU rate ")
    value = DbuRate(
        cloud=row.text("region_cloud"), instance_type=name, dbu_per_instance_hour=_price(row), source=_source(row)
    )
    return "dbu_rates", value


def _dbu_price(row: Row) -> tuple[str, object]:
    value = DbuPrice(
        cloud=row.text("region_cloud"),
        sku=row.text("sku"),
        usd_per_dbu=_price(row),
        conditions=row.cells["conditions"],
        source=_source(row),
    )
    return "dbu_prices", value


def _ml_instance(row: Row) -> tuple[str, object]:
    value = MlInstancePrice(
        instance_type=row.text("sku").removeprefix("ml."),
        region=row.text("region_cloud"),
        usd_per_instance_hour=_price(row),
        conditions=row.cells["conditions"],
        source=_source(row),
    )
    return "ml_instances", value


def _management_fee(row: Row) -> tuple[str, object]:
    value = ManagementFee(
        provider="gcp",
        instance_type=_matched(row, _SURCHARGE)[1],
        region=row.text("region_cloud"),
        price_ratio=_price(row),
        source=_source(row),
    )
    return "management_fees", value


def _token(row: Row) -> tuple[str, object]:
    found = _matched(row, _TOKENS)
    value = TokenPrice(
        platform="databricks" if row.cells["platform"] == "databricks" else "bedrock",
        model=found[1],
        kind=found[2],  # type: ignore[arg-type]
        usd_per_million_tokens=_price(row),
        region=row.text("region_cloud"),
        conditions=row.cells["conditions"],
        source=_source(row),
    )
    return "tokens", value


def _batch_discount(row: Row) -> tuple[str, object]:
    fraction = _price(row)
    if fraction >= 1:
        row.fail("price_usd", f"{fraction} is not a fraction below 1")
    value = BatchTokenDiscount(
        platform="bedrock", fraction=fraction, conditions=row.cells["conditions"], source=_source(row)
    )
    return "batch_discounts", value


def _provisioned(row: Row) -> tuple[str, object]:
    found = _matched(row, _PROVISIONED)
    value = ProvisionedPrice(
        model=found[1],
        commitment_months=int(found[2] or 0),
        usd_per_model_unit_hour=_price(row),
        region=row.text("region_cloud"),
        source=_source(row),
    )
    return "provisioned", value


def _customisation(row: Row) -> tuple[str, object]:
    value = CustomisationPrice(
        model=_matched(row, _TUNING)[1],
        usd_per_million_tokens=_price(row) * 1000,
        region=row.text("region_cloud"),
        source=_source(row),
    )
    return "customisation", value


def _storage(row: Row) -> tuple[str, object]:
    value = StoragePrice(
        what=row.text("sku"), usd_per_model_month=_price(row), region=row.text("region_cloud"), source=_source(row)
    )
    return "storage", value


def _reserved(row: Row) -> tuple[str, object]:
    found = _matched(row, _RESERVED)
    then = _ON_DEMAND.search(row.cells["conditions"])
    value = ReservedPrice(
        provider="gcp" if row.cells["platform"] == "gcp-cud" else "aws",
        instance_type=found[1],
        region=row.text("region_cloud"),
        purchase="reserved_1y" if found[2] == "1" else "reserved_3y",
        usd_per_instance_hour=_price(row),
        on_demand_then_usd=Decimal(then[1]) if then else None,
        conditions=row.cells["conditions"],
        source=_source(row),
    )
    return "reserved", value


def _other(row: Row) -> tuple[str, object]:
    value = OtherPrice(
        platform=row.cells["platform"],
        sku=row.text("sku"),
        unit=row.text("unit"),
        price=_price(row),
        region=row.text("region_cloud"),
        source=_source(row),
    )
    return "other", value


_READERS: Final[dict[tuple[str, str], Callable[[Row], tuple[str, object]]]] = {
    ("databricks", "DBU per instance-hour (not USD)"): _dbu_rate,
    ("databricks", "USD per DBU"): _dbu_price,
    ("databricks", TOKEN_UNIT): _token,
    ("aws-sagemaker", "USD per instance-hour"): _ml_instance,
    ("gcp-vertex", "ratio to Compute Engine price"): _management_fee,
    ("aws-bedrock", TOKEN_UNIT): _token,
    ("aws-bedrock", "fraction off on-demand token price"): _batch_discount,
    ("aws-bedrock", "USD per model unit-hour"): _provisioned,
    ("aws-bedrock", "USD per 1K tokens processed"): _customisation,
    ("aws-bedrock", "USD per model-month"): _storage,
    ("aws-ec2-reserved", "USD per hour"): _reserved,
    ("gcp-cud", "USD per hour (month/730)"): _reserved,
}
