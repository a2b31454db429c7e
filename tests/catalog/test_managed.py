"""Managed prices: what the packaged table holds, which committed prices are believed, which faults are named."""

from __future__ import annotations

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.errors import CatalogError

SAMPLE = Path(__file__).parents[1] / "data" / "catalog" / "small"
HEADER = "platform,sku,unit,price_usd,region_cloud,conditions,date,source\n"
RI = "aws-ec2-reserved,g4dn.xlarge standard RI 1y no upfront,USD per hour,{price},us-east-1,"
RI += "on-demand then {then},{day},s\n"


def test_the_packaged_table_is_typed(catalog: Catalog) -> None:
    """Published figures arrive in their own type, with source and date; a month counts from its first day."""
    managed = catalog.managed
    rates = {(rate.cloud, rate.instance_type): rate.dbu_per_instance_hour for rate in managed.dbu_rates}
    assert rates["aws", "g4dn.xlarge"] == Decimal("0.71")
    jobs = {price.cloud: price for price in managed.dbu_prices if price.sku == "Jobs Compute"}
    assert {cloud: price.usd_per_dbu for cloud, price in jobs.items()} == {
        "aws": Decimal("0.15"), "azure": Decimal("0.3"), "gcp": Decimal("0.15"),
    }  # fmt: skip
    assert jobs["aws"].source.read_on == date(2026, 4, 1)
    ml = {price.instance_type: price.usd_per_instance_hour for price in managed.ml_instances}
    assert ml["g5.2xlarge"] == Decimal("1.515")
    tokens = {(price.model, price.kind): price.usd_per_million_tokens for price in managed.tokens}
    assert tokens["meta.llama3-1-8b-instruct-v1:0", "input"] == Decimal("0.22")
    assert tokens["Llama 3.1 8B", "output"] == Decimal("0.45")
    assert managed.customisation[0].usd_per_million_tokens == 1
    assert {one.commitment_months for one in managed.provisioned} == {0, 1, 6}
    assert all(price.source.text for price in (*managed.tokens, *managed.dbu_rates, *managed.reserved))


def test_committed_prices_become_offers(catalog: Catalog) -> None:
    """A reservation of a machine in the catalog is an offer of it, below its on-demand price."""
    offers = {(o.instance_type, o.region, o.purchase): o for o in catalog.offers}
    assert offers["g5.xlarge", "us-east-1", "reserved_1y"].usd_per_instance_hour == Decimal("0.63378")
    assert offers["a3-highgpu-8g", "us-central1", "reserved_3y"].usd_per_instance_hour == Decimal("38.864381")
    for (name, region, purchase), offer in offers.items():
        if purchase.startswith("reserved"):
            assert offer.usd_per_instance_hour < offers[name, region, "on_demand"].usd_per_instance_hour


def test_a_discount_on_a_price_that_moved_is_set_aside(catalog: Catalog) -> None:
    """P4 and P5 reservations were read before the price cut of June 2025: on record, with the reason, and no offers."""
    aside = {one.offer.instance_type for one in catalog.quarantined}
    assert aside == {"p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge"}
    assert all("when on-demand was $" in one.why for one in catalog.quarantined)
    sold = {o.instance_type for o in catalog.offers if o.provider == "aws" and o.purchase.startswith("reserved")}
    assert not aside & sold


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a small snapshot (on-demand g4dn.xlarge in us-east-1 at 0.526)."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "small"))


def test_a_folder_s_own_table_wins(folder: Path) -> None:
    """A snapshot with its own managed prices has those alone; one without has the packaged ones and only its offers."""
    assert not any(o.purchase.startswith("reserved") for o in load_catalog(folder).offers)
    assert load_catalog(folder).managed.tokens
    (folder / "managed_prices.csv").write_text(HEADER + RI.format(price=0.33, then=0.526, day="2026-07"), "utf-8")
    catalog = load_catalog(folder)
    assert catalog.managed.tokens == ()
    [reserved] = [o for o in catalog.offers if o.purchase == "reserved_1y"]
    assert (reserved.usd_per_instance_hour, reserved.read_on) == (Decimal("0.33"), date(2026, 7, 1))


@pytest.mark.parametrize(("price", "then", "why"), [(0.6, 0.526, "not below"), (0.3, 0.6, "when on-demand was $0.6")])
def test_committed_prices_that_make_no_sense_are_set_aside(folder: Path, price: float, then: float, why: str) -> None:
    """Above today's on-demand price, or against another on-demand price: out, with the reason."""
    (folder / "managed_prices.csv").write_text(HEADER + RI.format(price=price, then=then, day=""), "utf-8")
    [aside] = load_catalog(folder).quarantined
    assert why in aside.why


FAULTS = [
    ("google,x,USD per DBU,1,aws,,,s", "platform", "not one of"),
    ("databricks,Jobs,USD per DBU,0,aws,,,s", "price_usd", "not above zero"),
    ("databricks,Jobs,USD per DBU,1,aws,,2026-13,s", "date", "not a date"),
    ("aws-bedrock,some model,USD per 1M tokens,1,us regions,,,s", "sku", "not written as its unit expects"),
    ("aws-bedrock,batch inference discount,fraction off on-demand token price,1.5,all,,,s", "price_usd", "fraction"),
    ("databricks,Jobs,USD per DBU,1,aws,,,", "source", "blank"),
]


@pytest.mark.parametrize(("line", "column", "why"), FAULTS)
def test_faults_are_named(folder: Path, line: str, column: str, why: str) -> None:
    """A row that cannot be used is named with file, line and column."""
    (folder / "managed_prices.csv").write_text(HEADER + line + "\n", "utf-8")
    with pytest.raises(CatalogError, match=rf"managed_prices.csv, line 2, column '{column}'.*{why}"):
        load_catalog(folder)


@pytest.mark.parametrize(
    ("provider", "name", "quantum_s", "minimum_s"),
    [("aws", "g5.xlarge", 1, 60), ("azure", "Standard_NC4as_T4_v3", 1, 300), ("lambda", "gpu_1x_a10", 60, 60),
     ("oci", "BM.GPU.A10.4", 1, 3600), ("oci", "VM.GPU.A10.1", 1, 60)],
)  # fmt: skip
def test_billing_rules(catalog: Catalog, provider: str, name: str, quantum_s: float, minimum_s: float) -> None:
    """Rounding as the providers state it, the more specific pattern first; None where no source says."""
    rule = catalog.billing_rule(provider, name)
    assert rule is not None
    assert (rule.quantum_s, rule.minimum_s) == (quantum_s, minimum_s)
    assert catalog.billing_rule("nebius", "gpu-h100-sxm") is None
