"""Metrics of machines and their GPUs, whoever makes them."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names.kinds import Metric, MetricKind


def _gpu(name: str, help: str, kind: MetricKind = "gauge", *more: str) -> Metric:
    return Metric(name=f"tonnage_gpu_{name}", kind=kind, help=help, labels=("run", "gpu", "name", *more))


def _machine(name: str, help: str, kind: MetricKind = "gauge") -> Metric:
    return Metric(name=f"tonnage_machine_{name}", kind=kind, help=help, labels=("run",))


DEVICE_METRICS: Final = (
    _gpu("utilization_ratio", "Share of the last moments in which a kernel ran"),
    _gpu("memory_used_bytes", "Device memory in use, by all"),
    _gpu("memory_total_bytes", "Device memory there is"),
    _gpu("memory_used_ratio", "Share of the device memory in use"),
    _gpu("memory_busy_ratio", "Share of the last moments in which device memory was read or written"),
    _gpu("power_watts", "Power drawn"),
    _gpu("power_limit_watts", "Power that the device may draw"),
    _gpu("energy_joules_total", "Since the driver was loaded", "counter"),
    _gpu("temperature_celsius", "Temperature of the die"),
    _gpu("memory_temperature_celsius", "Temperature of the memory"),
    _gpu("compute_clock_hertz", "Clock of the multiprocessors"),
    _gpu("memory_clock_hertz", "Clock of the memory"),
    _gpu("throttled", "1 for each reason that holds the clocks down now", "gauge", "reason"),
    _gpu("ecc_errors_total", "Errors of memory in the life of the board, by kind", "counter", "kind"),
    _gpu("rows_remapped", "Rows of memory that spare ones took the place of"),
    _gpu(
        "link_errors_total", "Replays, recoveries and checksum errors of NVLink since the driver was loaded", "counter"
    ),
    _gpu("pcie_replays_total", "Packets sent again over PCIe", "counter"),
    _gpu("xid_errors_total", "Critical errors (XID) since the run began to look", "counter"),
    _gpu("last_xid", "Number of the newest critical error (XID)"),
    _gpu("lost", "1 where the device does not answer"),
    _machine("cpu_ratio", "Share of the machine's processors used by all"),
    _machine("memory_total_bytes", "Memory of the machine"),
    _machine("memory_available_bytes", "Memory that can be had without swapping"),
    _machine("cpu_clock_hertz", "Mean clock of the processors"),
    _machine("cpu_temperature_celsius", "Hottest sensor of the processors"),
    _machine("cpu_energy_joules_total", "Of all sockets; begins anew where the counter overflows", "counter"),
    _machine("cpu_throttles_total", "Times that a core's clock was lowered for its temperature", "counter"),
    _machine("ecc_corrected_total", "Corrected errors of memory since the machine started", "counter"),
    _machine("ecc_uncorrected_total", "Errors of memory that could not be corrected", "counter"),
)
