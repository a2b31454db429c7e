"""One GPU at one instant, whoever made it: the same figures from NVML, from AMD's tools and from macOS."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one instant, all of it, whoever uses it, but for `memory_own_bytes`. None: this device does not
    tell."""

    index: int  # as its library counts: NVML by PCI bus
    name: str
    utilization_fraction: float | None = None  # share of the last moments in which a kernel ran
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_own_bytes: int | None = None  # by the processes that are looked after; None: not known which these are here
    memory_busy_fraction: float | None = None  # share of the last moments in which memory was read or written
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    energy_j: float | None = None  # counter since the driver was loaded
    compute_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    throttled_by: str | None = None  # "temperature", "power", "temperature and power"; empty: not throttled
    throttle_reasons: tuple[str, ...] | None = (
        None  # every reason that holds the clocks down now, by the library's name
    )
    ecc_corrected: int | None = None  # counters of the board's life
    ecc_uncorrected: int | None = None
    rows_remapped: int | None = None  # rows of memory that spare ones took the place of
    link_errors: int | None = (
        None  # NVLink or xGMI: replays, recoveries, checksums; counter since the driver was loaded
    )
    pcie_replays: int | None = None
    xid_errors: int | None = None  # critical errors (XID) since this process began to look
    last_xid: int | None = None
    fault: str | None = None  # what the library said where the device does not answer

    def to_values(self) -> dict[str, Any]:
        """As a line of samples carries it: what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}
