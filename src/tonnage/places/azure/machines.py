"""Azure's virtual machines: one for each submission, that deletes itself after its work, or is evicted by Spot.

Several for one run are a scale set: `tonnage.places.azure.scale_sets`.

Sources: Azure's Compute REST API 2026-04-01 and its official Python models; «Use Azure Spot Virtual Machines»,
«Scheduled Events for Linux VMs», «States and billing of VMs» (a machine that is switched off from inside is billed),
«Error messages for Azure Spot and scale sets», «Authenticate with an Azure container registry».
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.body_shapes import check_body, recorded_schemas
from tonnage.places.azure.checks import questions_of
from tonnage.places.azure.machine import API_VERSION, MOST_CUSTOM_DATA, machine_of, name_in
from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.azure import MANAGEMENT, AzureClient, AzureError, management_url, read_signed
from tonnage.places.bucket.boot import last_words
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

CREATE: Final = "VirtualMachines_CreateOrUpdate"
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
            state = self.client.call("GET", operation)
            if state["status"] not in {"InProgress", "Running", "Accepted"}:
                why = state.get("error") or {}
                done = state["status"] == "Succeeded"
                return None if done else (str(why.get("code") or state["status"]), str(why.get("message") or ""))
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
            machine = self.call("GET", self._machine(job_id), params={"$expand": "instanceView"})
        except AzureError as error:
            if error.status == 404:
                reason = EVICTED if self.place.spot else ""
                return JobView(phase=Phase.GONE, job_id=job_id, word="gone" if reason else "", reason=reason)
            raise
        view = view_of(job_id, machine)
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
            diagnostics = self.call("POST", f"{self._machine(name)}/retrieveBootDiagnosticsData")
        except AzureError:
            return ""
        return read_signed(str(diagnostics.get("serialConsoleLogBlobUri") or ""))


def still_there(view: JobView) -> JobView:
    """What has ended and is there is billed until it is deleted."""
    phase = Phase.ENDING if view.phase is Phase.ENDED else view.phase
    return JobView(phase=phase, job_id=view.job_id, word=view.word, reason=view.reason)


def view_of(job_id: str, machine: Mapping[str, Any]) -> JobView:
    """A machine as the Resource Manager tells of it.

    >>> view_of("t", {"properties": {"provisioningState": "Creating"}}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    properties = machine.get("properties") or {}
    made = str(properties.get("provisioningState") or "")
    statuses = (properties.get("instanceView") or {}).get("statuses") or ()
    reason = next((str(one.get("message")) for one in statuses if "/failed" in one["code"] and one.get("message")), "")
    power = next((one["code"].partition("/")[2] for one in statuses if one["code"].startswith("PowerState/")), "")
    if made in {"Deleting", "Failed", "Canceled"} or not power:
        phase = PROVISIONING.get(made, Phase.PROVISIONING)
        return JobView(phase=phase, job_id=job_id, word=made, reason=reason)
    return JobView(phase=POWER.get(power, Phase.PROVISIONING), job_id=job_id, word=power, reason=reason)


def tags_of(machine: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = machine.get("tags") or {}
    return found


def nothing_started(refused: Mapping[str, tuple[str, str]], name: str) -> TonnageError:
    words = "; ".join(f"{where}: {code}: {said}" for where, (code, said) in refused.items())
    capacity = all(code in NO_CAPACITY for code, _ in refused.values())
    hint = "more zones, another size or region, `spot = false`, or `--on any`" if capacity else (
        f"`tonnage places check {name}`"
    )  # fmt: skip
    return TonnageError(f"Azure made no machine: {words}", hint=hint)
