"""The page of NVIDIA's DCGM exporter under our own names, in base units.

Source of names and units: NVIDIA, DCGM exporter, `etc/default-counters.csv`; values of 2^63 - 16 and above are DCGM's
«blank».
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tonnage.metric_names import REGISTRY
from tonnage.monitoring.figures import SeriesKey, series
from tonnage.units import MIB

PREFIX: Final = "DCGM_FI_"
BLANK: Final = 9.2e18
_NAMES: Final[Mapping[str, tuple[str, float, Mapping[str, str]]]] = {  # of DCGM: ours, what one is of it, more labels
    "DEV_GPU_UTIL": ("utilization_ratio", 0.01, {}),
    "DEV_MEM_COPY_UTIL": ("memory_busy_ratio", 0.01, {}),
    "DEV_FB_USED": ("memory_used_bytes", float(MIB), {}),
    "DEV_POWER_USAGE": ("power_watts", 1.0, {}),
    "DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_joules_total", 0.001, {}),
    "DEV_GPU_TEMP": ("temperature_celsius", 1.0, {}),
    "DEV_MEMORY_TEMP": ("memory_temperature_celsius", 1.0, {}),
    "DEV_SM_CLOCK": ("compute_clock_hertz", 1e6, {}),
    "DEV_MEM_CLOCK": ("memory_clock_hertz", 1e6, {}),
    "DEV_XID_ERRORS": ("last_xid", 1.0, {}),  # the newest one's number, not a count
    "DEV_PCIE_REPLAY_COUNTER": ("pcie_replays_total", 1.0, {}),
    "DEV_ECC_SBE_AGG_TOTAL": ("ecc_errors_total", 1.0, {"kind": "corrected"}),
    "DEV_ECC_DBE_AGG_TOTAL": ("ecc_errors_total", 1.0, {"kind": "uncorrected"}),
}
_LINKS: Final = tuple(f"DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL" for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY"))
_LABELS: Final = {"gpu": "gpu", "modelName": "name", "Hostname": "host", "target": "target", "GPU_I_ID": "instance"}


def dcgm_figures(figures: Mapping[SeriesKey, float]) -> dict[SeriesKey, float]:
    """Figures of ours that a page's figures say; empty where the page is no DCGM exporter's."""
    found: dict[SeriesKey, float] = {}
    links: dict[tuple[tuple[str, str], ...], float] = {}
    used: dict[tuple[tuple[str, str], ...], float] = {}
    free: dict[tuple[tuple[str, str], ...], float] = {}
    for key, value in figures.items():
        if not key.metric.startswith(PREFIX) or value >= BLANK:
            continue
        name, given = key.metric.removeprefix(PREFIX), dict(key.labels)
        labels = {ours: given[theirs] for theirs, ours in _LABELS.items() if theirs in given}
        identity = tuple(sorted(labels.items()))
        if name in _NAMES:
            ours, unit, more = _NAMES[name]
            found[_series(ours, {**labels, **more})] = value * unit
        if name in _LINKS:
            links[identity] = links.get(identity, 0.0) + value
        for wanted, kept in (("DEV_FB_USED", used), ("DEV_FB_FREE", free)):
            if name == wanted:
                kept[identity] = value * MIB
    for identity, value in links.items():
        found[_series("link_errors_total", dict(identity))] = value
    for identity, value in used.items():
        if identity in free and value + free[identity]:
            found[_series("memory_used_ratio", dict(identity))] = value / (value + free[identity])
    return found


def _series(name: str, labels: Mapping[str, str]) -> SeriesKey:
    return series(REGISTRY[f"tonnage_gpu_{name}"].name, labels)
