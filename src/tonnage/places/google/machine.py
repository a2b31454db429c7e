"""The body of a Compute Engine instance, the scripts that it runs, and several instances at once by
`instances.bulkInsert`: all of them in one zone, or none. Pure.

Sources: the discovery document of compute v1 (BulkInsertInstanceResource: `minCount`; InstanceProperties: names and no
addresses of machine type, disk type, accelerator, placement policy); Google, «Spot VMs», «Limit the run time of a VM»,
«Create a VM that uses a startup script», «About bulk creation of VMs».
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.places.bucket.boot import POWER_OFF, first_script
from tonnage.places.bucket.cloud import Body, Work, google_labels
from tonnage.places.bucket.filled import FILLED
from tonnage.places.google.gpudirect import METADATA, OF_TYPES, machine_lines
from tonnage.places.google.place import DataDisk, GCEPlace

BULK_INSERT: Final = "instances.bulkInsert"
NUMBER_DIGITS: Final = 3  # of a machine among those of a run, from 000
MOST_NAME: Final = 63  # characters of an instance's name
FEW: Final = "VM_MIN_COUNT_NOT_REACHED"  # of a whole request; why is in the operations of its group
NOT_PROPERTIES: Final = ("name", "deletionProtection", "params")  # members of an instance that several have not


def instance(place: GCEPlace, work: Work, zone: str) -> Body:
    """The machine. Nothing reaches it, its disk goes with it, secrets are named alone."""
    here = f"projects/{place.project}/zones/{zone}"
    disk: Body = {
        "boot": True, "autoDelete": True,
        "initializeParams": {
            "sourceImage": place.boot_image, "diskSizeGb": str(place.disk_gib),
            "diskType": f"{here}/diskTypes/{place.disk}", "labels": google_labels(work.tags),
        },
    }  # fmt: skip
    if place.kms_key is not None:
        disk["diskEncryptionKey"] = {"kmsKeyName": place.kms_key}
    lines = (*mounts(place), *_direct_lines(place), *login(place.image))
    metadata = {
        "startup-script": first_script(place, work, login=lines, end=end_script(place, work, zone)),
        "tonnage-tag": work.tag, "block-project-ssh-keys": "TRUE", "serial-port-enable": "FALSE",
    }  # fmt: skip
    body: Body = {
        "name": work.name, "machineType": f"{here}/machineTypes/{place.instance_type}",
        "labels": google_labels({"name": work.run, **work.tags}),
        "disks": [disk, *(_attached(here, one) for one in place.read_disks)],
        "networkInterfaces": _interfaces(place),
        "serviceAccounts": [
            {"email": place.service_account, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
        ],
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "scheduling": _scheduling(place),
        "shieldedInstanceConfig": {"enableVtpm": True, "enableIntegrityMonitoring": True},
        "deletionProtection": False,
    }  # fmt: skip
    if place.accelerator is not None:
        kind = f"{here}/acceleratorTypes/{place.accelerator}"
        body["guestAccelerators"] = [{"acceleratorType": kind, "acceleratorCount": place.gpus}]
    if place.reservation is not None:
        body["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION", "values": [place.reservation],
            "key": "compute.googleapis.com/reservation-name",
        }  # fmt: skip
    if place.placement_policy is not None:
        policy = f"projects/{place.project}/regions/{place.region}/resourcePolicies/{place.placement_policy}"
        body["resourcePolicies"] = [policy]
    if place.flex_start:
        body["params"] = {"requestValidForDuration": {"seconds": str(place.max_wait_minutes * 60)}}
        body["reservationAffinity"] = {"consumeReservationType": "NO_RESERVATION"}
    return body


def _direct_lines(place: GCEPlace) -> tuple[str, ...]:
    """What joins the GPUs of several machines, started before the container."""
    kind = place.direct
    if kind is None:
        return ()
    plugin, daemon = place.gpudirect_plugin or kind.plugin, place.gpudirect_daemon or kind.daemon
    images = (plugin, daemon) if daemon is not None else (plugin,)
    signed_in = dict.fromkeys(line for image in images for line in login(image))
    return (*signed_in, *machine_lines(kind, plugin=plugin, daemon=daemon))


def _attached(here: str, disk: DataDisk) -> Body:
    """A disk that many machines read at once; it stays."""
    read: Body = {"mode": "READ_ONLY", "boot": False, "autoDelete": False}
    return {"source": f"{here}/disks/{disk.name}", "deviceName": disk.device, **read}


def mounts(place: GCEPlace) -> tuple[str, ...]:
    """Lines that mount the data disks, ext4, whose journal nobody may replay; a filled one has to hold its content."""
    return tuple(line for disk in place.read_disks for line in _mounted(disk))


def _mounted(disk: DataDisk) -> Iterator[str]:
    folder, key = disk.folder, disk.filled_with
    mount = f"mount -o ro,noload /dev/disk/by-id/google-{disk.device} {folder}"
    yield f"mkdir -p {folder}; mountpoint -q {folder} || {mount}"
    if key is not None:
        said = f"echo 'the disk {disk.name} does not hold what places.toml says' >&2"
        yield f"grep -q {key} {folder}/{FILLED} || {{ {said}; exit 1; }}"


def _scheduling(place: GCEPlace) -> Body:
    """Google itself deletes the machine when its time is over, and when spot takes it.

    One that is bound to its reservation ends with that; its own time ends it by systemd's limit alone.
    """
    stays = not (place.gpus or place.spot or place.flex_start)
    model = (
        "SPOT" if place.spot else "FLEX_START" if place.flex_start
        else "RESERVATION_BOUND" if place.reservation_bound else "STANDARD"
    )  # fmt: skip
    limit: Body = {"maxRunDuration": {"seconds": str(place.time_limit_minutes * 60)}}
    return {
        "provisioningModel": model, "automaticRestart": False, "instanceTerminationAction": "DELETE",
        **({} if place.reservation_bound else limit), **({} if stays else {"onHostMaintenance": "TERMINATE"}),
    }  # fmt: skip


def _interfaces(place: GCEPlace) -> list[Body]:
    """Google's own virtual card, which all newer machine types need; one more for each card beside GPUs."""
    kind = OF_TYPES.get(place.instance_type)
    nic = "GVNIC" if kind is None else kind.nic
    second = [] if place.second_subnet is None else [place.second_subnet]
    outside = {"accessConfigs": [{"name": "out", "type": "ONE_TO_ONE_NAT"}]} if place.public_address else {}
    first: Body = {"subnetwork": subnet_of(place, place.subnet), "nicType": "GVNIC", **outside}
    more = [*((one, "GVNIC") for one in second), *((one, nic) for one in place.gpu_subnets)]
    return [first, *({"subnetwork": subnet_of(place, name), "nicType": kind_of} for name, kind_of in more)]


