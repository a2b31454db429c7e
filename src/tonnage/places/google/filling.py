"""A disk is filled without GPUs: a machine fetches onto it, then it is switched to be read by many, and copied.

Whoever calls again, after any death of an earlier client, finds disk, machine, snapshot and state by their names and
goes on: nothing is made twice, and nothing that has arrived is fetched again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import Body
from tonnage.places.bucket.filled import FillState, read_state, request_key, state_key
from tonnage.places.bucket.google import GoogleError
from tonnage.places.bucket.objects import Objects
from tonnage.places.contract import Orphan
from tonnage.places.google.compute import NO_CAPACITY, Compute
from tonnage.places.google.disks import (
    DIGEST,
    FILL,
    LABEL,
    READ_BY_MANY,
    Fill,
    disk_body,
    filling_machine,
    is_whole,
    snapshot_body,
)
from tonnage.places.states import JobView, Phase
from tonnage.units import to_gib
from tonnage.values import dataclass

MOST_STARTS: Final = 20  # of machines that spot takes away
PAUSE_S: Final = 5.0
OVER_TIME: Final = "scheduledVmTermination"
RIGHTS: Final = (
    "compute.disks.create", "compute.disks.createSnapshot", "compute.disks.delete", "compute.disks.get",
    "compute.disks.list", "compute.disks.setLabels", "compute.disks.update", "compute.disks.use",
    "compute.globalOperations.get", "compute.instances.create", "compute.instances.delete", "compute.instances.get",
    "compute.snapshots.create", "compute.snapshots.delete", "compute.snapshots.get", "compute.snapshots.setLabels",
    "compute.snapshots.useReadOnly", "compute.zoneOperations.get",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledDisk:
    """A disk that many machines can read now."""

    name: str
    zones: tuple[str, ...]
    digest: str  # of its files, as much of it as the label holds


@dataclass(frozen=True, kw_only=True)
class Filling:
    """One disk of a place, in all of the place's zones."""

    compute: Compute
    objects: Objects
    fill: Fill
    say: Callable[[str], None]
    pause_s: float = PAUSE_S

    def carry_out(self) -> FilledDisk:
        """Fill the disk in one zone, and copy it to the others; what is there already is taken.

        TonnageError where the content cannot be fetched, or Google refuses something.
        """
        self._check_rights()
        zones = self.fill.place.zones
        origin, disk = self._origin()
        if not is_whole(disk):
            disk = self._filled(origin, disk)
        digest = str(disk["labels"][DIGEST])
        for zone in zones:
            if zone != origin:
                self._copied(origin, zone, digest)
        self._delete(self._snapshot)
        return FilledDisk(name=self.fill.disk, zones=zones, digest=digest)

    def remove(self) -> tuple[str, ...]:
        """Delete machine, disks, snapshot and what the bucket says of them; their names."""
        gone = []
        for zone in self.fill.place.zones:
            job = f"{zone}/{self.fill.machine}"
            if self.compute.view(job).phase is not Phase.GONE:
                self._end_machine(zone)
                gone.append(f"{zone}/instances/{self.fill.machine}")
            disk = self._disk(zone)
            if disk is not None:
                self._delete(self._path(zone))
                self.objects.remove([request_key(disk["id"]), state_key(disk["id"])])
                gone.append(f"{zone}/disks/{self.fill.disk}")
        if self._delete(self._snapshot):
            gone.append(f"snapshots/{self.fill.disk}")
        return tuple(gone)

    def is_done(self) -> bool:
        """Whether every zone has the disk, and all of it is there."""
        found = [self._disk(zone) for zone in self.fill.place.zones]
        return all(disk is not None and is_whole(disk) for disk in found)

    # the disk

    def _origin(self) -> tuple[str, Body]:
        """The zone whose disk is whole, or is being filled; a new disk in the first zone where there is none."""
        zones = self.fill.place.zones
        found = {zone: disk for zone in zones if (disk := self._disk(zone)) is not None}
        whole = [zone for zone, disk in found.items() if is_whole(disk)]
        started = [zone for zone, disk in found.items() if not disk.get("sourceSnapshot")]
        if whole or started:
            zone = (whole or started)[0]
            return zone, found[zone]
        zone = zones[0]
        self.say(f"{zone}: the disk {self.fill.disk} of {self.fill.terms.size_gib:,} GiB is made")
        return zone, self._made_disk(zone, disk_body(self.fill, zone))

    def _disk(self, zone: str) -> Body | None:
        """As Google tells of it. TonnageError where one of this name holds something else."""
        found = self._got(self._path(zone))
        if found is not None and (found.get("labels") or {}).get(FILL) != self.fill.mark:
            raise TonnageError(f"{zone} has a disk {self.fill.disk} that `tonnage places fill` has not made",
                               hint=f"`gcloud compute disks describe {self.fill.disk} --zone {zone}`")  # fmt: skip
        return found

    def _made_disk(self, zone: str, body: Body) -> Body:
        self._insert(self._path(zone, ""), body)
        while True:
            found = self._disk(zone)
            if found is not None and found.get("status") == "READY":
                return found
            if found is None or found.get("status") in {"FAILED", "DELETING"}:
                raise TonnageError(f"{zone}: the disk {self.fill.disk} was not made", hint="the same command once more")
            self._pause()

    def _made_readable(self, zone: str, disk: Body, digest: str) -> Body:
        """The label first: a disk that many read and that has no label is not taken for whole."""
        labels = {**(disk.get("labels") or {}), DIGEST: digest[:LABEL]}
        body = {"labels": labels, "labelFingerprint": disk.get("labelFingerprint", "")}
        self._done(self.compute.call("POST", f"{self._path(zone)}/setLabels", body=body))
        if disk.get("accessMode") != READ_BY_MANY:
            change = {"name": self.fill.disk, "accessMode": READ_BY_MANY}
            self._done(self.compute.call("PATCH", self._path(zone), params={"paths": "accessMode"}, body=change))
        self.say(f"{zone}: many machines can read {self.fill.disk}")
        return {**disk, "labels": labels, "accessMode": READ_BY_MANY}

    def _copied(self, origin: str, zone: str, digest: str) -> None:
        disk = self._disk(zone)
        if disk is not None and is_whole(disk):
            return
        if disk is None:
            self._snapshot_of(origin)
            self.say(f"{zone}: the disk is copied from {origin}, nothing is fetched again")
            disk = self._made_disk(zone, disk_body(self.fill, zone, snapshot=self.fill.disk))
        elif not disk.get("sourceSnapshot"):
            raise TonnageError(f"{zone} and {origin} both have a disk {self.fill.disk} that was made empty",
                               hint=f"`gcloud compute disks delete {self.fill.disk} --zone {zone}`")  # fmt: skip
        self._made_readable(zone, disk, digest)

    def _snapshot_of(self, zone: str) -> None:
        if self._got(self._snapshot) is None:
            self._insert(f"projects/{self.fill.place.project}/global/snapshots", snapshot_body(self.fill, zone))
        while (found := self._got(self._snapshot) or {}).get("status") != "READY":
            if found.get("status") not in {"CREATING", "UPLOADING"}:
                raise TonnageError(f"the snapshot {self.fill.disk} was not made", hint="the same command once more")
            self._pause()

    # the machine

    def _filled(self, zone: str, disk: Body) -> Body:
        """Machines one after the other, until one has said that the disk is filled."""
        starts, seen, reported = 0, False, ""
        while True:
            view = self.compute.view(f"{zone}/{self.fill.machine}")
            state = self._state(disk)  # after the machine was looked at: what it said last is there by then
            if state.stage == "filled":
                self._end_machine(zone)
                files = f"{state.files:,} files, {to_gib(state.size_bytes):,.2f} GiB"
                self.say(f"{zone}: {files} are fetched and verified")
                return self._made_readable(zone, disk, state.digest)
            if view.phase is Phase.ENDED:
                raise self._failed(zone, state, view)
            if view.phase is Phase.GONE:
                if seen:
                    self._say_gone(zone, view, state)
                if starts == MOST_STARTS:
                    raise TonnageError(f"{zone}: {starts} machines were taken away before the disk was filled",
                                       hint=f"fill.{self.fill.name}.spot = false")  # fmt: skip
                self._start(zone, disk)
                starts, seen = starts + 1, True
                continue
            seen, now = True, f"{view.phase.value}, {to_gib(state.arrived_bytes):,.1f} GiB have arrived"
            if now != reported:
                reported = now
                self.say(f"{zone}: the machine is {now}")
            self._pause()

    def _start(self, zone: str, disk: Body) -> None:
        self.objects.write(request_key(disk["id"]), self.fill.request.content())
        self.objects.write(state_key(disk["id"]), FillState(stage="fetching").content())
        terms = self.fill.terms
        self.say(f"{zone}: {terms.instance_type}{' (spot)' if terms.spot else ''} fetches onto {self.fill.disk}")
        path = f"projects/{self.fill.place.project}/zones/{zone}/instances"
        self._insert(path, filling_machine(self.fill, zone, str(disk["id"])))

    def _say_gone(self, zone: str, view: JobView, state: FillState) -> None:
        """TonnageError where another machine would end as this one has."""
        if view.word == OVER_TIME:
            raise TonnageError(f"{zone}: the machine's time was over before the disk was filled",
                               hint=f"fill.{self.fill.name}.time_limit_minutes; what has arrived stays")  # fmt: skip
        if state.stage == "failed":
            raise TonnageError(f"{self.fill.disk}: {state.reason}", hint="mend it; the same command then goes on")
        self.say(f"{zone}: the machine is gone ({view.reason or 'no reason is known'}); another one goes on")

    def _failed(self, zone: str, state: FillState, view: JobView) -> TonnageError:
        """It stopped without having filled the disk; its console tells why where it did not."""
        reason = state.reason if state.stage == "failed" else view.reason or "it stopped"
        self._end_machine(zone)
        return TonnageError(f"{self.fill.disk}: {reason}", hint="mend it; the same command then goes on")

    def _end_machine(self, zone: str) -> None:
        job = f"{zone}/{self.fill.machine}"
        self.compute.end(job, "")
        while self.compute.view(job).phase is not Phase.GONE:
            self._pause()

    def _state(self, disk: Body) -> FillState:
        key = state_key(str(disk["id"]))
        found = self.objects.read(key)
        return FillState(stage="fetching") if found is None else read_state(found.content, key)

    # calls

    def _path(self, zone: str, name: str | None = None) -> str:
        above = f"projects/{self.fill.place.project}/zones/{zone}/disks"
        return above if name == "" else f"{above}/{name or self.fill.disk}"

    @property
    def _snapshot(self) -> str:
        return f"projects/{self.fill.place.project}/global/snapshots/{self.fill.disk}"

    def _got(self, path: str) -> Body | None:
        try:
            return self.compute.call("GET", path)
        except GoogleError as error:
            if error.status == 404:
                return None
            raise

    def _insert(self, path: str, body: Body) -> None:
        """Make it; what has the name already is there: names are those of the content."""
        try:
            self._done(self.compute.call("POST", path, params={"requestId": str(uuid.uuid4())}, body=body))
        except GoogleError as error:
            if error.status != 409:
                raise

    def _delete(self, path: str) -> bool:
        """Whether it was there."""
        try:
            self._done(self.compute.call("DELETE", path))
        except GoogleError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _done(self, operation: dict[str, Any]) -> None:
        """Wait for an operation. TonnageError with Google's own words where it fails."""
        zone = str(operation.get("zone") or "").rpartition("/")[2]
        scope = f"zones/{zone}" if zone else "global"
        path = f"projects/{self.fill.place.project}/{scope}/operations/{operation['name']}/wait"
        while operation["status"] != "DONE":
            operation = self.compute.call("POST", path)
        errors = (operation.get("error") or {}).get("errors") or ()
        if errors:
            code, words = str(errors[0]["code"]), "; ".join(str(one.get("message", "")) for one in errors)
            hint = f"fill.{self.fill.name}.instance_type, `spot = false` there, or other zones first"
            raise TonnageError(f"Google: {code}: {words}",
                               hint=hint if code in NO_CAPACITY else "the same command goes on")  # fmt: skip

    def _check_rights(self) -> None:
        path, wanted = f"v1/projects/{self.fill.place.project}:testIamPermissions", list(RIGHTS)
        answer = self.compute.call("POST", path, service="cloudresourcemanager", body={"permissions": wanted})
        if lacking := sorted(set(wanted) - set(answer.get("permissions") or ())):
            role = "--member user:YOU --role roles/compute.instanceAdmin.v1"
            hint = f"`gcloud projects add-iam-policy-binding {self.fill.place.project} {role}`"
            raise TonnageError(f"you may not: {', '.join(lacking)}", hint=hint)

    def _pause(self) -> None:
        self.compute.sleep(self.pause_s)


