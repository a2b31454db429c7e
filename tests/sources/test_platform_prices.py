"""Prices of platforms: tokens of Bedrock, units of Databricks from an export."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.errors import SourceError
from tonnage.sources import (
    BedrockSource,
    DatabricksSource,
    Web,
    parse_rates,
)

from .conftest import DAY, quarantined


def test_bedrock_prices_are_per_million_tokens(server: Any, web: Web, shapes: ModuleType) -> None:
    """Per 1K and per 1M come out the same; batch is said; images, other units and other currencies are not used."""
    price = shapes.token_price
    server.bedrock = [
        price("Nova Lite", "Input tokens", "0.00006"),
        price("Nova Lite", "Output tokens batch", "0.00012"),
        price("Nova Canvas", "T2I 1024 image input", "0.04", unit="image"),
        price("Titan", "Input tokens", "0"),
        price("Titan", "Output tokens", "x"),
    ]
    server.bedrock[3]["product"]["attributes"]["usagetype"] = "other"
    other = price("Llama", "Input tokens", "1")
    other["dimension"]["pricePerUnit"] = {"CNY": "1"}
    server.bedrock.append(other)
    claude = price("", "Input tokens", "3", unit="1M tokens", servicename="Claude 9 (Amazon Bedrock Edition)")
    server.marketplace = [claude]
    result = BedrockSource(web=web, regions=("us-east-1",), read_on=DAY, base_url=server.url).fetch()
    assert {(row.sku, row.unit, f"{row.price_usd:f}", row.conditions.split(";")[0]) for row in result.managed} == {
        ("Nova Lite input", "USD per 1M tokens", "0.06", "on-demand"),
        ("Nova Lite output", "USD per 1M tokens", "0.12", "batch"),
        ("Claude 9 input", "USD per 1M tokens", "3", "on-demand"),
    }
    assert {(row.platform, row.region_cloud, row.date) for row in result.managed} == {
        ("aws-bedrock", "us-east-1", "2026-11-20")
    }
    assert quarantined(result) == {
        "the price is not above zero": 1, "the price is not a number": 1, "the currency is CNY, not USD": 1,
    }  # fmt: skip


def test_one_bedrock_offer_may_fail(server: Any, web: Web) -> None:
    """Without the marketplace's list the other stands, and the report says so."""
    server.faults.queues["/offers/v1.0/aws/AmazonBedrockFoundationModels/"] = ["404"]
    result = BedrockSource(web=web, regions=("us-east-1",), read_on=DAY, base_url=server.url).fetch()
    assert len(result.managed) == 1
    assert "AmazonBedrockFoundationModels in us-east-1" in result.report.incomplete[0]


LIST_PRICES = """\
sku_name,cloud,currency_code,usage_unit,price,price_start_time,price_end_time
PREMIUM_JOBS_COMPUTE,AWS,USD,DBU,0.15,2024-01-01T00:00:00Z,
PREMIUM_JOBS_COMPUTE,AWS,USD,DBU,0.10,2022-01-01T00:00:00Z,2024-01-01T00:00:00Z
PREMIUM_JOBS_COMPUTE,AZURE,USD,DBU,0.30,2024-01-01T00:00:00Z,
PREMIUM_STORAGE,AWS,USD,DSU,0.023,2024-01-01T00:00:00Z,
BAD_PRICE,AWS,USD,DBU,0,2024-01-01T00:00:00Z,
BAD_CURRENCY,AWS,EUR,DBU,0.2,2024-01-01T00:00:00Z,
TWICE,AWS,USD,DBU,0.2,2024-01-01T00:00:00Z,
TWICE,AWS,USD,DBU,0.3,2024-01-01T00:00:00Z,
"""


def test_databricks_rates_from_an_export(tmp_path: Path) -> None:
    """The rates in effect, per cloud; those of another time or unit are left out, bad ones quarantined."""
    path = tmp_path / "rates.csv"
    path.write_text(LIST_PRICES)
    result = DatabricksSource(location=str(path), read_on=DAY).fetch()
    assert {(row.sku, row.region_cloud, str(row.price_usd), row.unit) for row in result.managed} == {
        ("PREMIUM_JOBS_COMPUTE", "aws", "0.15", "USD per DBU"),
        ("PREMIUM_JOBS_COMPUTE", "azure", "0.30", "USD per DBU"),
    }
    assert quarantined(result) == {
        "two prices for one row": 2, "the price is not above zero": 1, "the currency is EUR, not USD": 1,
    }  # fmt: skip
    assert result.report.rows_read == result.report.rows_used + sum(dict(result.report.dropped).values())


@pytest.mark.parametrize(
    "text",
    [
        '[{"sku_name": "JOBS", "cloud": "GCP", "currency_code": "USD", "usage_unit": "DBU", '
        '"pricing": {"default": "0.15"}}]',
        'sku_name,cloud,currency_code,usage_unit,pricing\nJOBS,GCP,USD,DBU,"{""default"": ""0.15""}"\n',
        "platform,sku,unit,price_usd,region_cloud,conditions,date,source\n"
        "databricks,JOBS,USD per DBU,0.15,gcp,,2026-04,x\n",
    ],
)
def test_databricks_tables_of_every_form(text: str) -> None:
    """JSON, CSV with the price inside `pricing`, and our own columns say the same."""
    [row] = parse_rates(text, read_on=DAY, name="table").managed
    assert (row.platform, row.sku, row.unit, row.price_usd) == ("databricks", "JOBS", "USD per DBU", Decimal("0.15"))
    assert row.region_cloud == "gcp"


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "[{", '{"a": 1}', LIST_PRICES[:-12] + "\nX,AWS\n"])
def test_other_tables_are_refused(text: str) -> None:
    """A table of another shape, or cut off, is refused as a whole."""
    with pytest.raises(SourceError):
        parse_rates(text, read_on=DAY, name="table")
