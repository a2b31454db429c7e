"""The packaged tables: how much they hold, that each row has a source, that published facts stand in them."""

from __future__ import annotations

import csv
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from tonnage.catalog import Catalog, load_aliases
from tonnage.errors import UnknownInstanceType
from tonnage.sizing.devices import LANES

FACTS = os.environ.get("TONNAGE_FACTS")

IN_PLANNING_DOCUMENTS = [
    "c7g.xlarge", "c7g.2xlarge", "c7g.4xlarge", "c7g.8xlarge", "c7g.12xlarge", "c7g.16xlarge",
    "c7gn.xlarge", "m7g.medium", "r7g.xlarge", "g4dn.xlarge", "g4dn.2xlarge", "g5.24xlarge", "g5.48xlarge",
    "p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge",
    "a2-highgpu-1g", "a2-highgpu-8g", "a2-ultragpu-8g", "a3-highgpu-8g", "a3-megagpu-8g",
    "n1-standard-4+1xT4", "n1-standard-8+1xV100", "n1-standard-16+8xV100", "NC24ads_A100_v4", "NC4as_T4_v3",
    "NC6s_v3", "Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4",
]  # fmt: skip

# instance type: accelerator, devices, vCPUs, memory GiB, GPU memory GiB. Checked 2026-11-20 against
# SpareCores e8749be, karpenter-provider-aws 1d92708, karpenter-provider-azure 352646f,
# karpenter-provider-gcp 417f047, gpuhunt 3584152
SHAPES = [
    ("p5.4xlarge", "H100-SXM", 1, 16, 256, 80),
    ("p5.48xlarge", "H100-SXM", 8, 192, 2048, 640),
    ("p4d.24xlarge", "A100-40GB-SXM", 8, 96, 1152, 320),
    ("Standard_NC40ads_H100_v5", "H100-NVL", 1, 40, 320, 94),
    ("Standard_NC80adis_H100_v5", "H100-NVL", 2, 80, 640, 188),
    ("Standard_ND96isr_H100_v5", "H100-SXM", 8, 96, 1900, 640),
    ("Standard_NC48ads_A100_v4", "A100-80GB-PCIe", 2, 48, 440, 160),
    ("Standard_NC96ads_A100_v4", "A100-80GB-PCIe", 4, 96, 880, 320),
    ("Standard_ND96asr_v4", "A100-40GB-SXM", 8, 96, 900, 320),
    ("Standard_NC24s_v3", "V100-16GB", 4, 24, 448, 64),
    ("Standard_NC24rs_v3", "V100-16GB", 4, 24, 448, 64),
    ("Standard_NC64as_T4_v3", "T4", 4, 64, 440, 64),
    ("Standard_NC4as_T4_v3", "T4", 1, 4, 28, 16),
    ("Standard_NV72ads_A10_v5", "A10", 2, 72, 880, 48),
    ("a3-highgpu-8g", "H100-SXM", 8, 208, 1872, 640),
    ("a2-ultragpu-8g", "A100-80GB-SXM", 8, 96, 1360, 640),
    ("a2-highgpu-1g", "A100-40GB-SXM", 1, 12, 85, 40),
    ("n1-standard-16+8xV100", "V100-16GB", 8, 16, 60, 128),
    ("gpu-h100x1-80gb", "H100-SXM", 1, 20, 240, 80),
    ("gpu-h100x8-640gb", "H100-SXM", 8, 160, 1920, 640),
    ("g5.24xlarge", "A10G", 4, 96, 384, 96),
    ("c7g.12xlarge", None, 0, 48, 96, None),
]
PRICES = [  # instance type, region, on-demand USD/h, from the same check
    ("p4d.24xlarge", "us-east-1", "21.957642"),
    ("p5.48xlarge", "us-east-1", "55.04"),
    ("p4de.24xlarge", "us-east-1", "27.44705"),
    ("p5en.48xlarge", "us-east-1", "63.296"),
    ("g4dn.xlarge", "us-east-1", "0.526"),
    ("g4dn.2xlarge", "us-east-1", "0.752"),
    ("p3.2xlarge", "us-east-1", "3.06"),
    ("p3.8xlarge", "us-east-1", "12.24"),
    ("n1-standard-4+1xT4", "us-central1", "0.539999"),
    ("a2-highgpu-1g", "us-central1", "3.673385"),
    ("a2-highgpu-8g", "us-central1", "29.38708"),
    ("Standard_NC4as_T4_v3", "eastus", "0.526"),
    ("Standard_NC6s_v3", "eastus", "3.06"),
    ("Standard_NC6s_v3", "northeurope", "3.305"),
    ("Standard_NC24ads_A100_v4", "eastus", "3.673"),
    ("Standard_NC24ads_A100_v4", "northeurope", "4.408"),
    ("gpu-h100x8-640gb", "nyc1", "23.92"),
    ("gpu-h100x1-80gb", "tor1", "6.74"),
    ("c7g.12xlarge", "us-east-1", "1.74"),
]
DO_NOT_EXIST = [  # name as documents have it, one that exists instead
    ("p5.24xlarge", "p5.48xlarge"),
    ("Standard_NC96ads_H100_v5", "Standard_ND96isr_H100_v5"),
    ("NC H100 v5", "Standard_NC80adis_H100_v5"),
    ("NC A100 v4", "Standard_NC96ads_A100_v4"),
    ("NC T4 v3", "Standard_NC64as_T4_v3"),
    ("NV A10 v5", "Standard_NV72ads_A10_v5"),
    ("gd-8vcpu-32gb-nvidia-h100x1", "gpu-h100x1-80gb"),
    ("gd-16vcpu-64gb-nvidia-h100x8", "gpu-h100x8-640gb"),
    ("gd-8vcpu-32gb-nvidia-a100x1", "gpu-h100x1-80gb"),
    ("gd-16vcpu-64gb-nvidia-a100x8", "gpu-h100x8-640gb"),
    ("n1-standard-4", "n1-standard-4+1xT4"),
    ("n1-standard-16 + 1x V100", "n1-standard-16+2xV100"),
]
DEVICES = [  # device, field, figure: NVIDIA and AMD data sheets, dense rates
    ("T4", "memory_bandwidth_gb_per_s", 320),
    ("T4", "dense_fp16_tflops", 65),
    ("V100-16GB", "dense_fp16_tflops", 125),
    ("A100-80GB-SXM", "dense_bf16_tflops", 312),
    ("A100-80GB-SXM", "memory_bandwidth_gb_per_s", 2039),
    ("H100-SXM", "memory_bandwidth_gb_per_s", 3350),
    ("H100-PCIe", "memory_bandwidth_gb_per_s", 2000),
    ("H100-SXM", "dense_bf16_tflops", 989.4),
    ("A10", "memory_gib", 24),
    ("A10G", "dense_bf16_tflops", 70),
    ("B200", "dense_bf16_tflops", 2250),
    ("MI300X", "memory_gib", 192),
    ("H200", "usable_memory_gib", 143771 / 1024),
    ("T4", "usable_memory_gib", 15.0),
]


