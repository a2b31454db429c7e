"""Samples of a process tree and of GPUs, the latter as recorded from NVML."""

# ruff: noqa: N802, N815  names as NVML has them

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.monitoring import Sampler
from tonnage.monitoring.gpus import Gpus

BUSY = "import time\nheld = bytearray(64 << 20)\nprint('up', flush=True)\nwhile True: sum(range(1000))"
PARENT = (
    "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "child.stdout.readline()\nprint('up', flush=True)\nsys.stdin.readline()\nchild.kill()\nchild.wait()"
)


class NvmlError(Exception):
    """As `pynvml.NVMLError`."""


class NotSupported(NvmlError):
    pass


class NoPermission(NvmlError):
    pass


class FunctionNotFound(NvmlError):
    pass


class LibraryNotFound(NvmlError):
    pass


class RecordedNvml:
    """What NVML says on a machine with an H100, an old card that cannot tell most things, and one that fell off."""

    NVMLError, NVMLError_NotSupported = NvmlError, NotSupported
    NVMLError_NoPermission, NVMLError_FunctionNotFound = NoPermission, FunctionNotFound
    NVML_TEMPERATURE_GPU = 0
    nvmlClocksEventReasonSwPowerCap, nvmlClocksEventReasonHwPowerBrakeSlowdown = 4, 128
    nvmlClocksEventReasonSwThermalSlowdown, nvmlClocksEventReasonHwThermalSlowdown = 32, 64

    def __init__(self, *, reasons: int = 4 | 32, start: type[NvmlError] | None = None) -> None:
        self.reasons, self.start, self.shut = reasons, start, False
        self.processes: list[Any] = []

    def nvmlInit(self) -> None:
        if self.start:
            raise self.start("Shared Library Not Found")

    def nvmlShutdown(self) -> None:
        self.shut = True

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Callable[..., Any]:
        told: Any = {
            "nvmlDeviceGetName": ["NVIDIA H100 80GB HBM3", b"Tesla K80"],
            "nvmlDeviceGetUUID": ["GPU-aa-1", "GPU-bb-2"],
            "nvmlDeviceGetMemoryInfo": [SimpleNamespace(used=17 << 30, total=80 << 30)],
            "nvmlDeviceGetUtilizationRates": [SimpleNamespace(gpu=93)],
            "nvmlDeviceGetPowerUsage": [651_250],
            "nvmlDeviceGetTotalEnergyConsumption": [123_456_789],
            "nvmlDeviceGetTemperature": [71, 44],
            "nvmlDeviceGetCurrentClocksEventReasons": [self.reasons],
            "nvmlDeviceGetComputeRunningProcesses": [self.processes],
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
    assert set(values) == {"at", "processes", "host_rss_bytes", "host_uss_bytes", "gpus"}
    assert [gpu["index"] for gpu in values["gpus"]] == [0, 1, 2]
