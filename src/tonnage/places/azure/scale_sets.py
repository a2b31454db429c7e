"""Several of Azure's virtual machines for one run: a scale set of flexible orchestration, whole or not at all.

Sources: Azure's Compute REST API 2026-04-01; «Orchestration modes for Virtual Machine Scale Sets» (machines of a
flexible scale set are ordinary ones, have no way out by default, and are not joined by InfiniBand), «Virtual Machines -
List» (`$filter` by scale set, with which alone it expands the instance view).
"""

from __future__ import annotations

import time
from typing import Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.body_shapes import check_body, recorded_schemas
from tonnage.places.azure.machine import API_VERSION, IDENTITY, MOST_CUSTOM_DATA, machine_of, name_in
from tonnage.places.azure.machines import (
    EVICTED,
    NO_CAPACITY,
    PROVISIONING,
    WAIT_S,
    AzureMachines,
    nothing_started,
    still_there,
    tags_of,
    view_of,
)
from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.azure import MANAGEMENT, AzureError
from tonnage.places.bucket.boot import last_words
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.several import joint_view
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

CREATE_SET: Final = "VirtualMachineScaleSets_CreateOrUpdate"
KIND: Final = "virtualMachineScaleSets"
MARK: Final = "scale-set/"  # before the name of one in a job's id
MACHINES: Final = "tonnage-machines"  # the tag that says how many it has to have
ITSELF: Final = (
    f"$(curl -sf -H Metadata:true '{IDENTITY.partition('/metadata')[0]}/metadata/instance/compute/resourceId"
    "?api-version=2021-02-01&format=text')"
)  # shell: a machine's own path
PAUSE_S: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class AzureScaleSets(AzureMachines):
    """One place of the kind `azure`: of one machine a run, or of several."""

    def requests(self, work: Work) -> tuple[Request, ...]:
        if self.place.nodes == 1:
            return super().requests(work)
        return tuple(self._set_request(work, zone) for zone in self.place.zones or ("",))

    def _set_request(self, work: Work, zone: str) -> Request:
        body = merged(scale_set_of(self.place, work, zone), self.place.patch.get(CREATE_SET, {}))
        check_body(body, recorded_schemas(__package__, "vm_schema.json"), "VirtualMachineScaleSet", CREATE_SET)
        size = len(str(body["properties"]["virtualMachineProfile"]["osProfile"].get("customData", "")))
        if size > MOST_CUSTOM_DATA:
            said = f"the machines' first script has {size} bytes in base64, {MOST_CUSTOM_DATA} at most"
            raise InputError(said, hint="a shorter `setup`")
        path = self._set(name_in(work.name, zone))
        return Request(service=f"PUT {MANAGEMENT}{path}?api-version={API_VERSION}", operation=CREATE_SET, body=body)

    def _set(self, name: str) -> str:
        return f"{self.place.group}/providers/Microsoft.Compute/{KIND}/{name}"

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The scale set's name. One that is there is not put again: Azure would replace machines that have ended."""
        if requests[0].operation != CREATE_SET:
            return super().send(requests, token)
        if (there := self._found_set(token)) is not None:
            self._wait_until_made(there)
            return MARK + there
        refused: dict[str, tuple[str, str]] = {}
        for request in requests:
            name = request.service.partition("?")[0].rpartition("/")[2]
            [zone] = request.body.get("zones") or [""]
            why = self.put(self._set(name), request.body) or self._too_few(name, self.place.nodes)
            if why is None:
                return MARK + name
            self.delete(self._set(name))  # with the machines that it has: too few are none
            refused[f"zone {zone}" if zone else self.place.region] = why
            if why[0] not in NO_CAPACITY:
                break
        raise nothing_started(refused, self.name)

    def _too_few(self, name: str, wanted: int) -> tuple[str, str] | None:
        """Code and words where the set has fewer machines than it was to have."""
        has = len(self._members(name))
        return None if has >= wanted else ("AllocationFailed", f"it had {has} of {wanted} machines, which are deleted")

    def _wait_until_made(self, name: str) -> None:
        until = time.monotonic() + WAIT_S
        while (self._set_or_none(name) or {}).get("properties", {}).get("provisioningState") in {
            "Creating",
            "Updating",
        }:
            if time.monotonic() > until:
                raise TonnageError(f"{name} is not made after {WAIT_S:.0f} s",
                                   hint="`tonnage resume`, or `tonnage places orphans --end`")  # fmt: skip
            self.sleep(PAUSE_S)

    def find(self, token: str) -> str | None:
        there = self._found_set(token)
        return super().find(token) if there is None else MARK + there

    def _found_set(self, token: str) -> str | None:
        sets = self.listed(KIND)
        return next((name for name, one in sets if tags_of(one).get("tonnage-token") == token), None)

    def view(self, job_id: str) -> JobView:
        if not job_id.startswith(MARK):
            return super().view(job_id)
        name = job_id.removeprefix(MARK)
        found = self._set_or_none(name)
        if found is None:
            return JobView(phase=Phase.GONE, job_id=job_id)
        made = str((found.get("properties") or {}).get("provisioningState") or "")
        if made in PROVISIONING:
            return JobView(phase=PROVISIONING[made], job_id=job_id, word=made)
        view = self._joint_view(name, int(tags_of(found).get(MACHINES) or 0))
        return JobView(phase=view.phase, job_id=job_id, word=view.word, reason=view.reason)

    def _joint_view(self, name: str, wanted: int) -> JobView:
        """Of all machines, those that are no longer there among them: why the first has ended is why the job ends."""
        views = []
        for machine, one in sorted(self._members(name).items()):
            view = view_of(machine, one)
            said = last_words(self.console(machine)) if view.phase is Phase.ENDED else ""
            views.append(JobView(phase=view.phase, job_id=machine, word=view.word, reason=said or view.reason))
        missing, reason = max(0, wanted - len(views)), EVICTED if self.place.spot else ""
        gone = JobView(phase=Phase.GONE, job_id=f"{missing} of {wanted} machines", word="gone", reason=reason)
        views += [gone] if missing else []
        return joint_view(views)

    def _members(self, name: str) -> dict[str, dict[str, Any]]:
        wanted = {"$filter": f"'virtualMachineScaleSet/id' eq '{self._set(name)}'", "$expand": "instanceView"}
        return dict(self.listed("virtualMachines", **wanted))

    def _set_or_none(self, name: str) -> dict[str, Any] | None:
        try:
            return self.call("GET", self._set(name))
        except AzureError as error:
            if error.status == 404:
                return None
            raise

    def end(self, job_id: str, token: str) -> None:
        """Deleted with all machines, their disks and their cards."""
        if job_id.startswith(MARK):
            self.delete(self._set(job_id.removeprefix(MARK)))
        else:
            super().end(job_id, token)

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        sets = [
            TaggedCloudJob(job_id=MARK + name, tag=tags_of(one).get("tonnage", ""),
                           view=still_there(self.view(MARK + name)))
            for name, one in self.listed(KIND) if tags_of(one).get("tonnage-home") == home
        ]  # fmt: skip
        return [*super().tagged(home), *sets]


def scale_set_of(place: AzurePlace, work: Work, zone: str) -> Body:
    """The set: every machine as one alone would be, but that it learns its own name when it ends."""
    machine = machine_of(place, work, zone, itself=ITSELF)
    properties: Body = machine.pop("properties")
    properties.pop("hardwareProfile")
    system: Body = properties.pop("osProfile")
    system.pop("computerName")
    profile: Body = {**properties, "osProfile": {**system, "computerNamePrefix": f"t-{work.token}"}}
    near = place.proximity_placement_group
    return {
        **machine, "tags": {**machine["tags"], MACHINES: str(place.nodes)},
        "sku": {"name": place.instance_type, "capacity": place.nodes},
        "properties": {
            "orchestrationMode": "Flexible", "platformFaultDomainCount": 1, "virtualMachineProfile": profile,
            **({} if near is None else {"proximityPlacementGroup": {"id": near}}),
        },
    }  # fmt: skip