def test_the_catalog_is_large_enough(catalog: Catalog) -> None:
    """At least 350 machines and 700 offers over all nine providers, T4 to B200, MI300X, TPU and Trainium."""
    assert len(catalog.instance_types) >= 350
    assert len(catalog.offers) >= 700
    providers = {"aws", "gcp", "azure", "digitalocean", "lambda", "runpod", "nebius", "oci", "ovh"}
    assert {provider.name for provider in catalog.providers} == providers
    assert {instance.provider for instance in catalog.instance_types} == providers
    assert {"T4", "B200", "MI300X", "TPU-v6e", "Trainium2"} <= {device.name for device in catalog.accelerators}


@pytest.mark.parametrize("name", IN_PLANNING_DOCUMENTS)
def test_machines_of_planning_documents_are_there(catalog: Catalog, name: str) -> None:
    """Every real machine that the planning documents name is found, with `Standard_` or without."""
    assert catalog.instance_type(name).name.endswith(name)


@pytest.mark.parametrize(("name", "device", "count", "vcpus", "memory", "gpu_memory"), SHAPES)
def test_machine_shapes_are_the_checked_ones(
    catalog: Catalog,
    name: str,
    device: str | None,
    count: int,
    vcpus: int,
    memory: int,
    gpu_memory: int | None,
) -> None:
    """Devices, vCPUs and memory agree exactly with the checked facts."""
    found = catalog.instance_type(name)
    assert (found.accelerator, found.accelerator_count) == (device, count)
    assert (found.vcpus, found.memory_gib, found.gpu_memory_gib) == (vcpus, memory, gpu_memory)


@pytest.mark.parametrize(("name", "region", "usd"), PRICES)
def test_prices_are_the_checked_ones(catalog: Catalog, name: str, region: str, usd: str) -> None:
    """On-demand prices stand as printed by their source."""
    offers = catalog.offers_of(catalog.instance_type(name))
    assert [o.usd_per_instance_hour for o in offers if (o.region, o.purchase) == (region, "on_demand")] == [
        Decimal(usd)
    ]


