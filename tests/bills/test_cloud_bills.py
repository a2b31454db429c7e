"""Lines of clouds' bills, in the shapes that AWS, FOCUS, Google Cloud and Azure publish."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from tonnage.bills.lines import BillLine
from tonnage.bills.reading import read_bill
from tonnage.errors import DataError

DAY = date(2026, 11, 3)
USD = 10**12
CUR2 = {
    "line_item_usage_start_date": "2026-11-03 11:00:00.000", "line_item_line_item_type": "Usage",
    "line_item_unblended_cost": "3.06", "line_item_currency_code": "USD", "line_item_usage_amount": "1.0",
    "pricing_unit": "Hrs", "line_item_resource_id": "i-0abc", "product_instance_type": "p3.2xlarge",
    "line_item_usage_type": "BoxUsage:p3.2xlarge", "line_item_product_code": "AmazonEC2",
    "resource_tags": '{"user_tonnage": "tonnage:0a1b2c3d:0123456789ab:first-run"}',
}  # fmt: skip
CUR1 = {
    "lineItem/UsageStartDate": "2026-11-03T11:00:00Z", "lineItem/LineItemType": "Usage",
    "lineItem/UnblendedCost": "3.06", "lineItem/CurrencyCode": "USD", "lineItem/UsageAmount": "3600",
    "pricing/unit": "Second", "lineItem/ResourceId": "i-0abc", "product/instanceType": "p3.2xlarge",
    "resourceTags/user:tonnage": "tonnage:0a1b2c3d:0123456789ab:first-run",
}  # fmt: skip
FOCUS = {
    "BilledCost": "3.06", "BillingCurrency": "USD", "ChargePeriodStart": "2026-11-03T11:00:00Z",
    "ChargeCategory": "Usage", "ConsumedQuantity": "1", "ConsumedUnit": "Hours", "ResourceId": "i-0abc",
    "SkuPriceDetails": '{"InstanceType": "p3.2xlarge"}',
    "Tags": '{"tonnage": "tonnage:0a1b2c3d:0123456789ab:first-run"}',
}  # fmt: skip
GCP: dict[str, Any] = {
    "cost": 3.06, "currency": "USD", "currency_conversion_rate": 1.0, "usage_start_time": "2026-11-03 11:00:00 UTC",
    "cost_type": "regular", "usage": {"amount": 3600.0, "unit": "seconds"}, "resource": {"name": "i-0abc"},
    "sku": {"description": "Nvidia Tesla V100 GPU"}, "service": {"description": "Compute Engine"},
    "labels": [{"key": "tonnage", "value": "tonnage:0a1b2c3d:0123456789ab:first-run"}],
    "system_labels": [{"key": "compute.googleapis.com/machine_spec", "value": "p3.2xlarge"}],
}  # fmt: skip
AZURE = {
    "Date": "11/03/2026", "CostInBillingCurrency": "3.06", "BillingCurrency": "USD", "Quantity": "1",
    "UnitOfMeasure": "1 Hour", "MeterCategory": "Virtual Machines", "ResourceId": "i-0abc", "ChargeType": "Usage",
    "AdditionalInfo": '{"ServiceType": "p3.2xlarge"}',
    "Tags": '"tonnage": "tonnage:0a1b2c3d:0123456789ab:first-run","env": "test"',
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {"cur": CUR1, "cur-2": CUR2, "focus": FOCUS, "google": GCP, "azure": AZURE}


def as_json(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_csv(path: Path, *rows: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def one_of(path: Path) -> BillLine:
    (line,) = read_bill(path).lines
    return line


@pytest.mark.parametrize("kind", SHAPES)
def test_an_hour_of_a_machine(tmp_path: Path, kind: str) -> None:
    """One hour for 3.06 dollars on the third of November, with its machine, its resource and its tag."""
    write = as_json if kind == "google" else as_csv
    line = one_of(write(tmp_path / "bill", SHAPES[kind]))
    assert (line.day, line.usd_pico, line.hours, line.charge) == (DAY, 3_060_000_000_000, 1.0, "usage")
    assert (line.resource, line.machine) == ("i-0abc", "p3.2xlarge")
    assert "tonnage:0a1b2c3d:0123456789ab:first-run" in dict(line.tags).values()


@pytest.mark.parametrize(
    ("row", "charge", "hours"),
    [
        ({**CUR2, "line_item_line_item_type": "SavingsPlanCoveredUsage"}, "commitment", 1.0),
        ({**CUR2, "line_item_line_item_type": "SavingsPlanNegation"}, "commitment", None),
        ({**CUR2, "line_item_line_item_type": "EdpDiscount"}, "credit", None),
        ({**CUR2, "line_item_line_item_type": "Credit"}, "credit", None),
        ({**CUR2, "line_item_line_item_type": "Tax"}, "tax", None),
        ({**CUR2, "line_item_line_item_type": "RIFee"}, "fee", None),
        ({**CUR2, "pricing_unit": "GB-Mo"}, "usage", None),
        ({**FOCUS, "CommitmentDiscountId": "sp-1"}, "commitment", 1.0),
        ({**FOCUS, "ChargeCategory": "Purchase"}, "fee", None),
        ({**AZURE, "reservationId": "r-1"}, "commitment", 1.0),
        ({**AZURE, "ChargeType": "Refund"}, "credit", None),
        ({**AZURE, "MeterCategory": "Storage"}, "usage", None),
    ],
)  # fmt: skip
def test_kinds_of_charges(tmp_path: Path, row: dict[str, str], charge: str, hours: float | None) -> None:
    """What is no use of a machine counts no hours."""
    line = one_of(as_csv(tmp_path / "bill", row))
    assert (line.charge, line.hours) == (charge, hours)


def test_credits_and_rates_of_google(tmp_path: Path) -> None:
    """Each credit of a row is a line of its own; the export's rate makes dollars of another currency."""
    row = {**GCP, "currency": "EUR", "currency_conversion_rate": 0.9, "cost": 2.7,
           "credits": [{"name": "Sustained use", "amount": -0.9, "type": "SUSTAINED_USAGE_DISCOUNT"}]}  # fmt: skip
    use, credit = read_bill(as_json(tmp_path / "bill", row)).lines
    assert (use.usd_pico, use.converted, use.hours) == (3 * USD, True, 1.0)
    assert (credit.usd_pico, credit.charge, credit.hours, credit.tags) == (-USD, "credit", None, use.tags)


