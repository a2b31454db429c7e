"""What is asked of Compute Engine to fill a disk: the disk, the machine that fills it, copies in other zones. Pure.

Sources: the discovery document of compute v1; Google, «About Hyperdisk ML», «Share disks between instances».
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.bucket.boot import docker_words, first_script
from tonnage.places.bucket.cloud import Body, Work, google_labels
from tonnage.places.bucket.filled import FillRequest
from tonnage.places.google import machine
from tonnage.places.google.fill_terms import FillTerms, filled_disk
from tonnage.places.google.place import DATA, GCEPlace
from tonnage.places.google.schema import check_disk, check_snapshot
from tonnage.values import dataclass

PROGRAM: Final = "tonnage.supervisor.fill"
HYPERDISK_ML: Final = "hyperdisk-ml"
WRITTEN_BY_ONE, READ_BY_MANY = "READ_WRITE_SINGLE", "READ_ONLY_MANY"
FILL: Final = "tonnage-fill"  # label: the content's key, as much as a label holds
DIGEST: Final = "tonnage-digest"  # label of a disk that is whole: of all its files
LABEL: Final = 60  # characters of a key in a label, of 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A disk of a place: what is on it, and who asks for it."""

    name: str  # in places.toml
    terms: FillTerms
    place: GCEPlace
    place_name: str
    home: str
    owner: str

    @property
    def disk(self) -> str:
        return filled_disk(self.name, self.terms)

    @property
    def machine(self) -> str:
        return f"t-fill-{self.terms.key[:12]}-{self.home}"

    @property
    def mark(self) -> str:
        """Of the content, in labels."""
        return self.terms.key[:LABEL]

    @property
    def labels(self) -> dict[str, str]:
        tags = {FILL: self.mark, "tonnage-home": self.home, "tonnage-place": self.place_name,
                "tonnage-owner": self.owner, **self.place.labels}  # fmt: skip
        return google_labels(tags)

    @property
    def request(self) -> FillRequest:
        terms = self.terms
        return FillRequest(
            key=terms.key, sources=terms.sources, include=terms.include, exclude=terms.exclude, sums=terms.sums
        )


def disk_body(fill: Fill, zone: str, *, snapshot: str | None = None) -> Body:
    """An empty disk that one machine writes to, or a copy of one that is filled."""
    here = f"projects/{fill.place.project}/zones/{zone}"
    body: Body = {
        "name": fill.disk, "type": f"{here}/diskTypes/{HYPERDISK_ML}", "sizeGb": str(fill.terms.size_gib),
        "accessMode": WRITTEN_BY_ONE, "labels": fill.labels,
        "description": f"made by `tonnage places fill {fill.place_name}`",
    }  # fmt: skip
    if fill.terms.throughput_mib_per_s is not None:
        body["provisionedThroughput"] = str(fill.terms.throughput_mib_per_s)
    if fill.place.kms_key is not None:
        body["diskEncryptionKey"] = {"kmsKeyName": fill.place.kms_key}
    if snapshot is not None:
        body["sourceSnapshot"] = f"projects/{fill.place.project}/global/snapshots/{snapshot}"
    check_disk(body)
    return body


def snapshot_body(fill: Fill, zone: str) -> Body:
    """Of the filled disk: what copies in other zones are made from."""
    body: Body = {
        "name": fill.disk, "sourceDisk": f"projects/{fill.place.project}/zones/{zone}/disks/{fill.disk}",
        "storageLocations": [fill.place.region], "labels": fill.labels,
    }  # fmt: skip
    if fill.place.kms_key is not None:
        body["snapshotEncryptionKey"] = {"kmsKeyName": fill.place.kms_key}
    check_snapshot(body)
    return body


def filling_place(fill: Fill) -> GCEPlace:
    """The place, with the machine that fetches in place of the one with GPUs."""
    terms, place = fill.terms, fill.place
    changed: dict[str, Any] = {
        "instance_type": terms.instance_type, "gpus": 0, "gpu": None, "gpu_memory_gib": None, "accelerator": None,
        "gpu_subnets": (), "second_subnet": None, "reservation": None, "disk_type": None, "spot": terms.spot,
        "purchase": None,
        "data_disks": (), "fill": {}, "setup": (), "mount": f"{DATA}/{fill.name}", "image": terms.image or place.image,
        "boot_image": terms.boot_image or place.boot_image, "time_limit_minutes": terms.time_limit_minutes,
        "usd_per_hour": terms.usd_per_hour, "nodes": 1, "placement_policy": None, "flex_start": False,
        "reservation_bound": False, "gpudirect": False,
    }  # fmt: skip
    return place.model_copy(update=changed)


def filling_machine(fill: Fill, zone: str, disk_id: str) -> Body:
    """The machine: it mounts the disk, fetches in the image, unmounts the disk, says so, and ends. The disk stays."""
    place = filling_place(fill)
    here = f"projects/{place.project}/zones/{zone}"
    body = machine.instance(place, _work(fill, disk_id, "--unmounted"), zone)
    body["disks"].append({
        "source": f"{here}/disks/{fill.disk}", "deviceName": fill.name, "mode": "READ_WRITE", "boot": False,
        "autoDelete": False,
    })  # fmt: skip
    with_lines = place.model_copy(update={"setup": filling_lines(fill, disk_id)})
    last = _work(fill, disk_id, "--unmounted")
    script = first_script(with_lines, last, login=machine.login(place.image), end=machine.end_script(place, last, zone))
    items: list[Mapping[str, Any]] = body["metadata"]["items"]
    body["metadata"]["items"] = [
        {**one, "value": script} if one["key"] == "startup-script" else one for one in items
    ]  # fmt: skip
    return body


def filling_lines(fill: Fill, disk_id: str) -> tuple[str, ...]:
    """Before the last container says that the disk is filled: it is, and it is no longer mounted."""
    place = filling_place(fill)
    fetches = shlex.join(docker_words(place, _work(fill, disk_id)))
    folder = shlex.quote(place.mount)
    return (*mount_lines(fill), *machine.login(place.image), fetches, f"sync; umount {folder}")


def mount_lines(fill: Fill) -> tuple[str, ...]:
    """A new disk gets a file system; one that was written to is put right before."""
    device, folder = f"/dev/disk/by-id/google-{fill.name}", shlex.quote(f"{DATA}/{fill.name}")
    return (
        f"blkid {device} > /dev/null || mkfs.ext4 -q -m 0 -E lazy_itable_init=0,discard {device}",
        f"fsck.ext4 -p {device} > /dev/null || [ $? -le 1 ]",
        f"mkdir -p {folder}; mountpoint -q {folder} || mount -o noatime {device} {folder}",
    )


def is_whole(disk: Mapping[str, Any]) -> bool:
    """Whether many machines can read a disk that was filled, and all of its content is there."""
    return disk.get("accessMode") == READ_BY_MANY and DIGEST in (disk.get("labels") or {})


def _work(fill: Fill, disk_id: str, *more: str) -> Work:
    place = filling_place(fill)
    secret = [] if place.secret_address is None or more else ["--secret", place.secret_address]
    words = (place.python, "-m", PROGRAM, "--store", place.store_there, "--disk", disk_id, "--folder", place.mount,
             "--every-s", f"{2 * place.exchange_s:g}", *secret, *more)  # fmt: skip
    return Work(
        name=fill.machine, run=fill.disk, token=fill.terms.key[:12], home=fill.home, tag="", owner=fill.owner,
        command=words, env={"PYTHONUNBUFFERED": "1"}, tags=fill.labels, max_cost_usd=None,
    )  # fmt: skip