def subnet_of(place: GCEPlace, name: str) -> str:
    """The whole address of a subnet."""
    return name if "/" in name else f"projects/{place.project}/regions/{place.region}/subnetworks/{name}"


def login(image: str) -> tuple[str, ...]:
    """Lines that sign a machine in at Google's registry, where the image is there; its service account is enough."""
    host = image.partition("/")[0]
    if not host.endswith("-docker.pkg.dev"):
        return ()
    token = f"curl -sf -H Metadata-Flavor:Google {METADATA}/service-accounts/default/token"
    return (f"{token} | {_ACCESS_TOKEN} | docker login -u oauth2accesstoken --password-stdin {host}",)


_ACCESS_TOKEN: Final = """sed -E 's/.*"access_token" *: *"([^"]+)".*/\\1/'"""


def end_script(place: GCEPlace, work: Work, zone: str) -> str:
    """A machine whose work is done deletes itself, where its service account may; else it stops.

    One whose work failed stops, so that its console can be read: the client deletes it.
    """
    name = work.name if place.nodes == 1 else f"$(curl -sf -H Metadata-Flavor:Google {METADATA}/name)"
    address = f"https://compute.googleapis.com/compute/v1/projects/{place.project}/zones/{zone}/instances/{name}"
    token = f"$(curl -sf -H Metadata-Flavor:Google {METADATA}/service-accounts/default/token | {_ACCESS_TOKEN})"
    return (
        f'if [ "${{EXIT_STATUS:-1}}" = 0 ]; then\n'
        f'  curl -sf -X DELETE -H "Authorization: Bearer {token}" {address} && exit 0\n'
        f"fi\n{POWER_OFF}"
    )


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
