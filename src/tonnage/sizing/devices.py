"""The columns of hardware figures that the rate formulas read, one row per candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from tonnage.catalog.hardware import Accelerator, Link
from tonnage.errors import UnsizedHardware
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Array
from tonnage.units import TERA, from_gib
from tonnage.values import dataclass

# Software that runs the operators we size: CUDA and ROCm builds of PyTorch, vLLM and the like. Other chips need
# another compiler whose rates the published peaks do not tell.
SIZED_VENDORS = ("NVIDIA", "AMD")

# First word of the catalog's architecture; -1 in a column stands for any other.
GENERATIONS = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
HostStage = Literal["tokenising", "JPEG decoding", "the stated input work", "reading"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """A figure with the ends of its 80 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRate:
    """Items a second that one machine's host gets ready; None: its vCPUs are not stated."""

    stage: HostStage  # that sets it
    vcpus: float | None
    items_per_s: RateRange | None
    vcpu_items_per_s: float | None = None  # of one vCPU; None: they do nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node as the physics sees it: devices, how they talk, and how the node talks to others."""

    accelerator: Accelerator
    count: int  # devices in the node
    intra: Link | None  # None: one device, or unknown
    network_gb_per_s: float | None  # per node, one direction, as printed; None: not published
    network_latency_us: float
    network_measured: bool = False  # the rate above is what collectives were measured to reach
    host: HostRate | None = None  # how fast the host gets items ready; None: nothing it does could hold devices up


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Hardware columns: rates at the compute precision, memory and links of each candidate."""

    peak_flop_per_s: Array
    bandwidth_bytes_per_s: Array
    memory_bytes: Array
    per_node: Array  # devices in a node
    intra_bytes_per_s: Array  # all-reduce bus bandwidth per device inside a node
    intra_latency_s: Array
    inter_bytes_per_s: Array  # per node, one direction, as collectives reach it; NaN: not published
    inter_latency_s: Array
    generation: Array | None = None  # index into GENERATIONS; None: not known
    watts_per_tflop: Array | None = None  # power limit over the dense 16-bit peak; NaN: not published
    multiprocessor_hz: Array | None = None  # multiprocessors times clock; NaN: not known
    clock_hz: Array | None = None  # boost clock; NaN: not known
    host_factor: Array | None = None  # how slow the hosts launch kernels (inference); None: not known
    printed_share: Array | None = None  # of the printed peak that `peak_flop_per_s` stands for
    graphics_die: Array | None = None  # 1: a die made for graphics boards (see GRAPHICS_DIES)
    product_flop_per_s: Array | None = None  # the most that products of matrices reach; None: not known
    channel_share: Array | None = None  # see `channel_share`; None: not known
    inter_printed_bytes_per_s: Array | None = None  # what a share of is reached; NaN: measured or not published

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Devices:
        """The candidates' columns from the machines' columns."""
        columns: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return Devices(**taken)

    def with_network(self, assumed: Assumptions) -> Devices:
        """The same devices where collectives between nodes reach the assumed share of what is printed."""
        printed = self.inter_printed_bytes_per_s
        if printed is None:
            return self
        reached = np.where(np.isnan(printed), self.inter_bytes_per_s, printed * assumed.network_peak_fraction)
        return replace(self, inter_bytes_per_s=reached)


def peak_tflops(accelerator: Accelerator, precision: str) -> float:
    """Dense peak at a compute precision, 10¹² operations a second.

    Raises UnsizedHardware when the vendor is not sized or the figure is not published.
    """
    if accelerator.vendor not in SIZED_VENDORS:
        compiler = COMPILERS.get(accelerator.vendor, "not known")
        raise UnsizedHardware(
            f"{accelerator.name}: {accelerator.vendor} devices run another compiler ({compiler}) whose rates are not "
            f"calibrated; {' and '.join(SIZED_VENDORS)} are sized"
        )
    wanted = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "int8": "int8"}
    peak = accelerator.dense_tflops(wanted[precision])  # type: ignore[arg-type]
    if peak is None:
        raise UnsizedHardware(f"{accelerator.name}: no {precision} rate is published (or the device has none)")
    return peak


# What compiles for the devices of other vendors.
COMPILERS: Final = MappingProxyType({"AWS": "Neuron", "Google": "XLA", "Intel Habana": "SynapseAI"})

MissingFigure = Literal["vendor", "rate", "memory size", "memory bandwidth"]


def missing_figure(accelerator: Accelerator, precision: str) -> MissingFigure | None:
    """The first figure that sizing at `precision` needs and nobody publishes (`vendor`: nobody measured its like)."""
    if accelerator.vendor not in SIZED_VENDORS:
        return "vendor"
    if accelerator.dense_tflops(precision) is None:  # type: ignore[arg-type]
        return "rate"
    if (accelerator.usable_memory_gib or accelerator.memory_gib) is None:
        return "memory size"
    return "memory bandwidth" if accelerator.memory_bandwidth_gb_per_s is None else None


def usable_bytes(accelerator: Accelerator) -> float:
    """Device memory the driver reports, else what the vendor sells; raises UnsizedHardware when neither is known."""
    memory_gib = accelerator.usable_memory_gib or accelerator.memory_gib
    if memory_gib is None:
        raise UnsizedHardware(f"{accelerator.name}: memory size is not published")
    return from_gib(memory_gib)


POWER_LIMITED_W = 75.0  # what a PCIe slot feeds: boards at or below it cannot hold their boost clock


def sustained_flop_per_s(accelerator: Accelerator, precision: str, power_limited_fraction: float) -> float:
    """Peak rate a device can hold: what is printed, less on boards fed by the slot alone."""
    peak = peak_tflops(accelerator, precision) * TERA
    return peak * _printed_share(accelerator, power_limited_fraction)


# Share of the printed dense rate that the best large product reached on any device of the catalog (A100-SXM: 271.2 of
# 312 TFLOP/s in bf16): no device whose own was not measured is taken to do better.
BEST_PRODUCTS = 0.87


def product_flop_per_s(accelerator: Accelerator, precision: str, assumed: Assumptions) -> float:
    """The most that products reach on the device: the share of the printed rate that its own largest product was
    measured to reach, in bf16; of other precisions too, which share its power and memory (H100: 0.69 to 0.80 of bf16,
    0.76 of tf32, 0.77 of fp32, 0.71 of fp8; benchmarks/results/gpu_kernels_h100-80gb-sxm_2026-11-22.csv)."""
    measured, printed = accelerator.measured_bf16_matmul_tflops, accelerator.dense_bf16_tflops
    share = measured / printed if measured and printed else BEST_PRODUCTS
    return sustained_flop_per_s(accelerator, precision, assumed.power_limited_fraction) * min(share, 1.0)


def _printed_share(accelerator: Accelerator, power_limited_fraction: float) -> float:
    limited = accelerator.tdp_w is not None and accelerator.tdp_w <= POWER_LIMITED_W
    return power_limited_fraction if limited else 1.0


def stack(machines: Sequence[Machine], precision: str, assumed: Assumptions) -> Devices:
    """Columns for `machines` at one compute precision (bytes, seconds).

    Raises UnsizedHardware naming the missing figure; call `peak_tflops` first to drop such machines.
    """
    network = np.array([np.nan if m.network_gb_per_s is None else m.network_gb_per_s * 1e9 for m in machines])
    measured = np.array([m.network_measured for m in machines], dtype=bool)
    return Devices(
        peak_flop_per_s=np.array(
            [sustained_flop_per_s(m.accelerator, precision, assumed.power_limited_fraction) for m in machines]
        ),
        bandwidth_bytes_per_s=np.array([_bandwidth(m.accelerator) for m in machines]),
        memory_bytes=np.array([usable_bytes(m.accelerator) for m in machines]),
        per_node=np.array([float(m.count) for m in machines]),
        intra_bytes_per_s=np.array([_intra_bandwidth(m) for m in machines]),
        intra_latency_s=np.array([_intra_latency_us(m) * 1e-6 for m in machines]),
        inter_bytes_per_s=network,
        product_flop_per_s=np.array([product_flop_per_s(m.accelerator, precision, assumed) for m in machines]),
        channel_share=np.array([channel_share(m) for m in machines]),
        inter_printed_bytes_per_s=np.where(measured, np.nan, network),
        inter_latency_s=np.array([m.network_latency_us * 1e-6 for m in machines]),
        generation=np.array([generation_of(m.accelerator) for m in machines]),
        watts_per_tflop=np.array([_watts_per_tflop(m.accelerator) for m in machines]),
        multiprocessor_hz=np.array([_multiprocessor_hz(m.accelerator) for m in machines]),
        clock_hz=np.array([(m.accelerator.boost_clock_mhz or np.nan) * 1e6 for m in machines]),
        printed_share=np.array([_printed_share(m.accelerator, assumed.power_limited_fraction) for m in machines]),
        graphics_die=np.array([float(m.accelerator.compute_capability in GRAPHICS_DIES) for m in machines]),
    ).with_network(assumed)


# Peak of NVLink 3, GB/s in one direction, over which NCCL opens 24 channels; the fewest channels beside those.
WIDE_LINK_GB_PER_S, FEWEST_CHANNELS = 300.0, 0.25


def channel_share(machine: Machine) -> float:
    """Channels that collectives open over the links of a node, beside those over NVLink 3: each has buffers of its own.

    What a communicator takes is linear in its channels, and those follow from the bandwidth of the links (NVIDIA/nccl,
    issue 864: «the memory usage is linearly tied to the number of channels»; src/graph: 12 on DGX-1 with V100, 24 on
    DGX A100, 2 to 4 over PCIe); faster links have faster channels. 1 where the link is not known.
    """
    peak = machine.intra.peak_gb_per_s if machine.intra else None
    return 1.0 if peak is None else min(max(peak / WIDE_LINK_GB_PER_S, FEWEST_CHANNELS), 1.0)


def generation_of(accelerator: Accelerator) -> float:
    """Index into GENERATIONS; -1 for any other."""
    first = accelerator.architecture.split(" ")[0]
    return float(GENERATIONS.index(first)) if first in GENERATIONS else -1.0


def _watts_per_tflop(accelerator: Accelerator) -> float:
    if accelerator.tdp_w is None or accelerator.dense_fp16_tflops is None:
        return np.nan
    return accelerator.tdp_w / accelerator.dense_fp16_tflops


# 32-bit lanes of a multiprocessor by compute capability (CUDA C++ Programming Guide, arithmetic instructions).
LANES = {"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128, "10.0": 128, "10.3": 128, "12.0": 128}
# Dies made for graphics boards: GDDR memory, small tensor cores, and (8.6) a cheaper process than the compute die of
# the same generation. Turing (7.5) is made as Volta is and counts with it.
GRAPHICS_DIES = ("8.6", "8.9", "12.0")


def _multiprocessor_hz(accelerator: Accelerator) -> float:
    """Multiprocessors times clock, from the 32-bit rate: two operations a lane and cycle."""
    lanes = LANES.get(accelerator.compute_capability or "")
    if lanes is None or accelerator.dense_fp32_tflops is None:
        return np.nan
    return accelerator.dense_fp32_tflops * TERA / (2.0 * lanes)


def _bandwidth(accelerator: Accelerator) -> float:
    if accelerator.memory_bandwidth_gb_per_s is None:
        raise UnsizedHardware(f"{accelerator.name}: memory bandwidth is not published")
    return accelerator.memory_bandwidth_gb_per_s * 1e9


def _intra_bandwidth(machine: Machine) -> float:
    """All-reduce bus bandwidth inside the node, bytes a second; NaN where several devices share an unknown link."""
    if machine.count == 1:
        return np.inf
    if machine.intra is None or machine.intra.bus_bandwidth_gb_per_s is None:
        return np.nan
    return machine.intra.bus_bandwidth_gb_per_s * 1e9


def _intra_latency_us(machine: Machine) -> float:
    return machine.intra.latency_us if machine.intra and machine.intra.latency_us is not None else 30.0
