"""Measured use -> a cheaper machine that holds it; every cell of the table checked at the door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import WorkloadError
from tonnage.rightsizing import MachineFinding, MachineUsage, parse_usage, rightsize, usage_columns
from tonnage.rightsizing.holding import Lacks, Unfit, broken_limits, usable_gib
from tonnage.rightsizing.rightsize import Where
from tonnage.workload.jobs import Lengths
from tonnage.workload.tables.reading import load_table

from ..planning.conftest import train

HEAD = (
    "provider,instance_type,region,hours_per_month,"
    "gpu_memory_peak_gib,gpu_utilisation_percent,vcpus_peak,memory_peak_gib\n"
)
G5 = "aws,g5.2xlarge,us-east-1,730,3.9,22,2.5,9\n"


def load_usage(path: Path, catalog: Catalog) -> tuple[MachineUsage, ...]:
    return parse_usage(load_table(path, usage_columns(catalog)), str(path), catalog)


def find(text: str, catalog: Catalog, tmp_path: Path, **where: object) -> MachineFinding:
    path = tmp_path / "usage.csv"
    path.write_text(HEAD + text)
    (usage,) = load_usage(path, catalog)
    return rightsize(usage, catalog, Where(**where))  # type: ignore[arg-type]


def test_a_cheaper_machine_holds_everything_measured(catalog: Catalog, tmp_path: Path) -> None:
    """What is proposed is cheaper in the same region, has room for every peak, and saves the price difference."""
    found = find(G5, catalog, tmp_path)
    assert found.action == "move"
    assert found.instance is not None
    assert found.offer is not None
    assert found.offer.region == "us-east-1"
    assert (found.instance.vcpus or 0) >= 3.0
    assert (found.instance.memory_gib or 0) >= 10.8
    assert (usable_gib(catalog.accelerator(found.instance.accelerator or "")) or 0) >= 4.68
    saved = (found.usd_per_hour_now or 0) - float(found.offer.usd_per_instance_hour)
    assert found.saving_usd_per_month == pytest.approx(saved * 730)
    assert found.saving_usd_per_month > 0


def test_every_cheaper_machine_left_out_breaks_something(catalog: Catalog, tmp_path: Path) -> None:
    """Each cheaper machine of the region than the one proposed breaks a limit; the proposed one breaks none."""
    found = find(G5, catalog, tmp_path)
    assert found.offer is not None
    assert found.instance is not None
    tried = 0
    for offer in catalog.offers:
        if (offer.provider, offer.region, offer.purchase) != ("aws", "us-east-1", "on_demand"):
            continue
        instance = catalog.instance_type(offer.instance_type, "aws")
        broken = broken_limits(found.usage, instance, catalog, 0.2)
        if offer.usd_per_instance_hour < found.offer.usd_per_instance_hour:
            assert broken, instance.name
            tried += 1
    assert tried > 5
    assert broken_limits(found.usage, found.instance, catalog, 0.2) == ()
    assert found.cheaper_but
    assert all(one.broken for one in found.cheaper_but)


@pytest.mark.parametrize("peak", ["vcpus_peak", "memory_peak_gib", "gpu_memory_peak_gib", "gpu_utilisation_percent"])
def test_more_use_never_saves_more(catalog: Catalog, tmp_path: Path, peak: str) -> None:
    """Raising a single measured peak never finds a cheaper machine."""
    columns = HEAD.strip().split(",")
    savings = []
    for share in (0.05, 0.3, 0.6, 0.95):
        row = dict(zip(columns, G5.strip().split(","), strict=True))
        most = {"vcpus_peak": 8, "memory_peak_gib": 32, "gpu_memory_peak_gib": 24, "gpu_utilisation_percent": 100}[peak]
        row[peak] = str(most * share)
        savings.append(find(",".join(row.values()) + "\n", catalog, tmp_path).saving_usd_per_month)
    assert savings == sorted(savings, reverse=True)


def test_what_is_not_measured_is_kept(catalog: Catalog, tmp_path: Path) -> None:
    """Empty cells are unknown, never zero: the machine keeps what it has, and the confidence is low."""
    found = find("aws,g5.2xlarge,us-east-1,730,,,,\n", catalog, tmp_path)
    assert (found.action, found.confidence) == ("keep", "low")
    smaller = broken_limits(found.usage, catalog.instance_type("g5.xlarge", "aws"), catalog, 0.2)
    assert {(one.limit, one.needed) for one in smaller if isinstance(one, Lacks)} >= {("vCPUs", 8), ("memory", 32)}
    full = find(G5, catalog, tmp_path)
    assert full.confidence in ("high", "medium")


def test_work_is_not_spread_over_more_gpus(catalog: Catalog, tmp_path: Path) -> None:
    """Two small GPUs are not one large one: rates count over no more GPUs than there are today."""
    found = find("gcp,a2-highgpu-1g,us-central1,300,14,25,4,30\n", catalog, tmp_path)
    four_l4 = broken_limits(found.usage, catalog.instance_type("g2-standard-48", "gcp"), catalog, 0.2)
    (rate,) = [one for one in four_l4 if isinstance(one, Lacks) and one.limit == "memory bandwidth"]
    assert (rate.needed, rate.available) == (pytest.approx(0.25 * 1.2 * 1555), 300)


def test_an_idle_gpu_is_let_go(catalog: Catalog, tmp_path: Path) -> None:
    """Measured at nothing, a GPU is not needed."""
    found = find("aws,g5.2xlarge,us-east-1,730,0,0,1,4\n", catalog, tmp_path, any_region=True)
    assert found.instance is not None
    assert found.usd_per_hour_now is not None
    assert found.saving_usd_per_month > 0
    assert broken_limits(found.usage, found.instance, catalog, 0.2) == ()


def test_a_workload_must_fit_too(catalog: Catalog, tmp_path: Path) -> None:
    """A measured machine that looks idle is not given away when its workload needs more than was measured."""
    path = tmp_path / "usage.csv"
    path.write_text(HEAD + "aws,g5.2xlarge,us-east-1,730,1,1,1,4\n")
    (usage,) = load_usage(path, catalog)
    alone = rightsize(usage, catalog, Where())
    large = train("gpt2-xl", lengths=Lengths(mean=512, maximum=512))  # state alone takes 23 GiB
    with_work = rightsize(usage, catalog, Where(), large)
    assert alone.offer is not None
    assert with_work.offer is None or with_work.offer.usd_per_instance_hour >= alone.offer.usd_per_instance_hour
    assert with_work.saving_usd_per_month < alone.saving_usd_per_month
    assert any(isinstance(broken, Unfit) for one in with_work.cheaper_but for broken in one.broken)


def test_a_missing_price_is_reported(catalog: Catalog) -> None:
    """No price of the machine now: no saving is claimed."""
    usage = MachineUsage(
        name="x", instance=catalog.instance_type("g5.2xlarge", "aws"), region="us-west-2", purchase="reserved_3y",
        hours_per_month=730,
    )  # fmt: skip
    found = rightsize(usage, catalog, Where())
    assert (found.action, found.saving_usd_per_month) == ("no price", 0.0)


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("gpu_utilisation_percent", "-1", "0 to 100"),
        ("gpu_utilisation_percent", "101", "0 to 100"),
        ("vcpus_peak", "NaN", "a number"),
        ("memory_peak_gib", "inf", "a number"),
        ("memory_peak_gib", "-3", "0 or more"),
        ("memory_peak_gib", "9000", "has 32 GiB"),
        ("gpu_memory_peak_gib", "lots", "a number"),
        ("gpu_memory_peak_gib", "15360", "GiB a GPU"),
        ("hours_per_month", "", "is empty"),
        ("hours_per_month", "800", "0 to 744"),
        ("provider", "awss", "found 'awss'"),
        ("instance_type", "g5.2xlrge", "no instance type"),
        ("region", "us-east-9", "no region of aws"),
    ],
)
def test_bad_cells_name_line_and_column(catalog: Catalog, tmp_path: Path, column: str, value: str, told: str) -> None:
    """The error names the file, the line from 1 with the comment counted, the column, and what was expected."""
    row = dict(zip(HEAD.strip().split(","), G5.strip().split(","), strict=True)) | {column: value}
    path = tmp_path / "usage.csv"
    path.write_text("# measured\n" + HEAD + G5 + ",".join(row.values()) + "\n")
    with pytest.raises(WorkloadError) as raised:
        load_usage(path, catalog)
    assert (raised.value.line, raised.value.key) == (4, column)
    assert told in raised.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD.replace("vcpus_peak", "vcpu_peak") + G5, "no column known"),
        (HEAD.replace("provider,", "") + G5, "is missing"),
        (HEAD.replace("region", "provider") + G5, "given twice"),
        (HEAD + "aws,g5.2xlarge\n", "has 2 cells"),
        (HEAD, "holds no row"),
        ("", "is empty"),
        (HEAD + '"aws,g5\n', "cells"),
    ],
)
def test_bad_tables_are_refused(catalog: Catalog, tmp_path: Path, text: str, told: str) -> None:
    """Unknown, missing and repeated columns, short rows, empty files."""
    path = tmp_path / "usage.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=told):
        load_usage(path, catalog)


def test_json_is_the_same_table(catalog: Catalog, tmp_path: Path) -> None:
    """A list of objects reads as the CSV does; its errors name the entry."""
    row = dict(zip(HEAD.strip().split(","), G5.strip().split(","), strict=True))
    numbers = {name: float(value) if value.replace(".", "").isdigit() else value for name, value in row.items()}
    path, other = tmp_path / "usage.json", tmp_path / "usage.csv"
    path.write_text(json.dumps([numbers]))
    other.write_text(HEAD + G5)
    assert load_usage(path, catalog)[0].vcpus_peak == load_usage(other, catalog)[0].vcpus_peak == 2.5
    path.write_text(json.dumps([numbers, numbers | {"vcpus_peak": True}]))
    with pytest.raises(WorkloadError) as raised:
        load_usage(path, catalog)
    assert (raised.value.line, raised.value.key) == (2, "vcpus_peak")
