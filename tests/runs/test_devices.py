"""GPUs by NVML: whole ones, MIG instances, and what CUDA_VISIBLE_DEVICES leaves of them."""

# ruff: noqa: N802  names as NVML has them

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.nvml_errors import NotSupported, NvmlError

from tonnage.benchmarks.machine import gpu_by_driver
from tonnage.runners.machine import gpus_by_nvml
from tonnage.runs.devices import list_boards, list_gpus
from tonnage.runs.spec import LaunchSpec
from tonnage.supervisor.reporting import gpus_of


class CutUp:
    """An A100 of 40 GiB, whole, and an H100 cut into an instance of 20 and one of 10 GiB."""

    NVMLError, NVMLError_NotSupported = NvmlError, NotSupported
    NVMLError_NoPermission = NVMLError_FunctionNotFound = NVMLError_InvalidArgument = type("Other", (NvmlError,), {})
    UUIDS: ClassVar = {"a100": "GPU-aa", "h100": "GPU-bb", "part-20": "MIG-cc", "part-10": "MIG-dd"}
    GIB: ClassVar = {"a100": 40, "h100": 80, "part-20": 20, "part-10": 10}

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("a100", "h100")[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        found = [handle for handle, known in self.UUIDS.items() if known == uuid]
        if not found:
            raise NvmlError("Not Found")
        return found[0]

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if handle == "a100":
            raise NotSupported("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _: str, place: int) -> str:
        if place > 1:
            raise NvmlError("Not Found")
        return ("part-20", "part-10")[place]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return self.UUIDS[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=self.GIB[handle] << 30)

    def nvmlDeviceGetName(self, handle: str) -> str:
        return handle

    def nvmlShutdown(self) -> None:
        pass


@pytest.mark.parametrize(
    ("environ", "handles"),
    [
        ({}, ["part-20"]),  # CUDA gives a process one instance, and then no whole board
        ({"CUDA_VISIBLE_DEVICES": "MIG-dd"}, ["part-10"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ["part-20"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-dd,MIG-cc"}, ["part-10"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["a100"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ["a100"]),  # what comes after a name that is none is not visible
        ({"CUDA_VISIBLE_DEVICES": "0,"}, ["a100"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa"}, ["a100"]),
        ({"CUDA_VISIBLE_DEVICES": "5,-1,GPU-zz"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_devices_are_those_that_cuda_gives(environ: dict[str, str], handles: list[str]) -> None:
    """By number, by UUID of a board, by name of an instance; what is not there ends the list."""
    assert [gpu.handle for gpu in list_gpus(CutUp(), environ)] == handles


def test_an_instance_has_its_own_memory() -> None:
    """A container without nvidia-smi is told of its GPUs by NVML; of an instance, 20 GiB and not the board's 80."""
    assert [gpu.memory_gib for gpu in gpus_by_nvml(CutUp(), {})] == [20.0]
    assert gpu_by_driver(CutUp(), "dd") == ("part-10", 10.0)


def test_a_board_that_is_lost_is_left_out() -> None:
    """NVML counts it and has no handle of it; the others keep their numbers."""

    class Lost(CutUp):
        def nvmlDeviceGetCount(self) -> int:
            return 3

        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            if index == 0:
                raise NvmlError("GPU is lost")
            return ("", "a100", "h100")[index]

    assert [(gpu.index, gpu.handle) for gpu in list_boards(Lost())] == [(1, "a100"), (2, "h100")]
    assert [gpu.handle for gpu in list_gpus(Lost(), {"CUDA_VISIBLE_DEVICES": "1"})] == ["a100"]


@pytest.mark.parametrize(
    ("launch", "count"),
    [
        (LaunchSpec(), 1),
        (LaunchSpec(runner="torchrun", processes=2), 2),
        (LaunchSpec(device="cpu", processes=2), 0),
        (LaunchSpec(device_map="auto"), None),
    ],
)
def test_a_run_is_told_of_its_own_gpus(launch: LaunchSpec, count: int | None) -> None:
    """One a process; none where it computes on the processor; all under a device map."""
    assert gpus_of(launch) == count
