"""The devices of this machine, read from its drivers (NVIDIA's by NVML or `nvidia-smi -L`, AMD's from the kernel), and
which of them each replica gets: whole groups, none of them twice unless that was asked for.

Boards are named by their number in the order of the PCI bus, which every engine reads; vLLM up to 0.20 at least ends
with a UUID (github.com/vllm-project/vllm/issues/41848). MIG instances have no number and are named by UUID.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from tonnage.errors import InputError, PlanRefused
from tonnage.runs.devices import BUS_ORDER, list_boards, list_instances, name_of, open_nvml, uuid_of
from tonnage.values import dataclass

Vendor = Literal["nvidia", "amd"]
VISIBLE: Final = MappingProxyType({"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"})
Environment = tuple[tuple[str, str], ...]
LIST_TIMEOUT_S: Final = 10
KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
_BOARD: Final = re.compile(r"GPU (?P<index>\d+): (?P<model>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_INSTANCE: Final = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU of this machine, or a MIG instance: a part of a board with memory of its own. `index` is of the board, in
    the order of the PCI bus (AMD: of the driver's nodes); `instance` is the UUID of a MIG instance."""

    index: int
    uuid: str  # of the board
    model: str
    vendor: Vendor = "nvidia"
    instance: str | None = None

    @property
    def name(self) -> str:
        """What the variable of `VISIBLE` says."""
        return self.instance or str(self.index)


def visible_devices(devices: Sequence[Device], environ: Mapping[str, str]) -> tuple[Device, ...]:
    """Those that the variables of `environ` leave, in their order; all where none is set.

    Names are numbers or the beginning of UUIDs; what comes after an unknown name is not visible (CUDA's rule). A
    board that is cut up gives its first instance where the variable names the board. Numbers are by the PCI bus:
    InputError where CUDA_DEVICE_ORDER says that they are not and the boards differ.
    """
    _check_order(devices, environ)
    return tuple(one for vendor in VISIBLE for one in _visible(devices, vendor, environ))


def _visible(devices: Sequence[Device], vendor: str, environ: Mapping[str, str]) -> Iterator[Device]:
    ours = [one for one in devices if one.vendor == vendor]
    named = environ.get(VISIBLE[vendor])
    if named is None:
        yield from ours
        return
    for name in (part.strip() for part in named.split(",")):
        found = next((one for one in ours if _is_named(one, name)), None)
        if found is None:
            return
        yield found


def _check_order(devices: Sequence[Device], environ: Mapping[str, str]) -> None:
    """CUDA's own guess of which board is the fastest is stated nowhere. Among equal boards it goes by the bus too.

    Source: NVIDIA, «CUDA C++ Programming Guide», section «CUDA Environment Variables».
    """
    order, named = environ.get(BUS_ORDER[0]), environ.get(VISIBLE["nvidia"], "")
    models = {one.model for one in devices if one.vendor == "nvidia"}
    if order in (None, BUS_ORDER[1]) or len(models) < 2 or not any(part.strip().isdigit() for part in named.split(",")):
        return
    raise InputError(
        f"CUDA_DEVICE_ORDER={order}: which of {', '.join(sorted(models))} a number of CUDA_VISIBLE_DEVICES={named} "
        "means is not known",
        hint="export CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the boards by UUID (nvidia-smi -L)",
    )


def _is_named(device: Device, name: str) -> bool:
    if name.isdigit():
        return device.index == int(name)
    uuids = (device.uuid, *((device.instance,) if device.instance else ()))
    return len(name) > len("GPU-") and any(uuid.startswith(name) for uuid in uuids)


def device_groups(
    devices: Sequence[Device], *, each: int, shared_by: int = 1, most: int
) -> tuple[tuple[Device, ...], ...]:
    """For each of `most` replicas its `each` devices of one model, neighbours on the bus. Each group occurs `shared_by`
    times in turn: `shared_by` = 1 gives no device twice.

    Raises PlanRefused where there are too few, InputError where a replica would span MIG instances: they have no way
    to one another (NVIDIA, «Multi-Instance GPU User Guide», «Application Considerations»).
    """
    if each > 1 and any(one.instance for one in devices):
        raise InputError(f"a replica takes {each} devices, and MIG instances do not work together",
                         hint="CUDA_VISIBLE_DEVICES names boards that are not cut up")  # fmt: skip
    alike = [tuple(same) for _, same in groupby(sorted(devices, key=_kind), key=_kind)]
    groups = [same[at : at + each] for same in alike for at in range(0, len(same) - each + 1, each)]
    if len(groups) * shared_by < most:
        raise _too_few(devices, each, shared_by, most, len(groups) * shared_by)
    return tuple(group for _ in range(shared_by) for group in groups)


def _kind(device: Device) -> tuple[str, str]:
    return device.vendor, device.model


def _too_few(devices: Sequence[Device], each: int, shared_by: int, most: int, room: int) -> PlanRefused:
    sharing = f", {shared_by} replicas on a device" if shared_by > 1 else ""
    hint = f"--replicas with at most {room}" if room else "--dry-run prints the command to start elsewhere"
    if each == 1 and devices and shared_by == 1:
        hint += "; --replicas-per-gpu lets them share a device and its memory"
    return PlanRefused(
        f"{most} replicas of {each} GPUs each need {most * each}{sharing}; {len(devices)} are visible here, of which "
        f"{room} replicas can be made", hint=hint,
    )  # fmt: skip


def device_environment(group: Sequence[Device]) -> Environment:
    """The variables that give a process these devices and no others."""
    vendor = group[0].vendor
    order = (BUS_ORDER,) if vendor == "nvidia" else ()
    return (*order, (VISIBLE[vendor], ",".join(one.name for one in group)))


class DevicePool:
    """Groups of devices, and which replica has which."""

    def __init__(self, groups: Sequence[tuple[Device, ...]]) -> None:
        self._free = list(groups)
        self._taken: dict[str, tuple[Device, ...]] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, replica: str) -> tuple[Device, ...]:
        """The first free group, which `replica` has until it is given back."""
        self._taken[replica] = self._free.pop(0)
        return self._taken[replica]

    def give_back(self, replica: str) -> None:
        """The group of a replica that has ended; nothing where it had none."""
        group = self._taken.pop(replica, None)
        if group is not None:
            self._free.insert(0, group)

    def of(self, replica: str) -> tuple[Device, ...]:
        return self._taken.get(replica, ())


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
        properties = dict(line.split(" ", 1) for line in lines if " " in line)
        if int(properties.get("simd_count", "0")):
            uuid, model = (
                f"GPU-{int(properties.get('unique_id', '0')):x}",
                f"gfx {properties.get('gfx_target_version', 'unknown')}",
            )
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
