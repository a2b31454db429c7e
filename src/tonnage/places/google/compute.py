"""Compute Engine instances: one for each submission, that ends with its work, its time or its spot capacity.

Sources: the discovery document of compute v1; Google, «Spot VMs», «Limit the run time of a VM», «Request IDs»,
«Create a VM that uses a startup script», «Viewing serial port output».
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.boot import POWER_OFF, first_script, last_words
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work, google_labels
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.bucket.filled import FILLED
from tonnage.places.bucket.google import GoogleClient, GoogleError, endpoint_of
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.google.checks import questions_of
from tonnage.places.google.place import DataDisk, GCEPlace
from tonnage.places.google.schema import check_instance
from tonnage.places.patching import merged
from tonnage.places.states import JobView, Phase
from tonnage.values import dataclass

INSERT: Final = "instances.insert"
METADATA: Final = "http://metadata.google.internal/computeMetadata/v1/instance"
IDS: Final = uuid.UUID("6f0d7e9c-2d53-4a94-9c11-9f8f4a2f7a10")  # of request ids: one of ours for each token and zone
WAIT_S: Final = 300.0  # for an operation: Google looks for capacity in it
PAUSE_S: Final = 2.0
PHASES: Final[Mapping[str, Phase]] = {
    "PENDING": Phase.QUEUED, "PROVISIONING": Phase.PROVISIONING, "STAGING": Phase.PROVISIONING,
    "RUNNING": Phase.RUNNING, "REPAIRING": Phase.RUNNING, "PENDING_STOP": Phase.ENDING, "STOPPING": Phase.ENDING,
    "SUSPENDING": Phase.ENDING, "DEPROVISIONING": Phase.ENDING, "SUSPENDED": Phase.ENDED, "STOPPED": Phase.ENDED,
    "TERMINATED": Phase.ENDED,
}  # fmt: skip
NO_CAPACITY: Final = frozenset({"ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                                "UNSUPPORTED_OPERATION", "RESOURCE_POOL_EXHAUSTED"})  # fmt: skip
BY_GOOGLE: Final = {
    "compute.instances.preempted": "Spot took the machine",
    "compute.instances.hostError": "the host failed",
    "compute.instances.terminateOnHostMaintenance": "the host went into maintenance",
    "compute.instances.scheduledVmTermination": "the machine's time was over",
}  # operation types: what they mean
BY_A_USER: Final = frozenset({"delete", "stop"})


@dataclass(frozen=True, kw_only=True)
class Compute:
    """One place of the kind `gce`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when Google looks for it"),
        DeclaredGap(
            verb="preemption", whole=True,
            reason="Google starts nothing again when spot takes a machine: `resume` does, or `--on any`",
        ),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ("gcp",)
    name: str
    place: GCEPlace
    attempts: int = ATTEMPTS  # of each call
    sleep: Callable[[float], None] = time.sleep

    @cached_property
    def client(self) -> GoogleClient:
        return GoogleClient(attempts=self.attempts, sleep=self.sleep)

    def call(self, method: str, path: str, *, service: str = "compute", **more: Any) -> dict[str, Any]:
        """The answer of an API of the project. GoogleError where it refuses."""
        return self.client.call(method, f"{endpoint_of(service)}{path}", **more)

    def _zone(self, zone: str) -> str:
        return f"projects/{self.place.project}/zones/{zone}"

    def requests(self, work: Work) -> tuple[Request, ...]:
        """One for each zone, in their order: the first that has capacity is taken, the others are not asked."""
        return tuple(self._request(work, zone) for zone in self.place.zones)

    def _request(self, work: Work, zone: str) -> Request:
        body = merged(instance(self.place, work, zone), self.place.patch.get(INSERT, {}))
        check_instance(body)
        address = f"POST compute/v1/{self._zone(zone)}/instances?requestId={request_id(work.token, zone)}"
        return Request(service=address, operation=INSERT, body=body)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """ZONE/NAME of the instance. A request that is sent again has the same id: Google carries it out once."""
        refused: dict[str, tuple[str, str]] = {}
        for zone, request in zip(self.place.zones, requests, strict=True):
            name = str(request.body["name"])
            codes = self._insert(zone, request.body, token)
            if not codes:
                return f"{zone}/{name}"
            refused[zone] = codes
            if codes[0] not in NO_CAPACITY:
                break
        raise _nothing_started(refused, self.name)

    def _insert(self, zone: str, body: Body, token: str) -> tuple[str, str] | tuple[()]:
        """Code and words of a refusal; empty where the instance is there."""
        path = f"{self._zone(zone)}/instances"
        try:
            operation = self.call("POST", path, params={"requestId": request_id(token, zone)}, body=body)
        except GoogleError as error:
            if error.status == 409 and self._is_ours(zone, str(body["name"]), token):
                return ()
            if error.reason.upper() in NO_CAPACITY:
                return (error.reason.upper(), error.message)
            raise
        until = time.monotonic() + WAIT_S
        while operation["status"] != "DONE":
            if time.monotonic() > until:
                message = f"{zone}: the instance is not made after {WAIT_S:.0f} s"
                raise TonnageError(message, hint="`tonnage resume`, or `tonnage places orphans --end`")
            operation = self.call("POST", f"{self._zone(zone)}/operations/{operation['name']}/wait")
        errors = (operation.get("error") or {}).get("errors") or ()
        return (str(errors[0]["code"]), "; ".join(str(one.get("message", "")) for one in errors)) if errors else ()

    def _is_ours(self, zone: str, name: str, token: str) -> bool:
        found = self._described(f"{zone}/{name}")
        return found is not None and (found.get("labels") or {}).get("tonnage-token") == token

    def find(self, token: str) -> str | None:
        """The instance that was made for a submission, in whichever zone."""
        return next((job_id for job_id, _ in self._listed(f'labels.tonnage-token = "{token}"')), None)

    def view(self, job_id: str) -> JobView:
        found = self._described(job_id)
        if found is None:
            return self._gone(job_id)
        view = view_of(job_id, found)
        if view.phase is not Phase.ENDED:
            return view
        said = last_words(self._console(job_id))
        return JobView(phase=view.phase, job_id=job_id, word=view.word, reason=said or view.reason)

    def _gone(self, job_id: str) -> JobView:
        """Of an instance that is no more: who ended it, by the zone's operations, which Google keeps for a while."""
        zone, _, name = job_id.partition("/")
        query = {"filter": f'targetLink eq ".*/instances/{name}"', "orderBy": "creationTimestamp desc"}
        kinds = [
            str(one.get("operationType")) for one in
            self.call("GET", f"{self._zone(zone)}/operations", params=query).get("items") or ()
        ]  # fmt: skip
        by_google = next((kind for kind in kinds if kind in BY_GOOGLE), None)
        if by_google is not None:
            return JobView(
                phase=Phase.GONE, job_id=job_id, word=by_google.rpartition(".")[2], reason=BY_GOOGLE[by_google]
            )
        return JobView(phase=Phase.GONE, job_id=job_id)

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the instance's name is enough
        """Deleted with its disk; the machine's ACPI signal comes first."""
        zone, _, name = job_id.partition("/")
        try:
            self.call("DELETE", f"{self._zone(zone)}/instances/{name}")
        except GoogleError as error:
            if error.status != 404:
                raise

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        """Those that have stopped are among them: their disks are billed."""
        found = []
        for job_id, one in self._listed(f'labels.tonnage-home = "{home}"'):
            items = {item["key"]: item.get("value", "") for item in (one.get("metadata") or {}).get("items") or ()}
            view = view_of(job_id, one)
            phase = Phase.ENDING if view.phase is Phase.ENDED else view.phase
            view = JobView(phase=phase, job_id=job_id, word=view.word, reason=view.reason)
            found.append(TaggedCloudJob(job_id=job_id, tag=str(items.get("tonnage-tag", "")), view=view))
        return found

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.call, self.place, name=self.name)

    def _described(self, job_id: str) -> dict[str, Any] | None:
        zone, _, name = job_id.partition("/")
        try:
            return self.call("GET", f"{self._zone(zone)}/instances/{name}")
        except GoogleError as error:
            if error.status == 404:
                return None
            raise

    def _listed(self, wanted: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for zone in self.place.zones:
            token: str | None = None
            while True:
                params = {"filter": wanted, **({"pageToken": token} if token else {})}
                answer = self.call("GET", f"{self._zone(zone)}/instances", params=params)
                for one in answer.get("items") or ():
                    yield f"{zone}/{one['name']}", one
                token = answer.get("nextPageToken")
                if not token:
                    break

    def _console(self, job_id: str) -> str:
        """What the machine wrote to its first serial port; empty where Google does not have it."""
        zone, _, name = job_id.partition("/")
        try:
            return str(self.call("GET", f"{self._zone(zone)}/instances/{name}/serialPort").get("contents") or "")
        except GoogleError:
            return ""


def request_id(token: str, zone: str) -> str:
    """What makes a request one and the same, however often it is sent: a UUID, as Google wants it."""
    return str(uuid.uuid5(IDS, f"{token}/{zone}"))


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
    lines = (*mounts(place), *login(place.image))
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
    return body


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
    """Google itself deletes the machine when its time is over, and when spot takes it."""
    moves: Body = {"onHostMaintenance": "TERMINATE"} if place.gpus or place.spot else {}
    return {
        "provisioningModel": "SPOT" if place.spot else "STANDARD", "automaticRestart": False,
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(place.time_limit_minutes * 60)}, **moves,
    }  # fmt: skip


