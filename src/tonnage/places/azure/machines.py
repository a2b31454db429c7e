"""Azure's virtual machines: one for each submission, that deletes itself after its work, or is evicted by Spot.

Several for one run are a scale set: `tonnage.places.azure.scale_sets`.

Sources: Azure's Compute REST API 2026-04-01 and its official Python models; «Use Azure Spot Virtual Machines»,
«Scheduled Events for Linux VMs», «States and billing of VMs» (a machine that is switched off from inside is billed),
«Error messages for Azure Spot and scale sets», «Authenticate with an Azure container registry».
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.body_shapes import check_body, recorded_schemas
from tonnage.places.azure.checks import questions_of
from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.azure import MANAGEMENT, AzureClient, AzureError, management_url, read_signed
from tonnage.places.bucket.boot import POWER_OFF, first_script, last_words
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.patching import merged
from tonnage.places.states import JobView, Phase
from tonnage.values import dataclass

API_VERSION: Final = "2026-04-01"  # of Microsoft.Compute: that of the recorded models
NETWORK_API: Final = "2022-11-01"  # of the card that is made with the machine
CREATE: Final = "VirtualMachines_CreateOrUpdate"
MOST_CUSTOM_DATA: Final = 65_535  # bytes, in base64
IDENTITY: Final = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
ACR_USER: Final = "00000000-0000-0000-0000-000000000000"  # of a login with a token
WAIT_S: Final = 900.0  # for a machine to be made: Azure looks for capacity in it
PAUSE_S: Final = 3.0
NO_CAPACITY: Final = frozenset({
    "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "SkuNotAvailable",
    "OverconstrainedZonalAllocationRequest", "SpotCapacityNotAvailable",
})  # fmt: skip
POWER: Final[Mapping[str, Phase]] = {
    "starting": Phase.PROVISIONING, "running": Phase.RUNNING, "stopping": Phase.ENDING, "stopped": Phase.ENDED,
    "deallocating": Phase.ENDING, "deallocated": Phase.ENDED,
}  # fmt: skip
PROVISIONING: Final[Mapping[str, Phase]] = {
    "Creating": Phase.PROVISIONING, "Deleting": Phase.ENDING, "Failed": Phase.ENDED, "Canceled": Phase.ENDED,
}  # fmt: skip
EVICTED: Final = "Azure no longer has the machine: spot has evicted it, or somebody has deleted it"


@dataclass(frozen=True, kw_only=True)
class AzureMachines:
    """One place of the kind `azure`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when Azure looks for it"),
        DeclaredGap(
            verb="teardown",
            reason="Azure ends no machine by itself: one that may not delete itself, and whose client never returns, "
            "is billed until it is deleted",
        ),
        DeclaredGap(
            verb="preemption", whole=True,
            reason="Azure starts nothing again when spot evicts a machine: `resume` does, or `--on any`",
        ),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ("azure",)
    name: str
    place: AzurePlace
    attempts: int = ATTEMPTS  # of each call
    sleep: Callable[[float], None] = time.sleep

    @cached_property
    def client(self) -> AzureClient:
        return AzureClient(attempts=self.attempts, sleep=self.sleep)

    def call(self, method: str, path: str, *, version: str = API_VERSION, **more: Any) -> dict[str, Any]:
        """The answer of the Resource Manager. AzureError where it refuses."""
        params = {"api-version": version, **more.pop("params", {})}
        return self.client.call(method, management_url(path), params=params, **more)

    def _machine(self, name: str) -> str:
        return f"{self.place.group}/providers/Microsoft.Compute/virtualMachines/{name}"

    def requests(self, work: Work) -> tuple[Request, ...]:
        """One for each zone, in their order: the first that has capacity is taken, the others are not asked."""
        return tuple(self._request(work, zone) for zone in self.place.zones or ("",))

    def _request(self, work: Work, zone: str) -> Request:
        body = merged(machine_of(self.place, work, zone), self.place.patch.get(CREATE, {}))
        check_body(body, recorded_schemas(__package__, "vm_schema.json"), "VirtualMachine", CREATE)
        size = len(str(body["properties"]["osProfile"].get("customData", "")))
        if size > MOST_CUSTOM_DATA:
            said = f"the machine's first script has {size} bytes in base64, {MOST_CUSTOM_DATA} at most"
            raise InputError(said, hint="a shorter `setup`")
        path = self._machine(name_in(work.name, zone))
        return Request(service=f"PUT {MANAGEMENT}{path}?api-version={API_VERSION}", operation=CREATE, body=body)

    def send(self, requests: tuple[Request, ...], token: str) -> str:  # noqa: ARG002 - the machine's name has it
        """The machine's name. To put one of a name again changes nothing."""
        refused: dict[str, tuple[str, str]] = {}
        for zone, request in zip(self.place.zones or ("",), requests, strict=True):
            name = request.service.partition("?")[0].rpartition("/")[2]
            why = self._create(name, request.body)
            if why is None:
                return name
            self._remove_failed(name)
            refused[f"zone {zone}" if zone else self.place.region] = why
            if why[0] not in NO_CAPACITY:
                break
        raise nothing_started(refused, self.name)

    def _create(self, name: str, body: Body) -> tuple[str, str] | None:
        return self.put(self._machine(name), body)

    def put(self, path: str, body: Body) -> tuple[str, str] | None:
        """Make a resource. Code and words of a refusal; None where it is there."""
        name = path.rpartition("/")[2]
        try:
            answer = self.client.send("PUT", management_url(path), params={"api-version": API_VERSION}, json=body)
        except AzureError as error:
            if error.status in {400, 409} and error.reason:
                return (error.reason, error.message)
            raise
        operation = answer.headers.get("azure-asyncoperation")
        until = time.monotonic() + WAIT_S
        while operation is not None:
            told = self.client.call("GET", operation)
            if told["status"] not in {"InProgress", "Running", "Accepted"}:
                why = told.get("error") or {}
                done = told["status"] == "Succeeded"
                return None if done else (str(why.get("code") or told["status"]), str(why.get("message") or ""))
            if time.monotonic() > until:
                message = f"{name} is not made after {WAIT_S:.0f} s"
                raise TonnageError(message, hint="`tonnage resume`, or `tonnage places orphans --end`")
            self.sleep(PAUSE_S)
        return None

    def find(self, token: str) -> str | None:
        """The machine that was made for a submission, in whichever zone."""
        return next((name for name, one in self._listed() if tags_of(one).get("tonnage-token") == token), None)

    def view(self, job_id: str) -> JobView:
        try:
            told = self.call("GET", self._machine(job_id), params={"$expand": "instanceView"})
        except AzureError as error:
            if error.status == 404:
                reason = EVICTED if self.place.spot else ""
                return JobView(phase=Phase.GONE, job_id=job_id, word="gone" if reason else "", reason=reason)
            raise
        view = view_of(job_id, told)
        if view.phase is not Phase.ENDED:
            return view
        said = last_words(self.console(job_id))
        return JobView(phase=view.phase, job_id=job_id, word=view.word, reason=said or view.reason)

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the machine's name is enough
        """Deleted with its disk and its card."""
        self._delete(job_id)

    def _remove_failed(self, name: str) -> None:
        """What Azure has left of a machine that it did not make; one that lives under the name is not touched."""
        try:
            made = self.call("GET", self._machine(name)).get("properties", {}).get("provisioningState")
        except AzureError as error:
            if error.status == 404:
                return
            raise
        if made == "Failed":
            self._delete(name)

    def _delete(self, name: str) -> None:
        self.delete(self._machine(name))

    def delete(self, path: str) -> None:
        """A resource, where it is there."""
        self.client.send("DELETE", management_url(path), params={"api-version": API_VERSION}, accept=(404,))

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        """Those that have stopped are among them: switched off from inside, they are billed whole."""
        found = []
        for name, one in self._listed():
            tags = tags_of(one)
            if tags.get("tonnage-home") == home:
                found.append(
                    TaggedCloudJob(job_id=name, tag=tags.get("tonnage", ""), view=still_there(self.view(name)))
                )
        return found

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.call, self.place, name=self.name)

    def _listed(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Machines that are in no scale set."""
        listed = self.listed("virtualMachines")
        return ((name, one) for name, one in listed if "virtualMachineScaleSet" not in (one.get("properties") or {}))

    def listed(self, kind: str, **params: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """All of a kind in the resource group, by name."""
        answer = self.call("GET", f"{self.place.group}/providers/Microsoft.Compute/{kind}", params=params)
        while True:
            yield from ((str(one["name"]), one) for one in answer.get("value") or ())
            if not answer.get("nextLink"):
                return
            answer = self.client.call("GET", answer["nextLink"])

    def console(self, name: str) -> str:
        """What the machine wrote to its console; empty where Azure does not have it."""
        try:
            told = self.call("POST", f"{self._machine(name)}/retrieveBootDiagnosticsData")
        except AzureError:
            return ""
        return read_signed(str(told.get("serialConsoleLogBlobUri") or ""))


def still_there(view: JobView) -> JobView:
    """What has ended and is there is billed until it is deleted."""
    phase = Phase.ENDING if view.phase is Phase.ENDED else view.phase
    return JobView(phase=phase, job_id=view.job_id, word=view.word, reason=view.reason)


def name_in(name: str, zone: str) -> str:
    """A machine's name in a zone: what a failed one of another zone leaves is not in its way.

    >>> name_in("t-first-0a1b2c3d-0123456789ab", "2")
    't-first-0a1b2c3d-0123456789ab-2'
    """
    return f"{name}-{zone}" if zone else name


def machine_of(place: AzurePlace, work: Work, zone: str, *, itself: str = "") -> Body:
    """The machine. Nothing reaches it; disk and card go with it; secrets are named alone.

    `itself`: shell for the machine's own path, where its name is not known before.
    """
    disk: Body = {
        "createOption": "FromImage", "deleteOption": "Delete", "diskSizeGB": place.disk_gib, "caching": "ReadWrite",
        "managedDisk": {"storageAccountType": place.disk_type},
    }  # fmt: skip
    if place.disk_encryption_set is not None:
        disk["managedDisk"]["diskEncryptionSet"] = {"id": place.disk_encryption_set}
    own = itself or f"{place.group}/providers/Microsoft.Compute/virtualMachines/{name_in(work.name, zone)}"
    script = first_script(place, work, login=login(place.image), end=end_script(own))
    key = {"path": "/home/tonnage/.ssh/authorized_keys", "keyData": place.ssh_public_key}
    properties: Body = {
        "hardwareProfile": {"vmSize": place.instance_type},
        "storageProfile": {"imageReference": _image(place.boot_image), "osDisk": disk},
        "osProfile": {
            "computerName": name_in(work.name, zone), "adminUsername": "tonnage",
            "customData": base64.b64encode(script.encode()).decode(), "allowExtensionOperations": False,
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
        },
        "networkProfile": {"networkApiVersion": NETWORK_API, "networkInterfaceConfigurations": [_card(place, work)]},
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        **_bought(place),
    }  # fmt: skip
    body: Body = {
        "location": place.region, "tags": {key: value[:256] for key, value in work.tags.items()},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {place.identity: {}}},
        "properties": properties,
    }  # fmt: skip
    return {**body, "zones": [zone]} if zone else body


def _bought(place: AzurePlace) -> Body:
    """Spot: evicted is deleted, so that no disk is left; -1 is the price of on-demand."""
    if place.spot:
        price = -1 if place.most_usd_per_hour is None else place.most_usd_per_hour
        return {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": price}}
    if place.capacity_reservation is not None:
        return {"capacityReservation": {"capacityReservationGroup": {"id": place.capacity_reservation}}}
    return {}


def _card(place: AzurePlace, work: Work) -> Body:
    address: Body = {"primary": True, "subnet": {"id": place.subnet_id}}
    if place.public_address:
        address["publicIPAddressConfiguration"] = {
            "name": "out", "sku": {"name": "Standard"}, "properties": {"deleteOption": "Delete"}
        }  # fmt: skip
    return {
        "name": f"{work.name}-nic",
        "properties": {
            "primary": True, "deleteOption": "Delete",
            "ipConfigurations": [{"name": "first", "properties": address}],
        },
    }  # fmt: skip


def _image(text: str) -> Body:
    if text.startswith("/"):
        member = {"/Sha": "sharedGalleryImageId", "/Com": "communityGalleryImageId"}.get(text[:4], "id")
        return {member: text}
    return dict(zip(("publisher", "offer", "sku", "version"), text.split(":"), strict=True))


def _token(resource: str) -> str:
    """Shell: the identity's token for a service."""
    return f"$(curl -sf -H Metadata:true '{IDENTITY}&resource={resource}' | {_field('access_token')})"


def _field(name: str) -> str:
    return f"""sed -E 's/.*"{name}" *: *"([^"]+)".*/\\1/'"""


def login(image: str) -> tuple[str, ...]:
    """Lines that sign a machine in at Azure's registry, where the image is there; its identity is enough."""
    host = image.partition("/")[0]
    if not host.endswith(".azurecr.io"):
        return ()
    given = f"grant_type=access_token&service={host}&access_token={_token('https://management.azure.com/')}"
    exchange = f'curl -sf https://{host}/oauth2/exchange -d "{given}" | {_field("refresh_token")}'
    return (f"{exchange} | docker login -u {ACR_USER} --password-stdin {host}",)


def end_script(machine: str) -> str:
    """A machine whose work is done deletes itself, where its identity may; one whose work failed lets its capacity go
    and keeps its console. Else it is switched off, and billed until the client deletes it.
    """
    header = f'-H "Authorization: Bearer {_token("https://management.azure.com/")}"'
    version = f"api-version={API_VERSION}"
    return (
        f'MACHINE="{MANAGEMENT}{machine}"\n'
        'if [ "${EXIT_STATUS:-1}" = 0 ]; then\n'
        f'  curl -sf -X DELETE {header} "$MACHINE?{version}" && exit 0\n'
        "else\n"
        f"  curl -sf -X POST -d '' {header} \"$MACHINE/deallocate?{version}\" && exit 0\n"
        f"fi\n{POWER_OFF}"
    )


def view_of(job_id: str, told: Mapping[str, Any]) -> JobView:
    """A machine as the Resource Manager tells of it.

    >>> view_of("t", {"properties": {"provisioningState": "Creating"}}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    properties = told.get("properties") or {}
    made = str(properties.get("provisioningState") or "")
    statuses = (properties.get("instanceView") or {}).get("statuses") or ()
    reason = next((str(one.get("message")) for one in statuses if "/failed" in one["code"] and one.get("message")), "")
    power = next((one["code"].partition("/")[2] for one in statuses if one["code"].startswith("PowerState/")), "")
    if made in {"Deleting", "Failed", "Canceled"} or not power:
        phase = PROVISIONING.get(made, Phase.PROVISIONING)
        return JobView(phase=phase, job_id=job_id, word=made, reason=reason)
    return JobView(phase=POWER.get(power, Phase.PROVISIONING), job_id=job_id, word=power, reason=reason)


def tags_of(told: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = told.get("tags") or {}
    return found


def nothing_started(refused: Mapping[str, tuple[str, str]], name: str) -> TonnageError:
    words = "; ".join(f"{where}: {code}: {said}" for where, (code, said) in refused.items())
    capacity = all(code in NO_CAPACITY for code, _ in refused.values())
    hint = "more zones, another size or region, `spot = false`, or `--on any`" if capacity else (
        f"`tonnage places check {name}`"
    )  # fmt: skip
    return TonnageError(f"Azure made no machine: {words}", hint=hint)
