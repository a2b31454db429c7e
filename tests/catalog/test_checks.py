"""check_catalog finds planted errors and says little about the packaged rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cache

import pytest

from tonnage.catalog import Catalog, CatalogFinding, InstanceType, Offer, check_catalog, load_catalog

TODAY = date(2026, 11, 20)


def with_rows(
    catalog: Catalog,
    *,
    offers: tuple[Offer, ...] | None = None,
    instance_types: tuple[InstanceType, ...] | None = None,
) -> Catalog:
    return Catalog(
        name=catalog.name,
        built_on=catalog.built_on,
        sources=catalog.sources,
        notes=catalog.notes,
        accelerators=catalog.accelerators,
        instance_types=catalog.instance_types if instance_types is None else instance_types,
        offers=catalog.offers if offers is None else offers,
        links=catalog.links,
        cpus=catalog.cpus,
        providers=catalog.providers,
        regions=catalog.regions,
        mistaken_names=catalog.mistaken_names,
    )


def planted(catalog: Catalog, name: str, region: str, purchase: str, **changes: object) -> Catalog:
    """The catalog with one offer changed."""
    offers = list(catalog.offers)
    [index] = [i for i, o in enumerate(offers) if (o.instance_type, o.region, o.purchase) == (name, region, purchase)]
    offers[index] = replace(offers[index], **changes)  # type: ignore[arg-type]
    return with_rows(catalog, offers=tuple(offers))


@cache
def sound(snapshot: str, **options: int) -> set[CatalogFinding]:
    """What the check says of the packaged catalog; worked out once for all that is planted in it."""
    packaged = load_catalog()
    assert packaged.name == snapshot
    return set(check_catalog(packaged, as_of=TODAY, **options))


def new_findings(catalog: Catalog, spoiled: Catalog, **options: int) -> list[CatalogFinding]:
    """What the check says of the spoiled catalog and not of the sound one."""
    before = sound(catalog.name, **options)
    return [finding for finding in check_catalog(spoiled, as_of=TODAY, **options) if finding not in before]


PRICES = [  # name, region, purchase
    ("g4dn.xlarge", "us-east-1", "on_demand"),
    ("g4dn.16xlarge", "us-east-1", "on_demand"),
    ("p5.48xlarge", "us-east-1", "on_demand"),
    ("p4d.24xlarge", "us-east-1", "spot"),
    ("gpu_8x_h100_sxm5", "", "on_demand"),
    ("a2-highgpu-8g", "us-central1", "on_demand"),
    ("Standard_NC24ads_A100_v4", "eastus", "on_demand"),
    ("c7g.4xlarge", "us-east-1", "on_demand"),
    ("g2-standard-32", "us-central1", "spot"),
]


@pytest.mark.parametrize("factor", ["4", "0.25"])
@pytest.mark.parametrize(("name", "region", "purchase"), PRICES)
def test_a_price_four_times_off_is_found(catalog: Catalog, name: str, region: str, purchase: str, factor: str) -> None:
    """A price four times too high or too low is named, with the figure and about what it should be."""
    [price] = {
        o.usd_per_instance_hour
        for o in catalog.offers
        if (o.instance_type, o.region, o.purchase) == (name, region, purchase)
    }
    spoiled = planted(catalog, name, region, purchase, usd_per_instance_hour=price * Decimal(factor))
    found = [f for f in new_findings(catalog, spoiled) if name in f.subject]
    assert found
    assert any(str(price * Decimal(factor)) in finding.figure for finding in found)


def test_most_planted_prices_are_found(catalog: Catalog) -> None:
    """Of every 20th offer planted four times too high, at least nine in ten are named."""
    rows = catalog.offers[::20]
    hits = 0
    for row in rows:
        changed = {"usd_per_instance_hour": row.usd_per_instance_hour * 4}
        hits += bool(new_findings(catalog, planted(catalog, row.instance_type, row.region, row.purchase, **changed)))
    assert hits >= 0.9 * len(rows)


def test_a_stale_price_is_found_by_its_age(catalog: Catalog) -> None:
    """A price older than the limit is named with its age; at the limit it is not."""
    old = TODAY - timedelta(days=181)
    spoiled = planted(catalog, "g2-standard-8", "us-central1", "on_demand", read_on=old)
    [finding] = new_findings(catalog, spoiled, max_age_days=180)
    assert finding.subject == "gcp g2-standard-8 us-central1 on_demand"
    assert "181 days" in finding.figure
    assert new_findings(catalog, spoiled, max_age_days=181) == []


def test_a_price_from_the_future_is_an_error(catalog: Catalog) -> None:
    """A read date after the day of the check is an error."""
    spoiled = planted(catalog, "g2-standard-8", "us-central1", "on_demand", read_on=TODAY + timedelta(days=1))
    assert [finding.severity for finding in new_findings(catalog, spoiled)] == ["error"]


def test_gpu_memory_against_the_device_is_found(catalog: Catalog) -> None:
    """A machine whose GPU memory disagrees with its devices is an error that says both figures."""
    machines = tuple(
        replace(i, gpu_memory_gib=640.0) if i.name == "p4d.24xlarge" else i for i in catalog.instance_types
    )
    [finding] = new_findings(catalog, with_rows(catalog, instance_types=machines))
    assert (finding.severity, finding.subject) == ("error", "aws p4d.24xlarge")
    assert (finding.figure, finding.expected) == ("640 GiB", "320 GiB")


def test_an_absurd_ratio_is_found(catalog: Catalog) -> None:
    """A memory in MiB instead of GiB stands out against the vCPUs."""
    machines = tuple(replace(i, memory_gib=16384.0) if i.name == "g4dn.xlarge" else i for i in catalog.instance_types)
    [finding] = new_findings(catalog, with_rows(catalog, instance_types=machines))
    assert finding.subject == "aws g4dn.xlarge"


def test_duplicates_and_spot_above_on_demand_are_errors(catalog: Catalog) -> None:
    """The same offer twice, and a spot price above on-demand, are errors."""
    offer = next(o for o in catalog.offers if o.instance_type == "g2-standard-8")
    doubled = new_findings(catalog, with_rows(catalog, offers=(*catalog.offers, offer)))
    assert [finding.message for finding in doubled if finding.severity == "error"] == [
        "the same offer occurs in the snapshot several times"
    ]
    spoiled = planted(catalog, "g2-standard-8", "us-central1", "spot", usd_per_instance_hour=Decimal("0.9"))
    assert "spot above on-demand" in {finding.message for finding in new_findings(catalog, spoiled)}


def test_the_packaged_catalog_is_sound(catalog: Catalog) -> None:
    """No error, and prices in doubt are a handful: listed ones that other sources contradict, and spot prices at less
    than a seventh of the on-demand price (undated rows of AWS and Azure)."""
    findings = check_catalog(catalog, as_of=TODAY)
    assert not [finding for finding in findings if finding.severity == "error"]
    doubted = {finding.subject for finding in findings if "suggest" in finding.message}
    steep = {finding.subject for finding in findings if "usual discount of spot" in finding.message}
    assert len(steep) == 31
    assert all(subject.startswith(("aws p3", "azure ")) and subject.endswith(" spot") for subject in steep)
    doubted -= steep
    assert doubted == {
        "azure Standard_ND96isr_H100_v5 eastus spot",
        "azure Standard_NV16as_v4 eastus spot",
        "azure Standard_NV16as_v4 westus2 spot",
        "azure Standard_NV32as_v4 eastus spot",
        "azure Standard_NV32as_v4 westus2 spot",
        "digitalocean gpu-mi300x8-1536gb nyc1 on_demand",
        "lambda gpu_8x_v100 every region on_demand",
        "lambda gpu_8x_v100_n every region on_demand",
    }


def test_errors_come_first(catalog: Catalog) -> None:
    """Findings are ordered by severity, and the same catalog gives the same findings."""
    offer = catalog.offers[0]
    spoiled = with_rows(catalog, offers=(*catalog.offers, offer))
    findings = check_catalog(spoiled, as_of=TODAY)
    ranks = [("error", "warning", "note").index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    assert findings == check_catalog(spoiled, as_of=TODAY)