def _interfaces(place: GCEPlace) -> list[Body]:
    """Google's own virtual card, which all newer machine types need; one more for each card beside GPUs."""
    outside = {"accessConfigs": [{"name": "out", "type": "ONE_TO_ONE_NAT"}]} if place.public_address else {}
    first: Body = {"subnetwork": subnet_of(place, place.subnet), "nicType": "GVNIC", **outside}
    return [first, *({"subnetwork": subnet_of(place, one), "nicType": "GVNIC"} for one in place.gpu_subnets)]


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
    address = f"https://compute.googleapis.com/compute/v1/projects/{place.project}/zones/{zone}/instances/{work.name}"
    token = f"$(curl -sf -H Metadata-Flavor:Google {METADATA}/service-accounts/default/token | {_ACCESS_TOKEN})"
    return (
        f'if [ "${{EXIT_STATUS:-1}}" = 0 ]; then\n'
        f'  curl -sf -X DELETE -H "Authorization: Bearer {token}" {address} && exit 0\n'
        f"fi\n{POWER_OFF}"
    )


def view_of(job_id: str, told: Mapping[str, Any]) -> JobView:
    """An instance as instances.get tells of it.

    >>> view_of("us-central1-a/t", {"name": "t", "status": "STAGING"}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    word = str(told.get("status") or "")
    phase = PHASES.get(word, Phase.PROVISIONING)
    return JobView(phase=phase, job_id=job_id, word=word, reason=str(told.get("statusMessage") or ""))


def _nothing_started(refused: Mapping[str, tuple[str, str] | tuple[()]], name: str) -> TonnageError:
    words = "; ".join(f"{zone}: {': '.join(why)}" for zone, why in refused.items())
    capacity = all(why and why[0] in NO_CAPACITY for why in refused.values())
    hint = "more zones, another type or region, `spot = false`, or `--on any`" if capacity else (
        f"`tonnage places check {name}`"
    )  # fmt: skip
    return TonnageError(f"Google started no instance: {words}", hint=hint)
