"""Samples of a process tree and of GPUs, the latter as recorded from NVML."""

# ruff: noqa: N802, N815  names as NVML has them

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.nvml_errors import NotSupported, NvmlError

from tonnage.monitoring import Sampler
from tonnage.monitoring.gpus import Gpus

BUSY = "import time\nheld = bytearray(64 << 20)\nprint('up', flush=True)\nwhile True: sum(range(1000))"
PARENT = (
    "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "child.stdout.readline()\nprint('up', flush=True)\nsys.stdin.readline()\nchild.kill()\nchild.wait()"
)


class NoPermission(NvmlError):
    pass


class FunctionNotFound(NvmlError):
    pass


class InvalidArgument(NvmlError):
    pass


class Timeout(NvmlError):
    pass


class LibraryNotFound(NvmlError):
    pass


class RecordedNvml:
    """What NVML says on a machine with an H100, an old card that cannot tell most things, and one that fell off."""

    NVMLError, NVMLError_NotSupported = NvmlError, NotSupported
    NVMLError_NoPermission, NVMLError_FunctionNotFound = NoPermission, FunctionNotFound
    NVMLError_InvalidArgument, NVMLError_Timeout = InvalidArgument, Timeout
    NVML_SUCCESS = NVML_TEMPERATURE_GPU = NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_CLOCK_SM = NVML_AGGREGATE_ECC = NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_CLOCK_MEM = 2
    nvmlClocksEventReasonApplicationsClocksSetting, nvmlClocksEventReasonSwPowerCap = 2, 4
    nvmlClocksEventReasonHwSlowdown, nvmlClocksEventReasonSyncBoost = 8, 16
    nvmlClocksEventReasonSwThermalSlowdown, nvmlClocksEventReasonHwThermalSlowdown = 32, 64
    nvmlClocksEventReasonHwPowerBrakeSlowdown, nvmlClocksEventReasonDisplayClockSetting = 128, 256
    nvmlEventTypeXidCriticalError = 8
    NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 38, 45
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 52, 59
    NVML_FI_DEV_MEMORY_TEMP = 82
    FIELDS: ClassVar = {38: 5, 45: 0, 52: 2, 82: 58}  # recovery is not known here

    def __init__(self, *, reasons: int = 4 | 32, start: type[NvmlError] | None = None) -> None:
        self.reasons, self.start, self.shut = reasons, start, False
        self.processes: list[Any] = []
        self.xids: dict[int, list[int]] = {}  # by board, in the order in which they happened
        self.freed: list[int] = []

    def nvmlInit(self) -> None:
        if self.start:
            raise self.start("Shared Library Not Found")

    def nvmlShutdown(self) -> None:
        self.shut = True

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlEventSetCreate(self) -> list[int]:
        return []

    def nvmlDeviceRegisterEvents(self, handle: int, _types: int, events: list[int]) -> None:
        if handle == 2:
            raise NvmlError("GPU is lost")
        if handle == 1:
            raise NotSupported("Not Supported")
        events.append(handle)

    def nvmlEventSetWait_v2(self, events: list[int], _timeout_ms: int) -> Any:
        waiting = self.xids.get(events[0], [])
        if not waiting:
            raise Timeout("Timeout")
        return SimpleNamespace(eventData=waiting.pop(0))

    def nvmlEventSetFree(self, events: list[int]) -> None:
        self.freed.append(len(events))

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        if handle:
            raise NotSupported("Not Supported")
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        if handle:
            raise InvalidArgument("Invalid Argument")
        assert counter == self.NVML_AGGREGATE_ECC
        return (7, 1)[kind]

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[Any]:
        if handle:
            raise NotSupported("Not Supported")
        return [
            SimpleNamespace(nvmlReturn=0 if one in self.FIELDS else 3, valueType=3 if one != 82 else 1,
                            value=SimpleNamespace(ullVal=self.FIELDS.get(one, 0), uiVal=self.FIELDS.get(one, 0)))
            for one in fields
        ]  # fmt: skip

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Callable[..., Any]:
        told: Any = {
            "nvmlDeviceGetName": ["NVIDIA H100 80GB HBM3", b"Tesla K80"],
            "nvmlDeviceGetUUID": ["GPU-aa-1", "GPU-bb-2"],
            "nvmlDeviceGetMemoryInfo": [SimpleNamespace(used=17 << 30, total=80 << 30)],
            "nvmlDeviceGetUtilizationRates": [SimpleNamespace(gpu=93, memory=41)],
            "nvmlDeviceGetPowerUsage": [651_250],
            "nvmlDeviceGetTotalEnergyConsumption": [123_456_789],
            "nvmlDeviceGetTemperature": [71, 44],
            "nvmlDeviceGetCurrentClocksEventReasons": [self.reasons],
            "nvmlDeviceGetComputeRunningProcesses": [self.processes],
            "nvmlDeviceGetEnforcedPowerLimit": [700_000],
            "nvmlDeviceGetRemappedRows": [(1, 2, 0, 0)],
            "nvmlDeviceGetPcieReplayCounter": [3],
        }
        if name not in told:
            raise AttributeError(name)
        told = told[name]

        def answer(handle: int, *_: Any) -> Any:
            if handle == 2:
                raise NvmlError("GPU is lost")
            if handle >= len(told):
                raise NotSupported("Not Supported")
            return told[handle]

        return answer


