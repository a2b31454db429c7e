"""What a machine is made of: accelerators, links, processors. One frozen value each, with its source."""

from __future__ import annotations

from datetime import date
from typing import Literal

from tonnage.values import dataclass

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure was read, and when (None: the source states no date)."""

    text: str
    read_on: date | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as a scheduler counts it; a card whose two dies are listed as two devices is two.

    Rates are dense: sparse figures are not stored. None means that no source read here publishes it.
    """

    name: str
    vendor: str
    architecture: str
    memory_gib: float | None  # what the vendor sells, read as 2³⁰
    usable_memory_gib: float | None  # what the driver reports (after ECC and firmware)
    memory_bandwidth_gb_per_s: float | None
    dense_fp32_tflops: float | None
    dense_tf32_tflops: float | None
    dense_fp16_tflops: float | None
    dense_bf16_tflops: float | None
    dense_fp8_tflops: float | None
    dense_int8_tops: float | None
    measured_bf16_matmul_tflops: float | None
    scale_up_gb_per_s: float | None  # NVLink, XGMI, ICI...: both directions together, as vendors print it
    interconnect: str
    pcie_generation: int | None
    tdp_w: float | None
    compute_capability: str | None
    notes: str
    source: Source
    usable_memory_source: str = ""  # where `usable_memory_gib` was read
    boost_clock_mhz: float | None = None
    boost_clock_source: str = ""

    def dense_tflops(self, precision: Precision) -> float | None:
        """Dense peak rate of matrix products at `precision`, 10¹² a second (None: not published)."""
        return {
            "fp32": self.dense_fp32_tflops,
            "tf32": self.dense_tf32_tflops,
            "fp16": self.dense_fp16_tflops,
            "bf16": self.dense_bf16_tflops,
            "fp8": self.dense_fp8_tflops,
            "int8": self.dense_int8_tops,
        }[precision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way for bytes between devices, inside a node or between nodes.

    `bus_bandwidth_gb_per_s` is what a large all-reduce reaches per device (NCCL's busbw), not the peak.
    """

    name: str
    scope: Literal["intra-node", "inter-node"]
    peak_gb_per_s: float | None  # one direction, per device (intra) or per node (inter)
    bus_bandwidth_gb_per_s: float | None
    latency_us: float | None
    notes: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A processor as an instance family carries it."""

    name: str
    vendor: str
    arch: Literal["x86_64", "arm64"]
    instance_families: tuple[str, ...]  # "aws:c7g", ...
    simd: str
    notes: str
    source: Source
