"""GPUs as NVML sees them. A machine without a driver has none, and that is not an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Final, TypeVar

T = TypeVar("T")

_THERMAL: Final = ("nvmlClocksEventReasonSwThermalSlowdown", "nvmlClocksEventReasonHwThermalSlowdown")
_POWER: Final = ("nvmlClocksEventReasonSwPowerCap", "nvmlClocksEventReasonHwPowerBrakeSlowdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one instant, all of it, whoever uses it. None: this device does not tell."""

    index: int  # as NVML counts: by PCI bus
    name: str
    utilization_fraction: float | None  # share of the last moments in which a kernel ran
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None
    temperature_c: float | None
    energy_j: float | None  # counter since the driver was loaded
    throttled_by: str | None  # "temperature", "power", "temperature and power"; empty: not throttled
    fault: str | None = None  # what NVML said where the device does not answer

    def to_values(self) -> dict[str, Any]:
        """As a line of samples carries it: what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Gpus:
    """The GPUs that this process may use. `why_none` says why there are none."""

    def __init__(self, nvml: Any | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._nvml, self.why_none = _opened(nvml)
        self._handles: list[tuple[int, Any]] = []
        if self._nvml is not None:
            self._handles = _visible(self._nvml, os.environ if environ is None else environ)
            self.why_none = None if self._handles else "no GPU is visible"

    def sample(self) -> tuple[GpuSample, ...]:
        return tuple(_sample(self._nvml, index, handle) for index, handle in self._handles)

    def close(self) -> None:
        if self._nvml is not None:
            self._handles = []
            self._nvml.nvmlShutdown()
            self._nvml = None


def _opened(nvml: Any | None) -> tuple[Any | None, str | None]:
    """The library, started; else why it cannot be: no driver and no permission both mean that nothing can be read."""
    library: Any = nvml
    if library is None:
        try:
            library = import_module("pynvml")
        except ModuleNotFoundError:
            return None, "nvidia-ml-py is not installed (extra 'train')"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, f"NVML: {_said(error)}"
    return library, None


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _visible(nvml: Any, environ: Mapping[str, str]) -> list[tuple[int, Any]]:
    """Handles of the devices that CUDA_VISIBLE_DEVICES names by number or UUID; all where it is not set."""
    handles = [(index, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return handles
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    return [(index, handle) for index, handle in handles if _named(nvml, index, handle, names)]


def _named(nvml: Any, index: int, handle: Any, names: list[str]) -> bool:
    if str(index) in names:
        return True
    uuid = _told(nvml, lambda: nvml.nvmlDeviceGetUUID(handle))
    return uuid is not None and any(uuid.startswith(name) for name in names if not name.isdigit())


def _told(nvml: Any, ask: Callable[[], T]) -> T | None:
    """An answer, or None where this device does not support the question."""
    try:
        return ask()
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission, nvml.NVMLError_FunctionNotFound):
        return None


def _sample(nvml: Any, index: int, handle: Any) -> GpuSample:
    try:
        return _answered(nvml, index, handle)
    except nvml.NVMLError as error:  # fell off the bus, driver reset: said in the sample, the run decides
        return GpuSample(
            index=index, name="", utilization_fraction=None, memory_used_bytes=None, memory_total_bytes=None,
            power_w=None, temperature_c=None, energy_j=None, throttled_by=None, fault=_said(error),
        )  # fmt: skip


def _answered(nvml: Any, index: int, handle: Any) -> GpuSample:
    name = nvml.nvmlDeviceGetName(handle)
    memory = _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    rates = _told(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    power_mw = _told(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    energy_mj = _told(nvml, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    temperature = _told(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    return GpuSample(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        utilization_fraction=None if rates is None else rates.gpu / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=None if temperature is None else float(temperature),
        energy_j=None if energy_mj is None else energy_mj / 1000,
        throttled_by=_throttled_by(nvml, handle),
    )


def _throttled_by(nvml: Any, handle: Any) -> str | None:
    reasons = _told(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if reasons is None:
        return None
    causes = (("temperature", _THERMAL), ("power", _POWER))
    return " and ".join(word for word, names in causes if any(reasons & getattr(nvml, name) for name in names))