def test_another_currency_has_no_dollars(tmp_path: Path) -> None:
    """Unless the bill has them: a rate, or a column of dollars."""
    line = one_of(as_csv(tmp_path / "bill", {**FOCUS, "BillingCurrency": "EUR"}))
    assert (line.usd_pico, line.currency, line.hours) == (None, "EUR", 1.0)
    line = one_of(as_csv(tmp_path / "azure", {**AZURE, "BillingCurrency": "EUR", "costInUsd": "3.4"}))
    assert (line.usd_pico, line.converted) == (3_400_000_000_000, True)


def test_parquet_compressed_files_and_parts(tmp_path: Path) -> None:
    """A folder of parts is one bill: Parquet with times, decimals and maps as their types, and CSV in gzip."""
    folder = tmp_path / "export"
    folder.mkdir()
    tag = "tonnage:0a1b2c3d:0123456789ab:first-run"
    duckdb.sql(
        f"SELECT TIMESTAMP '2026-11-03 11:00:00' AS line_item_usage_start_date, 'Usage' AS line_item_line_item_type, "
        "3.06::DECIMAL(18, 9) AS line_item_unblended_cost, 'USD' AS line_item_currency_code, 1.0 AS "
        f"line_item_usage_amount, 'Hrs' AS pricing_unit, MAP {{'user_tonnage': '{tag}'}} AS resource_tags"
    ).write_parquet(str(folder / "part-0.parquet"))
    zoned = pa.table({"line_item_usage_start_date": pa.array([datetime(2026, 11, 3, 23, tzinfo=UTC)]),
                      "line_item_unblended_cost": [1.0], "resource_tags": [[("user_tonnage", tag)]]},
                     schema=pa.schema([("line_item_usage_start_date", pa.timestamp("us", "UTC")),
                                       ("line_item_unblended_cost", pa.float64()),
                                       ("resource_tags", pa.map_(pa.string(), pa.string()))]))  # fmt: skip
    parquet.write_table(zoned, folder / "part-2.parquet")
    as_csv(tmp_path / "part", {**CUR2, "line_item_unblended_cost": "1.94"})
    (folder / "part-1.csv.gz").write_bytes(gzip.compress((tmp_path / "part").read_bytes()))
    found = list(read_bill(folder).lines)
    assert sum(one.usd_pico or 0 for one in found) == 6 * USD
    assert {(one.day, one.hours, dict(one.tags)["user_tonnage"]) for one in found} == {
        (DAY, 1.0, tag),
        (DAY, None, tag),
    }


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """With the file, and the line where it has one."""
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no part of a bill"):
        read_bill(tmp_path / "none")
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"x\.parquet cannot be read"):
        read_bill(tmp_path / "x.parquet")
    with pytest.raises(DataError, match="cannot be read"):
        read_bill(tmp_path / "missing.csv")
    bad = as_csv(tmp_path / "bad.csv", CUR2, {**CUR2, "line_item_unblended_cost": "three"})
    with pytest.raises(DataError, match=r"bad\.csv:3 cannot be read"):
        list(read_bill(bad).lines)
    bad = as_csv(tmp_path / "tags.csv", {**AZURE, "Tags": '"team: x'})
    with pytest.raises(DataError, match=r"tags\.csv:2 cannot be read"):
        list(read_bill(bad).lines)
