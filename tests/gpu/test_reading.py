"""What Tonnage reads of a GPU against what its driver's own tool says of it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Home

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]


def by_tool(*names: str) -> list[dict[str, str]]:
    """Figures of each board as `nvidia-smi` prints them, without units."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    return [dict(zip(names, (part.strip() for part in line.split(",")), strict=True)) for line in lines if line]


def test_samples_are_what_the_tool_says(cuda: str) -> None:
    """Names, memory, temperature and power of every board, with what moves between two readings let be."""
    from tonnage.monitoring.gpus import Gpus

    gpus = Gpus(environ={})
    assert cuda
    assert gpus.why_none is None
    try:
        samples = gpus.sample()
    finally:
        gpus.close()
    told = by_tool("index", "name", "memory.total", "memory.used", "memory.reserved", "temperature.gpu", "power.draw")
    assert [one.index for one in samples] == [int(one["index"]) for one in told]
    for sample, tool in zip(samples, told, strict=True):
        assert sample.fault is None
        assert sample.name == tool["name"]
        assert sample.memory_total_bytes is not None
        assert sample.memory_used_bytes is not None
        assert sample.memory_total_bytes / 2**20 == pytest.approx(float(tool["memory.total"]), abs=2)
        used = float(tool["memory.used"])
        most = used + float(tool["memory.reserved"])  # NVML's older reading counts what the driver keeps
        assert used - 4096 <= sample.memory_used_bytes / 2**20 <= most + 4096  # other tests run beside this one
        assert sample.temperature_c == pytest.approx(float(tool["temperature.gpu"]), abs=15)
        assert sample.power_w is not None
        assert 10 < sample.power_w < 1500
        assert sample.utilization_fraction is not None
        assert 0 <= sample.utilization_fraction <= 1
        assert sample.energy_j is None or sample.energy_j > 0


def test_the_machine_as_runs_see_it(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many GPUs as the tool lists, and by UUID the one that is named."""
    from tonnage.runners.machine import look_at_machine, parse_nvidia_smi

    assert cuda
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    told = by_tool("name", "memory.total", "uuid")
    found = look_at_machine().gpus
    listed = parse_nvidia_smi("".join(f"{one['name']}, {one['memory.total']}\n" for one in told))
    assert [one.name for one in found] == [one.name for one in listed]
    assert [one.memory_gib for one in found] == pytest.approx([one.memory_gib for one in listed], abs=0.01)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told[-1]["uuid"])
    assert len(look_at_machine().gpus) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert look_at_machine().gpus == ()


def test_cuda_and_nvml_count_alike(cuda: str) -> None:
    """With the order that runs are given, the first device of PyTorch is the first of NVML."""
    import os
    import sys

    from tonnage.runs.devices import BUS_ORDER, list_boards, open_nvml, uuid_of

    code = (
        "import torch; print(*(torch.cuda.get_device_properties(at).uuid for at in range(torch.cuda.device_count())))"
    )
    environ = {**os.environ, **dict([BUS_ORDER])}
    environ.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    nvml, why = open_nvml()
    assert nvml is not None, why
    assert [f"GPU-{uuid}" for uuid in done.stdout.split()] == [uuid_of(nvml, board) for board in list_boards(nvml)]
    assert cuda


def test_doctor_sees_it(home: Home, cuda: str) -> None:
    """`tonnage doctor` names the board and its driver, and finds no fault with PyTorch's build."""
    done = home.tonnage("doctor", "-o", "json", good=False)
    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    (tool, *_) = by_tool("name", "driver_version")
    assert checks["gpu"]["status"] == "ok"
    assert tool["name"] in checks["gpu"]["found"]
    assert tool["driver_version"] in checks["gpu"]["found"]
    assert checks["torch build"]["status"] == "ok"
    assert cuda