def left_behind(
    fills: tuple[Filling, ...], compute: Compute, home: str, *, end: bool, forget: Callable[[str], None]
) -> Iterator[Orphan]:
    """Disks, machines and snapshots of a home's fills that places.toml no longer names, or whose work is done.

    A disk that machines read stays, and is said to. `forget`: remove what the bucket says of a disk, by its id.
    """
    whole = {one.fill.mark: one.is_done() for one in fills}
    for path, kind in _kinds(compute):
        for one in _listed(compute, path, home):
            mark, users = str(one["labels"][FILL]), one.get("users") or ()
            if mark in whole and (kind == "disks" or not whole[mark]):
                continue
            why = "the disk is filled" if mark in whole else "places.toml names its content no more"
            stays = f"; {len(users)} machines read it: it stays" if users else ""
            name = f"{path.partition('/')[2].partition('/')[2]}/{one['name']}"
            yield Orphan(job_id=name, run=str(one["name"]), word=str(one.get("status", "")), why=why + stays)
            if end and not users:
                compute.call("DELETE", f"{path}/{one['name']}")
                if kind == "disks":
                    forget(str(one["id"]))


def _kinds(compute: Compute) -> Iterator[tuple[str, str]]:
    """Path and kind of all that a fill makes: machines first, which hold disks."""
    project = f"projects/{compute.place.project}"
    for kind in ("instances", "disks"):
        yield from ((f"{project}/zones/{zone}/{kind}", kind) for zone in compute.place.zones)
    yield f"{project}/global/snapshots", "snapshots"


def _listed(compute: Compute, path: str, home: str) -> Iterator[Body]:
    wanted = f'labels.tonnage-home = "{home}" AND labels.{FILL}:*'
    token: str | None = None
    while True:
        answer = compute.call("GET", path, params={"filter": wanted, **({"pageToken": token} if token else {})})
        yield from (
            one for one in answer.get("items") or ()
            if (one.get("labels") or {}).get("tonnage-place") == compute.name
        )  # fmt: skip
        token = answer.get("nextPageToken")
        if not token:
            return
