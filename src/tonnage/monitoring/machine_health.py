"""Processors and memory of this machine at one instant: clocks, temperature, energy, throttling, errors of memory; and
their clocks and energy, with those of NVIDIA GPUs, beside a cell of a bench.

Sources: Linux, «Power Capping Framework» (RAPL), «CPU frequency scaling», «RAS: EDAC», and psutil. What a system does
not tell, or tells administrators alone, is left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from tonnage.monitoring.gpu_sample import GpuSample
from tonnage.monitoring.gpus import Gpus
from tonnage.monitoring.nvml_health import HERTZ_PER_MHZ
from tonnage.side_by_side.power import GpuReading, PowerReading

SYSTEM: Final = Path("/sys")
_CPU_SENSORS: Final = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")  # drivers that read processors
_PACKAGE: Final = re.compile(r"intel-rapl:\d+")  # of a socket; `intel-rapl:0:0` is a part of one
MICROJOULES_PER_J: Final = 1e6


def machine_health(system: Path = SYSTEM, library: Any = psutil) -> dict[str, float]:
    """Figures by name, in base units. `system` is where sysfs is mounted."""
    memory = library.virtual_memory()
    found: dict[str, float | None] = {
        "memory_total_bytes": float(memory.total), "memory_available_bytes": float(memory.available),
        "cpu_clock_hz": _clock_hz(library), "cpu_temperature_c": _temperature_c(library),
        "cpu_energy_j": _energy_j(system), "cpu_throttled": _sum_of(_throttles(system)),
        "ecc_corrected": _sum_of(sorted(system.glob("devices/system/edac/mc/mc*/ce_count"))),
        "ecc_uncorrected": _sum_of(sorted(system.glob("devices/system/edac/mc/mc*/ue_count"))),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


class DevicePower:
    """The machine and the GPUs that an engine's `devices` name; GPUs that NVML does not give are left out."""

    def __init__(
        self,
        devices: tuple[str, ...],
        *,
        nvml: Any | None = None,
        health: Callable[[], Mapping[str, float]] = machine_health,
    ) -> None:
        self._health = health
        self._gpus = Gpus(nvml, {"CUDA_VISIBLE_DEVICES": ",".join(devices)}) if devices else None

    def read(self) -> PowerReading:
        """What holds now."""
        found = self._health()
        gpus = () if self._gpus is None else tuple(_reading(one) for one in self._gpus.sample())
        return PowerReading(at_s=time.monotonic(), cpu_clock_hz=found.get("cpu_clock_hz"),
                            cpu_energy_j=found.get("cpu_energy_j"), gpus=gpus)  # fmt: skip

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.close()


def _clock_hz(library: Any) -> float | None:
    """The mean over the processors; None on systems without it."""
    try:
        found = library.cpu_freq() if hasattr(library, "cpu_freq") else None
    except (OSError, NotImplementedError, RuntimeError):  # psutil raises what its system raises
        return None
    return None if found is None or not found.current else float(found.current) * HERTZ_PER_MHZ


def _temperature_c(library: Any) -> float | None:
    """The hottest sensor of the processors."""
    if not hasattr(library, "sensors_temperatures"):  # Linux and FreeBSD alone
        return None
    sensors = library.sensors_temperatures()
    known = [one.current for driver in _CPU_SENSORS for one in sensors.get(driver, ())]
    return float(max(known)) if known else None


def _energy_j(system: Path) -> float | None:
    """Of all sockets since the machine started; the counter starts again where it overflows. For root alone on most."""
    packages = [one for one in sorted(system.glob("class/powercap/intel-rapl:*")) if _PACKAGE.fullmatch(one.name)]
    found = [_number(one / "energy_uj") for one in packages]
    known = [one for one in found if one is not None]
    return sum(known) / MICROJOULES_PER_J if known and len(known) == len(found) else None


def _throttles(system: Path) -> Iterator[Path]:
    """One counter a core: times that its clock was lowered for its temperature."""
    yield from sorted(system.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"))


def _sum_of(files: Iterable[Path]) -> float | None:
    known = [value for file in files if (value := _number(file)) is not None]
    return sum(known) if known else None


def _number(file: Path) -> float | None:
    try:
        return float(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # for administrators alone, or not of this machine
        return None


def _reading(one: GpuSample) -> GpuReading:
    return GpuReading(clock_hz=one.compute_clock_hz, power_w=one.power_w, energy_j=one.energy_j,
                      throttled_by=one.throttled_by)  # fmt: skip