def test_gpu_figures_come_in_base_units() -> None:
    """Watts from milliwatts, joules from millijoules, fractions from percent; what a device cannot tell is None."""
    h100, old, lost = Gpus(RecordedNvml(), environ={}).sample()
    assert (h100.name, h100.utilization_fraction, h100.memory_used_bytes) == ("NVIDIA H100 80GB HBM3", 0.93, 17 << 30)
    assert (h100.power_w, h100.energy_j, h100.temperature_c) == (651.25, 123_456.789, 71.0)
    assert h100.throttled_by == "temperature and power"
    assert (old.name, old.temperature_c) == ("Tesla K80", 44.0)
    assert (old.power_w, old.energy_j, old.utilization_fraction, old.throttled_by) == (None, None, None, None)
    assert lost.fault == "GPU is lost"
    assert "power_w" not in old.to_values()


def test_health_comes_in_base_units_and_what_a_device_cannot_tell_is_not_known() -> None:
    """Hertz from MHz, errors of memory over the board's life, those of links added up where they are known."""
    h100, old, lost = Gpus(RecordedNvml(), environ={}).sample()
    assert (h100.compute_clock_hz, h100.memory_clock_hz, h100.power_limit_w) == (1.98e9, 2.619e9, 700.0)
    assert (h100.ecc_corrected, h100.ecc_uncorrected, h100.rows_remapped, h100.pcie_replays) == (7, 1, 3, 3)
    assert (h100.link_errors, h100.memory_temperature_c, h100.memory_busy_fraction) == (7, 58.0, 0.41)
    assert h100.throttle_reasons == ("power_cap", "thermal")
    assert (h100.xid_errors, h100.last_xid) == (0, None)
    for one in (old, lost):
        assert (one.compute_clock_hz, one.ecc_corrected, one.link_errors, one.xid_errors) == (None,) * 4


def test_critical_errors_are_counted_from_the_first_look() -> None:
    """NVML tells of each once: two between two samples count as two, and the newest is named; none is waited for."""
    nvml = RecordedNvml()
    gpus = Gpus(nvml, environ={})
    nvml.xids[0] = [13, 79]
    assert [(one.xid_errors, one.last_xid) for one in gpus.sample()] == [(2, 79), (None, None), (None, None)]
    nvml.xids[0] = [48]
    first = gpus.sample()[0]
    assert (first.xid_errors, first.last_xid) == (3, 48)
    gpus.close()
    assert nvml.freed == [0, 0, 1]  # the sets of the two that take no events, then the first's


@pytest.mark.parametrize(("reasons", "words"), [(0, ""), (1, ""), (128, "power"), (64, "temperature")])
def test_throttling_is_named(reasons: int, words: str) -> None:
    """Idle clocks (1) are no throttling."""
    assert Gpus(RecordedNvml(reasons=reasons), environ={}).sample()[0].throttled_by == words


