"""Which devices each replica of a machine gets: whole groups, none of them twice unless that was asked for.

Boards are named by their number in the order of the PCI bus, which every engine reads; vLLM up to 0.20 at least ends
with a UUID (github.com/vllm-project/vllm/issues/41848). MIG instances have no number and are named by UUID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal

from tonnage.errors import InputError, PlanRefused
from tonnage.runs.devices import BUS_ORDER
from tonnage.values import dataclass

Vendor = Literal["nvidia", "amd"]
VISIBLE: Final = MappingProxyType({"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"})
Environment = tuple[tuple[str, str], ...]


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

    Names are numbers or the beginning of UUIDs; what comes after a name that is none is not visible (CUDA's rule). A
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