@pytest.mark.parametrize(("name", "instead"), DO_NOT_EXIST)
def test_mistaken_names_get_the_helpful_answer(catalog: Catalog, name: str, instead: str) -> None:
    """A name that no provider sells is refused, saying that it does not exist and what does."""
    with pytest.raises(UnknownInstanceType, match="does not exist") as refused:
        catalog.instance_type(name)
    assert instead in refused.value.suggestions
    assert instead in (refused.value.hint or "")


def test_what_mistaken_names_point_at_exists(catalog: Catalog) -> None:
    """Every machine that the table of mistakes recommends is in the catalog, at the same provider."""
    for mistake in catalog.mistaken_names:
        for name in mistake.what_exists:
            assert catalog.instance_type(name).provider == mistake.provider


@pytest.mark.parametrize(("name", "figure", "value"), DEVICES)
def test_device_figures_are_the_published_ones(catalog: Catalog, name: str, figure: str, value: float) -> None:
    """Spec-sheet figures agree within rounding (0.1 %)."""
    assert getattr(catalog.accelerator(name), figure) == pytest.approx(value, rel=1e-3)


def test_every_row_has_a_source_and_no_date_lies_ahead(catalog: Catalog) -> None:
    """Each device, link, processor, machine and offer names its source, read no later than the snapshot."""
    rows = (*catalog.accelerators, *catalog.links, *catalog.cpus, *catalog.instance_types, *catalog.offers)
    for row in rows:
        assert row.source.text
        assert row.source.read_on is None or row.source.read_on <= catalog.built_on
    for instance in catalog.instance_types:
        assert bool(instance.network_source) == (instance.network_gbit_per_s is not None), instance.name
    for device in catalog.accelerators:
        assert bool(device.usable_memory_source) == (device.usable_memory_gib is not None), device.name
        assert bool(device.boost_clock_source) == (device.boost_clock_mhz is not None), device.name


def test_links_fit_what_they_connect(catalog: Catalog) -> None:
    """A node link joins several devices, a network joins nodes, and none is faster than what is sold."""
    assert sum(one.scale_up is not None for one in catalog.instance_types) > 10
    assert sum(one.scale_out is not None for one in catalog.instance_types) > 10
    for instance in catalog.instance_types:
        inside, outside = catalog.link(instance.scale_up), catalog.link(instance.scale_out)
        if inside is not None:
            assert inside.scope == "intra-node", instance.name
            assert instance.accelerator_count > 1, instance.name
        if outside is not None:
            assert outside.scope == "inter-node", instance.name
            assert outside.peak_gb_per_s is not None
            assert instance.network_gbit_per_s is not None
            assert outside.peak_gb_per_s * 8 <= instance.network_gbit_per_s * 1.001, instance.name


LINKS = [
    ("p4d.24xlarge", "nvlink3", "efa-400"),
    ("p5.48xlarge", "nvlink4", "efa-3200"),
    ("p3.16xlarge", "nvlink2", "ethernet-25"),
    ("g5.48xlarge", "pcie4", "efa-100"),
    ("g4dn.12xlarge", "pcie3", "ethernet-50"),
    ("Standard_NC48ads_A100_v4", "nvlink3-bridge", "ethernet-40"),
    ("Standard_NC96ads_A100_v4", "nvlink3-bridge-pairs", "ethernet-80"),
    ("Standard_NC80adis_H100_v5", "nvlink4-bridge", "ethernet-80"),
    ("Standard_NC24s_v3", "pcie3", ""),
    ("Standard_ND96amsr_A100_v4", "nvlink3", "infiniband-1600"),
    ("Standard_ND96isr_H100_v5", "nvlink4", "infiniband-3200"),
    ("a3-highgpu-8g", "nvlink4", "gpudirect-tcpx-800"),
    ("a3-ultragpu-8g", "nvlink4", "roce-3200"),
    ("BM.GPU4.8", "nvlink3", "roce-1600"),
    ("a2-highgpu-1g", "", ""),
]


@pytest.mark.parametrize(("name", "inside", "outside"), LINKS)
def test_well_known_machines_have_their_links(catalog: Catalog, name: str, inside: str, outside: str) -> None:
    """NVLink generation by SXM generation, PCIe for the rest, bridges in Azure's NC sizes."""
    machine = catalog.instance_type(name)
    assert (machine.scale_up, machine.scale_out) == (inside, outside)


