"""Rows of the packaged hardware tables as values, each figure checked against what its unit allows."""

from __future__ import annotations

import re

from tonnage.catalog.catalog import MistakenName, Provider, Region
from tonnage.catalog.hardware import Accelerator, Cpu, Link
from tonnage.catalog.rows import Row

ACCELERATOR_COLUMNS = (
    "name", "vendor", "architecture", "memory_gib", "usable_memory_gib", "usable_memory_source",
    "memory_bandwidth_gb_per_s", "dense_fp32_tflops", "dense_tf32_tflops", "dense_fp16_tflops",
    "dense_bf16_tflops", "dense_fp8_tflops", "dense_int8_tops", "measured_bf16_matmul_tflops",
    "scale_up_gb_per_s", "interconnect",
    "pcie_generation", "tdp_w", "compute_capability", "boost_clock_mhz", "boost_clock_source",
    "notes", "source", "read_on",
)  # fmt: skip
LINK_COLUMNS = (
    "name",
    "scope",
    "peak_gb_per_s",
    "bus_bandwidth_gb_per_s",
    "latency_us",
    "notes",
    "source",
    "read_on",
)
CPU_COLUMNS = ("name", "vendor", "arch", "instance_families", "simd", "notes", "source", "read_on")
PROVIDER_COLUMNS = ("name", "title", "url", "areas")
REGION_COLUMNS = ("provider", "region", "country", "area", "source")
MISTAKEN_COLUMNS = ("pattern", "provider", "what_is_wrong", "what_exists", "source")


def read_accelerator(row: Row) -> Accelerator:
    memory = row.number("memory_gib", 1, 2048)
    usable = row.number("usable_memory_gib", 1, 2048)
    if usable is not None and memory is not None and not 0.85 * memory <= usable <= 1.02 * memory:
        row.fail("usable_memory_gib", f"is {usable:g}, but the device is sold with {memory:g} GiB")
    if usable is not None and not row.cells["usable_memory_source"]:
        row.fail("usable_memory_source", "is blank, yet a figure is given")
    clock = row.number("boost_clock_mhz", 300, 5_000)
    if clock is not None and not row.cells["boost_clock_source"]:
        row.fail("boost_clock_source", "is blank, yet a figure is given")
    pcie = row.number("pcie_generation", 1, 8)
    rates = {
        column: row.number(column, 0.1, 50_000)
        for column in ACCELERATOR_COLUMNS
        if column.startswith("dense_") or column == "measured_bf16_matmul_tflops"
    }
    return Accelerator(
        name=row.text("name"),
        vendor=row.text("vendor"),
        architecture=row.text("architecture"),
        memory_gib=memory,
        usable_memory_gib=usable,
        usable_memory_source=row.cells["usable_memory_source"],
        memory_bandwidth_gb_per_s=row.number("memory_bandwidth_gb_per_s", 10, 50_000),
        scale_up_gb_per_s=row.number("scale_up_gb_per_s", 10, 20_000),
        interconnect=row.cells["interconnect"],
        pcie_generation=None if pcie is None else int(pcie),
        tdp_w=row.number("tdp_w", 20, 5_000),
        compute_capability=row.cells["compute_capability"] or None,
        boost_clock_mhz=clock,
        boost_clock_source=row.cells["boost_clock_source"],
        notes=row.cells["notes"],
        source=row.source(),
        **rates,
    )


def read_link(row: Row) -> Link:
    peak = row.number("peak_gb_per_s", 0.01, 10_000)
    bus = row.number("bus_bandwidth_gb_per_s", 0.01, 10_000)
    if peak is not None and bus is not None and bus > peak:
        row.fail("bus_bandwidth_gb_per_s", f"is {bus:g}, above the printed peak of {peak:g}")
    return Link(
        name=row.text("name"),
        scope=row.one_of("scope", ("intra-node", "inter-node")),  # type: ignore[arg-type]
        peak_gb_per_s=peak,
        bus_bandwidth_gb_per_s=bus,
        latency_us=row.number("latency_us", 0.1, 10_000),
        notes=row.cells["notes"],
        source=row.source(),
    )


def read_cpu(row: Row) -> Cpu:
    return Cpu(
        name=row.text("name"),
        vendor=row.text("vendor"),
        arch=row.one_of("arch", ("x86_64", "arm64")),  # type: ignore[arg-type]
        instance_families=tuple(row.cells["instance_families"].split()),
        simd=row.text("simd"),
        notes=row.cells["notes"],
        source=row.source(),
    )


def read_provider(row: Row) -> Provider:
    areas = tuple(row.text("areas").split())
    return Provider(name=row.text("name"), title=row.text("title"), url=row.text("url"), areas=areas)


def read_region(row: Row) -> Region:
    return Region(
        provider=row.text("provider"),
        name=row.text("region"),
        country=row.text("country"),
        area=row.text("area"),
        source=row.text("source"),
    )


def read_mistaken(row: Row) -> MistakenName:
    try:
        pattern = re.compile(row.text("pattern"), re.IGNORECASE)
    except re.error as error:
        row.fail("pattern", f"is not a regular expression: {error}")
    return MistakenName(
        pattern=pattern,
        provider=row.text("provider"),
        what_is_wrong=row.text("what_is_wrong"),
        what_exists=tuple(row.text("what_exists").split()),
        source=row.text("source"),
    )
