"""DigitalOcean's sizes: those that become offers, those that are quarantined."""

from __future__ import annotations

from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.sources import (
    DigitalOceanSource,
    Web,
)

from .conftest import DAY, prices, quarantined


def digitalocean(server: Any, web: Web, catalog: Catalog) -> DigitalOceanSource:
    return DigitalOceanSource(known=catalog, web=web, token="t0ken", read_on=DAY, base_url=server.url)


def test_digitalocean_sizes_become_offers(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """A price in every region a size is sold in, over two pages; new GPU sizes are described from the listing."""
    size = shapes.do_size
    server.sizes = [
        size("gpu-h100x1-80gb", 4.41),
        size("s-1vcpu-1gb", 0.009, gpu_info=None),
        size("gpu-mi300x1-192gb", 2.59, gpu_info={"count": 1, "vram": {"amount": 192}, "model": "amd_mi300x"}),
        size("gpu-l40sx1-48gb", 1.57, available=False),
    ]
    result = digitalocean(server, web, catalog).fetch()
    assert prices(result) == {
        (name, region, "on_demand"): Decimal(price)
        for name, price in (("gpu-h100x1-80gb", "4.41"), ("gpu-mi300x1-192gb", "2.59"))
        for region in ("tor1", "nyc1")
    }
    new = next(machine for machine in result.instances if machine.name == "gpu-mi300x1-192gb")
    assert (new.accelerator, new.accelerator_count, new.gpu_memory_gib, new.memory_gib) == ("MI300X", 1, 192, 240)
    assert dict(result.report.dropped) == {
        "a machine without devices that the catalog does not hold": 1,
        "not to be had now": 1,
    }
    assert "t0ken" not in "".join(server.asked)
    assert "t0ken" not in repr(digitalocean(server, web, catalog))


DO_FAULTS: list[tuple[object, dict[str, object], str]] = [
    (0, {}, "the price is not above zero"),
    ("free", {}, "the price is not a number"),
    (2.0, {"gpu_info": {"count": 1, "model": "nvidia_z99"}}, "accelerator not in our table: Z99"),
    (2.0, {"gpu_info": {"count": 0, "model": "nvidia_h100"}}, "count is not a figure above zero"),
    (2.0, {"gpu_info": [1]}, "gpu_info is not an object"),
    (2.0, {"gpu_info": {"count": 1, "vram": {"amount": 24}, "model": "nvidia_h100"}},
     "GPU memory 24 GiB is not 1 x H100-SXM"),
    (2.0, {"regions": "everywhere"}, "regions is not a list of texts"),
    (2.0, {"memory": "lots"}, "memory is not a figure above zero"),
]  # fmt: skip


@pytest.mark.parametrize(("price", "changes", "reason"), DO_FAULTS)
def test_bad_sizes_are_quarantined(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, price: object, changes: dict[str, object], reason: str
) -> None:
    """The bad size is kept aside with the reason; the good one is used."""
    server.sizes.append(shapes.do_size("gpu-new", price, **changes))
    result = digitalocean(server, web, catalog).fetch()
    assert quarantined(result) == {reason: 1}
    assert {offer.instance_type for offer in result.offers} == {"gpu-h100x1-80gb"}
