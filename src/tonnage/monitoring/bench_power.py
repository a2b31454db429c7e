"""Clocks and energy of processors and NVIDIA GPUs, read beside a cell of a bench."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tonnage.monitoring.gpu_sample import GpuSample
from tonnage.monitoring.gpus import Gpus
from tonnage.monitoring.machine_health import machine_health
from tonnage.side_by_side.power import GpuReading, PowerReading


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


def _reading(one: GpuSample) -> GpuReading:
    return GpuReading(clock_hz=one.compute_clock_hz, power_w=one.power_w, energy_j=one.energy_j,
                      throttled_by=one.throttled_by)  # fmt: skip
