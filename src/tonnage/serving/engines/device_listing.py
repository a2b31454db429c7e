"""The devices of this machine, read from its drivers: NVIDIA's by NVML or `nvidia-smi -L`, AMD's from the kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tonnage.runs.devices import list_boards, list_instances, name_of, open_nvml, uuid_of
from tonnage.serving.engines.devices import Device, visible_devices

LIST_TIMEOUT_S: Final = 10
KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
_BOARD: Final = re.compile(r"GPU (?P<index>\d+): (?P<model>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_INSTANCE: Final = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")


def devices_here(say: Callable[[str], None]) -> tuple[Device, ...]:
    """Boards and MIG instances that this process may use; of a board that is cut up, its instances. `say` is called for
    what cannot be read."""
    nvml, _ = open_nvml()
    found = parse_listing(_listing()) if nvml is None else devices_by_nvml(nvml)
    return visible_devices((*found, *amd_devices(KFD, say)), os.environ)


def devices_by_nvml(nvml: Any) -> tuple[Device, ...]:
    """By the library, which is shut down then. A board that is lost is left out."""
    try:
        return tuple(device for board in list_boards(nvml) for device in _of_board(nvml, board))
    finally:
        nvml.nvmlShutdown()


def _of_board(nvml: Any, board: Any) -> Iterator[Device]:
    try:
        uuid, parts = uuid_of(nvml, board), list_instances(nvml, board)
        if not parts:
            yield Device(index=board.index, uuid=uuid, model=name_of(nvml, board))
        for part in parts:
            yield Device(index=board.index, uuid=uuid, model=name_of(nvml, part), instance=uuid_of(nvml, part))
    except nvml.NVMLError:
        return


def parse_listing(text: str) -> tuple[Device, ...]:
    """What `nvidia-smi -L` prints: a line for each board, its instances indented under it.

    >>> [device.name for device in parse_listing('''
    ... GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7f57f032)
    ...   MIG 2g.20gb     Device  0: (UUID: MIG-377e0049)
    ... GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-8c7c9c30)
    ... ''')]
    ['MIG-377e0049', '1']
    """
    found: list[Device] = []
    for line in text.splitlines():
        if (board := _BOARD.match(line)) is not None:
            found.append(Device(index=int(board["index"]), uuid=board["uuid"], model=board["model"]))
        elif found and (part := _INSTANCE.match(line)) is not None:
            above = found[-1]
            if above.instance is None:  # a board that is cut up is no device itself
                found.pop()
            model = f"{above.model.partition(' MIG ')[0]} MIG {part['profile']}"
            found.append(Device(index=above.index, uuid=above.uuid, model=model, instance=part["uuid"]))
    return tuple(found)


def _listing() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):  # a tool without a driver: no GPU that could be used
        return ""
    return done.stdout


def amd_devices(nodes: Path, say: Callable[[str], None]) -> tuple[Device, ...]:
    """The nodes of the kernel's compute driver that compute (`simd_count` above 0), in the order in which
    ROCR_VISIBLE_DEVICES counts them. Source: docs.kernel.org, amdgpu, and ROCm, «GPU isolation techniques».

    A node that a control group keeps from this process answers EPERM (Linux, amdkfd, kfd_topology.c,
    `kfd_devcgroup_check_permission`): it is left out, as ROCm leaves it out, and `say` is called.
    """
    found: list[Device] = []
    for node in _nodes(nodes, say):
        try:
            lines = (node / "properties").read_text().splitlines()
        except OSError as error:
            say(f"an AMD device is left out: {node / 'properties'} is not readable ({error.strerror})")
            continue
        told = dict(line.split(" ", 1) for line in lines if " " in line)
        if int(told.get("simd_count", "0")):
            uuid, model = f"GPU-{int(told.get('unique_id', '0')):x}", f"gfx {told.get('gfx_target_version', 'unknown')}"
            found.append(Device(index=len(found), uuid=uuid, model=model, vendor="amd"))
    return tuple(found)


def _nodes(folder: Path, say: Callable[[str], None]) -> list[Path]:
    """By number; none where there is no such driver."""
    try:
        return sorted((node for node in folder.iterdir() if node.name.isdigit()), key=lambda node: int(node.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        say(f"AMD's devices are left out: {folder} is not readable ({error.strerror})")
        return []