@pytest.mark.parametrize(("visible", "expected"), [("1", [1]), ("GPU-aa", [0]), ("", []), ("1,0", [1, 0])])
def test_only_visible_gpus_are_sampled(visible: str, expected: list[int]) -> None:
    """CUDA_VISIBLE_DEVICES by number or by the beginning of a UUID; the one that is lost has no UUID to ask for."""
    nvml = RecordedNvml()
    nvml.nvmlDeviceGetCount = lambda: 2  # type: ignore[method-assign]
    gpus = Gpus(nvml, environ={"CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.index for gpu in gpus.sample()] == expected
    assert (gpus.why_none is None) == bool(expected)
    gpus.close()
    assert nvml.shut


def test_only_the_runs_gpus_and_its_own_memory_are_read() -> None:
    """Worker n computes on the n-th visible device: a run of one process is not told of the second one's energy. Memory
    of other processes is not its own; unknown where NVML names none of its processes."""
    nvml = RecordedNvml()
    nvml.processes = [SimpleNamespace(pid=pid, usedGpuMemory=size << 30) for pid, size in ((7, 3), (8, 4), (99, 10))]
    [only] = Gpus(nvml, environ={}, most=1).sample(frozenset({7, 8}))
    assert (only.index, only.memory_own_bytes, only.memory_used_bytes) == (0, 7 << 30, 17 << 30)
    assert Gpus(nvml, environ={}, most=1).sample(frozenset({1}))[0].memory_own_bytes is None
    assert Gpus(nvml, environ={}, most=0).sample() == ()


def test_a_machine_without_a_driver_has_no_gpus() -> None:
    """No error: no samples, and the reason in words."""
    gpus = Gpus(RecordedNvml(start=LibraryNotFound))
    assert gpus.sample() == ()
    assert "Not Found" in str(gpus.why_none)
    gpus.close()


def test_children_are_part_of_the_tree() -> None:
    """A process whose child holds 64 MiB and turns a processor: memory and time of both are counted."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    process.stdout.readline()
    ticks = iter((0.0, 0.001, 0.001))  # so that any processor time at all is much of it
    sampler = Sampler(process.pid, gpus=Gpus(RecordedNvml(start=LibraryNotFound)), clock=lambda: next(ticks))
    first = sampler.sample()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)  # meanwhile the child turns
    second = sampler.sample()
    process.communicate("\n")
    assert first.processes == second.processes == 2
    assert 64 << 20 < (first.host_uss_bytes or 0) <= (first.host_rss_bytes or 0)
    assert first.cpu_fraction is None
    assert 0 < (second.cpu_fraction or 0) <= 1
    assert 0 < (second.machine_cpu_fraction or 0) <= 1
    assert first.overhead_cpu_fraction is second.overhead_cpu_fraction is None  # nobody watches
    gone = sampler.sample()
    assert (gone.processes, gone.host_rss_bytes, gone.cpu_fraction) == (0, None, None)


def test_watchers_are_counted_apart() -> None:
    """This process watches over a sleeping one: its own time is overhead, not the tree's; one that is gone is none."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    nvml = Gpus(RecordedNvml(start=LibraryNotFound))
    sampler = Sampler(process.pid, watchers=(os.getpid(), gone.pid), gpus=nvml)
    first = sampler.sample()
    sum(range(3_000_000))
    second = sampler.sample()
    process.communicate(b"\n")
    assert first.overhead_cpu_fraction is None
    assert (second.overhead_cpu_fraction or 0) > (second.cpu_fraction or 0)


def test_a_sample_is_a_line_of_json() -> None:
    """What is not known is left out; GPUs stand in a list."""
    sample = Sampler(os.getpid(), gpus=Gpus(RecordedNvml(), environ={})).sample()
    values = json.loads(json.dumps(sample.to_values(), allow_nan=False))
    assert set(values) == {"at", "processes", "host_rss_bytes", "host_uss_bytes", "gpus", "machine"}
    assert values["machine"]["memory_total_bytes"] > values["machine"]["memory_available_bytes"] > 0
    assert [gpu["index"] for gpu in values["gpus"]] == [0, 1, 2]