def test_aliases_are_unambiguous_outside_everyday_use(catalog: Catalog) -> None:
    """In a table's own vocabulary one name means one device; only loose everyday names mean several."""
    names = {device.name for device in catalog.accelerators}
    counts = Counter((alias.vocabulary, alias.alias.casefold()) for alias in load_aliases())
    assert all(alias.accelerator in names for alias in load_aliases())
    several = {name for (vocabulary, name), count in counts.items() if count > 1 and vocabulary != "any"}
    assert several == set()


def test_every_region_with_a_price_stands_somewhere(catalog: Catalog) -> None:
    """Residency can be decided for each priced region, and providers' areas are those of their regions."""
    for offer in catalog.offers:
        assert not offer.region or catalog.region(offer.provider, offer.region) is not None, offer
    for provider in catalog.providers:
        areas = {region.area for region in catalog.regions if region.provider == provider.name}
        assert set(provider.areas) == areas


def test_graviton_families_have_their_processor(catalog: Catalog) -> None:
    """Arm machines of AWS name their Graviton generation."""
    for name, cpu in [("c7g.xlarge", "Graviton3"), ("c7gn.xlarge", "Graviton3E"), ("r8g.large", "Graviton4"),
                      ("g5g.xlarge", "Graviton2")]:  # fmt: skip
        found = catalog.cpu_of(catalog.instance_type(name))
        assert found is not None
        assert (found.name, found.arch) == (cpu, "arm64")


def test_tables_are_sorted() -> None:
    """The snapshot's rows are in order, so that a new snapshot differs only where a price does."""
    folder = Path(__file__).parents[2] / "src/tonnage/catalog/data/snapshots/2026-11-20"
    for file, columns in (("instances.csv", 2), ("offers.csv", 4)):
        with (folder / file).open(encoding="utf-8", newline="") as table:
            keys = [row[:columns] for row in list(csv.reader(table))[1:]]
        assert keys == sorted(keys)


# The table composes an on-demand price for these from list prices and notes that they are sold as Spot only.
NOT_SOLD = {("on_demand", f"a3-highgpu-{count}g") for count in (1, 2, 4)}


@pytest.mark.skipif(FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_prices_agree_with_the_fact_table(catalog: Catalog) -> None:
    """Every price of the fact table that is charged is in the catalog unchanged, and no other (but committed ones)."""
    with (Path(FACTS or "") / "offers.csv").open(encoding="utf-8", newline="") as table:
        facts = list(csv.DictReader(table))
    expected: Counter[tuple[str, str, str, Decimal]] = Counter()
    for row in facts:
        for purchase, column in (("on_demand", "price_ondemand_usd_h"), ("spot", "price_spot_usd_h")):
            if row[column] and (purchase, row["instance_type"]) not in NOT_SOLD:
                expected[row["provider"], row["instance_type"], purchase, Decimal(row[column])] += 1
    found = Counter(
        (o.provider, o.instance_type, o.purchase, o.usd_per_instance_hour)
        for o in catalog.offers
        if o.purchase in ("on_demand", "spot")
    )
    assert found == expected


@pytest.mark.parametrize(
    ("name", "multiprocessors"),
    [
        ("V100-16GB", 80), ("V100-PCIe-16GB", 80), ("T4", 40), ("A100-80GB-SXM", 108), ("A30", 56), ("A10", 72),
        ("A40", 84), ("RTX-3090", 82), ("RTX-4090", 128), ("L4", 58), ("L40S", 142), ("H100-PCIe", 114),
        ("H100-SXM", 132), ("H200", 132), ("RTX-5090", 170),
    ],
)  # fmt: skip
def test_clocks_agree_with_published_rates(catalog: Catalog, name: str, multiprocessors: int) -> None:
    """32-bit rate over two operations a lane and cycle is the number of multiprocessors that NVIDIA states, to 2 %."""
    device = catalog.accelerator(name)
    assert device.boost_clock_mhz
    assert device.dense_fp32_tflops
    per_clock = device.dense_fp32_tflops * 1e6 / device.boost_clock_mhz
    assert per_clock / (2 * LANES[device.compute_capability or ""]) == pytest.approx(multiprocessors, rel=0.02)


def test_what_is_not_sold_on_demand_has_no_such_price(catalog: Catalog) -> None:
    """Google sells A3 High below eight GPUs as Spot or Flex-start alone: a sum of list prices is no offer."""
    for name in ("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"):
        assert {offer.purchase for offer in catalog.offers_named("gcp", name)} == {"spot"}
    assert "on_demand" in {offer.purchase for offer in catalog.offers_named("gcp", "a3-highgpu-8g")}
