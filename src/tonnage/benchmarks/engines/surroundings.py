"""What a machine was set to while a bench ran: what a reader needs to judge its times, and to measure them again."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from tonnage import __version__
from tonnage.benchmarks.machine import host_identity

SYSTEM: Final = Path("/sys/devices/system/cpu")
CPUINFO: Final = Path("/proc/cpuinfo")
THREAD_SETTINGS: Final = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES")
SAME: Final = ("processor", "threads")  # cells measured where these differ are not compared


def read_surroundings(
    now: datetime,
    *,
    system: Path = SYSTEM,
    cpuinfo: Path = CPUINFO,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The machine and its settings, in the words of the page; what the system does not tell is left out.

    `now`: the time of day with its zone.
    """
    here = host_identity()
    found = {
        "measured": now.strftime("%Y-%m-%d %H:%M %Z"), "processor": here.processor, "threads": str(here.logical_cores),
        "system": platform.platform(), "python": platform.python_version(), "tonnage": __version__,
    }  # fmt: skip
    clock = _said(system / "cpu0" / "cpufreq" / "scaling_governor")
    if clock is not None:
        found["clock governor"] = clock
    turbo = _turbo(system)
    if turbo is not None:
        found["turbo"] = turbo
    if " hypervisor" in (_said(cpuinfo) or ""):
        found["virtual machine"] = "yes: other guests of its host may slow it down"
    if hasattr(os, "getpriority"):
        found["nice value"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    named = {name: value for name, value in sorted(environment.items()) if name.startswith(THREAD_SETTINGS)}
    if named:
        found["settings in the environment"] = ", ".join(f"{name}={value}" for name, value in named.items())
    return found


def _turbo(system: Path) -> str | None:
    """Whether clocks may rise above the nominal one: intel_pstate says what is off, other drivers what is on."""
    off, on = _said(system / "intel_pstate" / "no_turbo"), _said(system / "cpufreq" / "boost")
    if off is None and on is None:
        return None
    return "off" if off == "1" or on == "0" else "on"


def _said(place: Path) -> str | None:
    try:
        return place.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
