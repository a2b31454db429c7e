"""GPUs as NVML sees them. A machine without a driver has none, and that is not an error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import asdict
from typing import Any, Final

from tonnage.runs.devices import ListedGpu, list_gpus, name_of, open_nvml, said, told
from tonnage.values import dataclass

_THERMAL: Final = ("nvmlClocksEventReasonSwThermalSlowdown", "nvmlClocksEventReasonHwThermalSlowdown")
_POWER: Final = ("nvmlClocksEventReasonSwPowerCap", "nvmlClocksEventReasonHwPowerBrakeSlowdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one instant, all of it, whoever uses it, but for `memory_own_bytes`. None: this device does not
    tell."""

    index: int  # as NVML counts: by PCI bus
    name: str
    utilization_fraction: float | None  # share of the last moments in which a kernel ran
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    memory_own_bytes: int | None  # by the processes that are looked after; None: not known which these are here
    power_w: float | None
    temperature_c: float | None
    energy_j: float | None  # counter since the driver was loaded
    throttled_by: str | None  # "temperature", "power", "temperature and power"; empty: not throttled
    fault: str | None = None  # what NVML said where the device does not answer

    def to_values(self) -> dict[str, Any]:
        """As a line of samples carries it: what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Gpus:
    """The GPUs that this process may use, `most` of them: worker n computes on the n-th. `why_none` says why there are
    none."""

    def __init__(
        self, nvml: Any | None = None, environ: Mapping[str, str] | None = None, *, most: int | None = None
    ) -> None:
        self._nvml, self.why_none = open_nvml(nvml)
        self._listed: list[ListedGpu] = []
        if self._nvml is not None:
            self._listed = list_gpus(self._nvml, os.environ if environ is None else environ)[:most]
            self.why_none = None if self._listed else "no GPU is visible"

    def sample(self, pids: Set[int] = frozenset()) -> tuple[GpuSample, ...]:
        """What holds now. `pids`: whose memory counts as their own."""
        return tuple(_sample(self._nvml, gpu, pids) for gpu in self._listed)

    def close(self) -> None:
        if self._nvml is not None:
            self._listed = []
            self._nvml.nvmlShutdown()
            self._nvml = None


def _sample(nvml: Any, gpu: ListedGpu, pids: Set[int]) -> GpuSample:
    try:
        return _answered(nvml, gpu, pids)
    except nvml.NVMLError as error:  # fell off the bus, driver reset: said in the sample, the run decides
        return GpuSample(
            index=gpu.index, name="", utilization_fraction=None, memory_used_bytes=None, memory_total_bytes=None,
            memory_own_bytes=None, power_w=None, temperature_c=None, energy_j=None, throttled_by=None,
            fault=said(error),
        )  # fmt: skip


def _answered(nvml: Any, gpu: ListedGpu, pids: Set[int]) -> GpuSample:
    handle = gpu.handle
    memory = told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    rates = told(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    power_mw = told(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    energy_mj = told(nvml, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    temperature = told(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    return GpuSample(
        index=gpu.index,
        name=name_of(nvml, gpu),
        utilization_fraction=None if rates is None else rates.gpu / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        memory_own_bytes=_own_memory(nvml, handle, pids),
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=None if temperature is None else float(temperature),
        energy_j=None if energy_mj is None else energy_mj / 1000,
        throttled_by=_throttled_by(nvml, handle),
    )


def _own_memory(nvml: Any, handle: Any, pids: Set[int]) -> int | None:
    """Device memory of these processes, CUDA's own context with it; None where NVML names none of them: inside a
    container it may know processes by the host's numbers only."""
    listed = told(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
    own = [one.usedGpuMemory for one in listed if one.pid in pids]
    known = [int(used) for used in own if used is not None]
    return sum(known) if known and len(known) == len(own) else None


def _throttled_by(nvml: Any, handle: Any) -> str | None:
    reasons = told(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if reasons is None:
        return None
    causes = (("temperature", _THERMAL), ("power", _POWER))
    return " and ".join(word for word, names in causes if any(reasons & getattr(nvml, name) for name in names))
