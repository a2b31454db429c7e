"""The GPUs of this machine: NVIDIA's by NVML, else AMD's, else a Mac's. A machine without one is no error.

The I/O registry of a Mac has how busy its GPU is and how much of the memory it holds; power, temperature and clocks
take `powermetrics`, which is for administrators alone: they are not known here.
"""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, Final, Protocol

import psutil

from tonnage.monitoring.gpu_sample import GpuSample
from tonnage.monitoring.nvml_health import XidEvents, health_of
from tonnage.runs.devices import ListedGpu, answered, list_gpus, name_of, open_nvml, said

IOREG: Final = ("ioreg", "-r", "-d", "1", "-w", "0", "-a", "-c", "IOAccelerator")
TIMEOUT_S: Final = 5.0


class GpuReader(Protocol):
    """Whoever can be asked for samples."""

    why_none: str | None

    def sample(self, pids: Set[int] = ..., /) -> tuple[GpuSample, ...]: ...
    def close(self) -> None: ...


def open_gpus(*, most: int | None = None) -> GpuReader:
    """The reader of the GPUs that are here; that of NVML where there are none, which says why."""
    nvidia = Gpus(most=most)
    if nvidia.why_none is None:
        return nvidia
    from tonnage.monitoring.amd_gpus import AmdGpus

    amd = AmdGpus(most=most)
    if amd.why_none is None:
        return amd
    if sys.platform == "darwin":
        return AppleGpus(most=most)
    return nvidia


class Gpus:
    """The NVIDIA GPUs that this process may use, `most` of them: worker n computes on the n-th. `why_none` says why
    there are none."""

    def __init__(
        self, nvml: Any | None = None, environ: Mapping[str, str] | None = None, *, most: int | None = None
    ) -> None:
        self._nvml, self.why_none = open_nvml(nvml)
        self._listed: list[tuple[ListedGpu, XidEvents]] = []
        if self._nvml is not None:
            listed = list_gpus(self._nvml, os.environ if environ is None else environ)[:most]
            self._listed = [(one, XidEvents(self._nvml, one)) for one in listed]
            self.why_none = None if self._listed else "no GPU is visible"

    def sample(self, pids: Set[int] = frozenset(), /) -> tuple[GpuSample, ...]:
        """What holds now. `pids`: whose memory counts as their own."""
        return tuple(_sample(self._nvml, gpu, xids, pids) for gpu, xids in self._listed)

    def close(self) -> None:
        if self._nvml is not None:
            for _, xids in self._listed:
                xids.close()
            self._listed = []
            self._nvml.nvmlShutdown()
            self._nvml = None


class AppleGpus:
    """The GPUs of this Mac, `most` of them. `ask` gives the registry's property list; OSError where there is none."""

    def __init__(self, ask: Callable[[], bytes] | None = None, *, most: int | None = None) -> None:
        self._ask, self._most, self._count = ask or _registry, most, 0
        self.why_none: str | None = None
        try:
            self._count = len(self._read())
            self.why_none = None if self._count else "no GPU is in the I/O registry"
        except (OSError, ValueError) as error:
            self.why_none = f"ioreg: {error}"

    def sample(self, _pids: Set[int] = frozenset(), /) -> tuple[GpuSample, ...]:
        """What holds now."""
        if self._count == 0:
            return ()
        try:
            return self._read()
        except (OSError, ValueError) as error:
            return tuple(GpuSample(index=number, name="", fault=str(error)) for number in range(self._count))

    def close(self) -> None:
        """Nothing is held."""

    def _read(self) -> tuple[GpuSample, ...]:
        return tuple(apple_samples(self._ask(), memory_bytes=psutil.virtual_memory().total))[: self._most]


def apple_samples(content: bytes, *, memory_bytes: int) -> Iterator[GpuSample]:
    """The property list of `ioreg -a`. ValueError where it is not one. `memory_bytes`: of the machine, which both
    share."""
    try:
        entries = plistlib.loads(content) if content.strip() else []
    except plistlib.InvalidFileException as error:
        raise ValueError(f"not a property list: {error}") from error
    known = [one for one in entries if isinstance(one, dict) and isinstance(one.get("PerformanceStatistics"), dict)]
    for number, one in enumerate(known):
        statistics: dict[str, Any] = one["PerformanceStatistics"]
        model, busy, used = one.get("model", "Apple GPU"), statistics.get("Device Utilization %"), statistics.get(
            "In use system memory")  # fmt: skip
        yield GpuSample(
            index=number, name=model.decode(errors="replace").rstrip("\0") if isinstance(model, bytes) else str(model),
            utilization_fraction=None if busy is None else busy / 100,
            memory_used_bytes=None if used is None else int(used), memory_total_bytes=memory_bytes,
        )  # fmt: skip


def _sample(nvml: Any, gpu: ListedGpu, xids: XidEvents, pids: Set[int]) -> GpuSample:
    try:
        return _answered(nvml, gpu, xids, pids)
    except nvml.NVMLError as error:  # fell off the bus, driver reset: said in the sample, the run decides
        return GpuSample(
            index=gpu.index, name="", fault=said(error), xid_errors=xids.count if xids.is_known else None,
            last_xid=xids.last,
        )  # fmt: skip


def _answered(nvml: Any, gpu: ListedGpu, xids: XidEvents, pids: Set[int]) -> GpuSample:
    handle = gpu.handle
    xids.look()  # first: a board that answers nothing else may have reported why
    memory = answered(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    rates = answered(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    power_mw = answered(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    energy_mj = answered(nvml, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    temperature = answered(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    return GpuSample(
        index=gpu.index,
        name=name_of(nvml, gpu),
        utilization_fraction=None if rates is None else rates.gpu / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        memory_own_bytes=_own_memory(nvml, handle, pids),
        memory_busy_fraction=None if rates is None else rates.memory / 100,
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=None if temperature is None else float(temperature),
        energy_j=None if energy_mj is None else energy_mj / 1000,
        xid_errors=xids.count if xids.is_known else None,
        last_xid=xids.last,
        **health_of(nvml, gpu),
    )


def _own_memory(nvml: Any, handle: Any, pids: Set[int]) -> int | None:
    """Device memory of these processes, CUDA's own context with it; None where NVML names none of them: inside a
    container it may know processes by the host's numbers only."""
    listed = answered(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
    own = [one.usedGpuMemory for one in listed if one.pid in pids]
    known = [int(used) for used in own if used is not None]
    return sum(known) if known and len(known) == len(own) else None


def _registry() -> bytes:
    try:
        done = subprocess.run(IOREG, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer for {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise OSError(done.stderr.decode(errors="replace")[:200] or f"exit code {done.returncode}")
    return done.stdout
