"""Filtering, sorting and describing."""

from __future__ import annotations

import json

import pytest

from tonnage.catalog import (
    Catalog,
    describe,
    filter_accelerators,
    filter_instance_types,
    filter_offers,
    parse_gpu_filter,
    usd_per_gpu_hour,
)
from tonnage.errors import CatalogError, InputError, UnknownAccelerator, UnknownInstanceType


def test_offers_by_gpu_provider_region_and_price(catalog: Catalog) -> None:
    """All conditions hold for what is found, and nothing that holds them is left out."""
    found = filter_offers(
        catalog,
        gpu=parse_gpu_filter("A100:8"),
        providers=["aws", "gcp"],
        regions=["us-east-1", "us-central1"],
        purchases=["on_demand"],
    )
    assert {offer.instance_type for offer in found} == {
        "p4d.24xlarge", "p4de.24xlarge", "a2-highgpu-8g", "a2-ultragpu-8g",
    }  # fmt: skip
    prices = [offer.usd_per_instance_hour for offer in found]
    assert prices == sorted(prices)
    cheap = filter_offers(catalog, gpu=parse_gpu_filter("T4"), max_usd_per_gpu_hour=0.2, purchases=["spot"])
    assert cheap
    assert all((usd_per_gpu_hour(catalog, offer) or 1) <= 0.2 for offer in cheap)


def test_one_price_everywhere_is_in_every_region(catalog: Catalog) -> None:
    """An offer without a region matches any region, and an area only if its provider has one there."""
    wanted = parse_gpu_filter("H100:8")
    assert "lambda" in {offer.provider for offer in filter_offers(catalog, gpu=wanted, regions=["eu-north1"])}
    swiss = {offer.provider for offer in filter_offers(catalog, gpu=wanted, areas=["ch"])}
    assert swiss == {"oci"}


def test_areas_and_countries_hold_residency(catalog: Catalog) -> None:
    """Area `eu` and country `nl` leave only regions that stand there."""
    for areas, inside in ((["eu"], {"europe-west1", "europe-west4"}), (["nl"], {"europe-west4"})):
        found = filter_offers(catalog, gpu=parse_gpu_filter("L4"), providers=["gcp"], areas=areas)
        assert {offer.region for offer in found} == inside


def test_sorting_puts_the_unknown_last(catalog: Catalog) -> None:
    """Both directions sort the known figures and keep the unknown ones at the end."""
    for descending in (False, True):
        bandwidths = [
            device.memory_bandwidth_gb_per_s
            for device in filter_accelerators(catalog, sort_by="memory_bandwidth_gb_per_s", descending=descending)
        ]
        known = [figure for figure in bandwidths if figure is not None]
        assert known == sorted(known, reverse=descending)
        assert bandwidths[: len(known)] == known
    by_gpu = filter_offers(catalog, providers=["aws"], sort_by="usd_per_gpu_hour")
    figures = [usd_per_gpu_hour(catalog, offer) for offer in by_gpu]
    first_unknown = figures.index(None)
    assert all(figure is None for figure in figures[first_unknown:])


def test_machines_by_size_and_architecture(catalog: Catalog) -> None:
    """A condition on vCPUs leaves out machines whose vCPUs are not known."""
    found = filter_instance_types(catalog, cpu_arch="arm64", min_vcpus=64, min_memory_gib=256)
    assert found
    for instance in found:
        assert instance.cpu_arch == "arm64"
        assert instance.vcpus is not None
        assert instance.vcpus >= 64
    pods = filter_instance_types(catalog, providers=["runpod"])
    assert len(filter_instance_types(catalog, providers=["runpod"], min_vcpus=0.5)) < len(pods)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"sort_by": "colour"}, "usd_per_instance_hour"),
        ({"providers": ["asw"]}, "aws"),
        ({"regions": ["us-est-1"]}, "us-east-1"),
        ({"purchases": ["lease"]}, "on_demand"),
    ],
)
def test_a_wrong_option_is_an_input_error(catalog: Catalog, options: dict[str, object], hint: str) -> None:
    """An unknown provider, region, purchase mode or column is refused with what would work."""
    with pytest.raises(InputError) as refused:
        filter_offers(catalog, **options)  # type: ignore[arg-type]
    assert hint in (refused.value.hint or "")


def test_an_unknown_gpu_in_a_filter_is_refused(catalog: Catalog) -> None:
    """A filter whose name is no device is an error with the nearest names, not an empty list."""
    with pytest.raises(UnknownAccelerator) as refused:
        filter_offers(catalog, gpu=parse_gpu_filter("H10O:8"))
    assert "H100-SXM" in refused.value.suggestions


def test_description_of_a_machine_has_the_keys_others_read(catalog: Catalog) -> None:
    """`catalog show` of p5.48xlarge in JSON: the promised keys, the figures, each offer with its source."""
    plain = json.loads(json.dumps(describe(catalog, "p5.48xlarge").as_dict()))
    expected = {
        "provider": "aws", "instance_type": "p5.48xlarge", "gpu": "H100-SXM", "gpu_count": 8,
        "gpu_memory_gib": 640, "vcpus": 192, "memory_gib": 2048, "network_gbit_per_s": 3200,
        "cpu_arch": "x86_64",
    }  # fmt: skip
    assert {key: plain[key] for key in expected} == expected
    assert plain["schema"] == "tonnage/catalog-show@1"
    assert plain["scale_up"]["name"] == "nvlink4"
    assert plain["accelerator"]["memory_bandwidth_gb_per_s"] == 3350
    offer = next(o for o in plain["offers"] if (o["region"], o["purchase"]) == ("us-east-1", "on_demand"))
    assert offer["usd_per_instance_hour"] == 55.04
    assert offer["read_on"] == "2026-07-20"
    assert offer["source"]


def test_description_of_a_device_names_its_machines(catalog: Catalog) -> None:
    """A device is described with every machine and offer that has it."""
    described = describe(catalog, "gh200")
    assert [machine.name for machine in described.machines] == ["gpu_1x_gh200"]
    assert [offer.instance_type for offer in described.offers] == ["gpu_1x_gh200"]
    assert described.as_dict()["gpu"] == "GH200"
    assert described.sources


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("p5.24xlarge", UnknownInstanceType, "does not exist"),
        ("H10O", UnknownAccelerator, "no accelerator"),
        ("H100", UnknownAccelerator, "several"),
        ("c7g.13xlarge", UnknownInstanceType, "no instance type"),
    ],
)
def test_an_unknown_name_gets_the_nearer_answer(catalog: Catalog, name: str, error: type[Exception], said: str) -> None:
    """The error is about machines or devices, whichever the name is nearer to."""
    with pytest.raises(error, match=said):
        describe(catalog, name)


def test_an_unknown_link_is_a_catalog_error(catalog: Catalog) -> None:
    """No link is None; a name that no table has is an error, not another link."""
    assert catalog.link("") is None
    with pytest.raises(CatalogError):
        catalog.link("nvlink9")


def test_sort_keys_may_be_everyday_words(catalog: Catalog) -> None:
    """`price` and `memory` sort like the keys they stand for; an unknown word names the keys."""
    by_word = filter_offers(catalog, sort_by="price")
    assert by_word == filter_offers(catalog, sort_by="usd_per_instance_hour")
    assert filter_accelerators(catalog, sort_by="memory") == filter_accelerators(catalog, sort_by="memory_gib")
    with pytest.raises(InputError, match="cannot sort by 'colour'"):
        filter_accelerators(catalog, sort_by="colour")
