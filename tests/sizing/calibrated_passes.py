"""Engines as they were calibrated and machines of the catalog, for tests of passes."""

from __future__ import annotations

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.inference_devices import serving_devices

ENGINES = calibrated_engines()


def machine(name: str, *, count: int = 1, link: str = "") -> Machine:
    catalog = load_catalog()
    return Machine(
        accelerator=catalog.accelerator(name), count=count, intra=catalog.link(link), network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip


def on(name: str, precision: str, *, count: int = 1, link: str = "") -> Devices:
    return serving_devices([machine(name, count=count, link=link)], precision)
