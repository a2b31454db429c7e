"""Several instances for one run, by `instances.bulkInsert`: all of them in one zone, or none. Pure.

Sources: the discovery document of compute v1 (BulkInsertInstanceResource: `minCount`; InstanceProperties: names and no
addresses of machine type, disk type, accelerator, placement policy); Google, «About bulk creation of VMs».
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tonnage.places.bucket.cloud import Body, Work
from tonnage.places.google.place import GCEPlace

BULK_INSERT: Final = "instances.bulkInsert"
NUMBER_DIGITS: Final = 3  # of a machine among those of a run, from 000
MOST_NAME: Final = 63  # characters of an instance's name
FEW: Final = "VM_MIN_COUNT_NOT_REACHED"  # of a whole request; why is in the operations of its group
NOT_PROPERTIES: Final = ("name", "deletionProtection", "params")  # members of an instance that several have not


def machine_names(work: Work, count: int) -> tuple[str, ...]:
    """Names that are the same whoever sends the request: the run's part is cut where all would be too long."""
    end = f"-{work.home}-{work.token}"
    begins = work.name.removesuffix(end)[: MOST_NAME - len(end) - NUMBER_DIGITS - 1].rstrip("-")
    return tuple(f"{begins}{end}-{number:0{NUMBER_DIGITS}d}" for number in range(count))


def base_of(name: str) -> str:
    """What the names of a run's machines begin with.

    >>> base_of("t-bert-0a1b2c3d-0123456789ab-007")
    't-bert-0a1b2c3d-0123456789ab'
    """
    return name.rpartition("-")[0]


def named_by(base: str) -> str:
    """The expression of Compute Engine's filters (RE2) for all machines of a run."""
    return f"{base}-[0-9]{{{NUMBER_DIGITS}}}"


def numbered(base: str, count: int) -> tuple[str, ...]:
    """The names of so many machines."""
    return tuple(f"{base}-{number:0{NUMBER_DIGITS}d}" for number in range(count))


def instances(place: GCEPlace, work: Work, one: Body) -> Body:
    """The request for all, of the body of one."""
    properties = {key: value for key, value in one.items() if key not in NOT_PROPERTIES}
    properties["machineType"] = _name(properties["machineType"])
    properties["disks"] = [_disk(disk) for disk in properties["disks"]]
    if "guestAccelerators" in properties:
        properties["guestAccelerators"] = [
            {**card, "acceleratorType": _name(card["acceleratorType"])} for card in properties["guestAccelerators"]
        ]
    if "resourcePolicies" in properties:
        properties["resourcePolicies"] = [_name(policy) for policy in properties["resourcePolicies"]]
    count = str(place.nodes)
    return {
        "count": count, "minCount": count,
        "perInstanceProperties": {name: {} for name in machine_names(work, place.nodes)},
        "instanceProperties": properties,
    }  # fmt: skip


def _disk(disk: Mapping[str, Any]) -> Body:
    if "source" in disk:  # one that is there, of the zone: by its name
        return {**disk, "source": _name(disk["source"])}
    made = disk["initializeParams"]
    return {**disk, "initializeParams": {**made, "diskType": _name(made["diskType"])}}


def _name(address: str) -> str:
    return address.rpartition("/")[2]


def causes(operations: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Code and words of what went wrong in the operations of a group, each once."""
    found = (
        (str(error["code"]), str(error.get("message") or ""))
        for one in operations for error in (one.get("error") or {}).get("errors") or ()
    )  # fmt: skip
    return list(dict.fromkeys(one for one in found if one[0] != FEW))


def refusal(errors: Sequence[tuple[str, str]], capacity: frozenset[str]) -> tuple[str, str]:
    """The one that decides what follows: another than lacking capacity goes first, since no other zone mends it."""
    return next((one for one in errors if one[0] not in capacity), errors[0])
