"""Devices with published figures, for the sizing tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tonnage.catalog.loading import load_catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices, Machine, stack


@pytest.fixture(scope="session")
def devices() -> Callable[..., Devices]:
    """`devices("A100-80GB-SXM", precision="bf16", count=8, link="nvlink3", network=25.0)`: one row of columns."""
    catalog = load_catalog()

    def build(
        name: str, *, precision: str = "bf16", count: int = 1, link: str = "", network: float | None = None
    ) -> Devices:
        machine = Machine(
            accelerator=catalog.accelerator(name),
            count=count,
            intra=catalog.link(link),
            network_gb_per_s=network,
            network_latency_us=40.0,
        )
        return stack([machine], precision, Assumptions())

    return build
