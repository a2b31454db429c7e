"""Compute Engine instances for each submission, that end with its work, its time or their spot capacity.

A run has one or several; of several all are started in one zone, or none.

Sources: the discovery document of compute v1; Google, «Request IDs», «Viewing serial port output».
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.boot import last_words
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.bucket.google import GoogleClient, GoogleError, endpoint_of
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.google.checks import questions_of
from tonnage.places.google.machine import (
    BULK_INSERT,
    FEW,
    base_of,
    causes,
    instance,
    instances,
    named_by,
    numbered,
    refusal,
)
from tonnage.places.google.place import GCEPlace
from tonnage.places.google.schema import check_instance, check_instances
from tonnage.places.several import JOINT, joint_view
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

INSERT: Final = "instances.insert"
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
                                "UNSUPPORTED_OPERATION", "RESOURCE_POOL_EXHAUSTED", FEW})  # fmt: skip
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
        if self.place.nodes > 1:
            return self._bulk_request(work, zone, body)
        check_instance(body)
        address = f"POST compute/v1/{self._zone(zone)}/instances?requestId={request_id(work.token, zone)}"
        return Request(service=address, operation=INSERT, body=body)

    def _bulk_request(self, work: Work, zone: str, one: Body) -> Request:
        body = merged(instances(self.place, work, one), self.place.patch.get(BULK_INSERT, {}))
        check_instances(body)
        address = f"POST compute/v1/{self._zone(zone)}/instances/bulkInsert?requestId={request_id(work.token, zone)}"
        return Request(service=address, operation=BULK_INSERT, body=body)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """ZONE/NAME of each instance. A request that is sent again has the same id: Google carries it out once."""
        refused: dict[str, tuple[str, str]] = {}
        for zone, request in zip(self.place.zones, requests, strict=True):
            codes = self._insert(zone, request, token)
            if not codes:
                return JOINT.join(f"{zone}/{name}" for name in _names(request.body))
            refused[zone] = codes
            if codes[0] not in NO_CAPACITY:
                break
        raise _nothing_started(refused, self.name)

    def _insert(self, zone: str, request: Request, token: str) -> tuple[str, str] | tuple[()]:
        """Code and words of a refusal; empty where the instances are there."""
        path = f"{self._zone(zone)}/instances{'' if request.operation == INSERT else '/bulkInsert'}"
        names = _names(request.body)
        try:
            operation = self.call("POST", path, params={"requestId": request_id(token, zone)}, body=request.body)
        except GoogleError as error:
            if error.status == 409 and all(self._is_ours(zone, name, token) for name in names):
                return ()
            if error.reason.upper() in NO_CAPACITY:
                return (error.reason.upper(), error.message)
            raise
        until = time.monotonic() + WAIT_S
        while operation["status"] != "DONE":
            if self.place.flex_start and self._is_ours(zone, names[0], token):
                return ()  # it waits for its capacity, and its state says so
            if time.monotonic() > until:
                message = f"{zone}: {', '.join(names)}: not made after {WAIT_S:.0f} s"
                raise TonnageError(message, hint="`tonnage resume`, or `tonnage places orphans --end`")
            operation = self.call("POST", f"{self._zone(zone)}/operations/{operation['name']}/wait")
        return self._refused(zone, operation)

    def _refused(self, zone: str, operation: Mapping[str, Any]) -> tuple[str, str] | tuple[()]:
        """Why an operation failed, of several machines by the operations of each; empty where it did not."""
        errors = [
            (str(one["code"]), str(one.get("message") or "")) for one in
            (operation.get("error") or {}).get("errors") or ()
        ]  # fmt: skip
        if errors and errors[0][0] == FEW and (group := operation.get("operationGroupId")):
            errors = causes(self._operations(zone, f'operationGroupId eq "{group}"')) or errors
        if not errors:
            return ()
        code, _ = refusal(errors, NO_CAPACITY)
        return code, "; ".join(dict.fromkeys(words for _, words in errors if words))

    def _operations(self, zone: str, wanted: str) -> list[dict[str, Any]]:
        query = {"filter": wanted, "orderBy": "creationTimestamp desc"}
        found: list[dict[str, Any]] = (
            self.call("GET", f"{self._zone(zone)}/operations", params=query).get("items") or []
        )
        return found

    def _is_ours(self, zone: str, name: str, token: str) -> bool:
        found = self._described(f"{zone}/{name}")
        return found is not None and (found.get("labels") or {}).get("tonnage-token") == token

    def find(self, token: str) -> str | None:
        """The instances that were made for a submission, in whichever zone; of several also those not there yet."""
        found = [job_id for job_id, _ in self._listed(f'labels.tonnage-token = "{token}"')]
        if not found or self.place.nodes == 1:
            return JOINT.join(sorted(found)) or None
        zone, _, name = found[0].partition("/")
        expected = {f"{zone}/{one}" for one in numbered(base_of(name), self.place.nodes)}
        return JOINT.join(sorted(expected.union(found)))

    def view(self, job_id: str) -> JobView:
        machines = job_id.split(JOINT)
        found = self._described_all(machines)
        ends = self._ends([one for one in machines if one not in found])
        view = joint_view([view_of(one, found[one]) if one in found else ends[one] for one in machines])
        if view.phase is not Phase.ENDED:
            return view
        stopped = [one for one in machines if one in found]
        said = next(filter(None, (last_words(self._console(one)) for one in stopped)), "")
        return JobView(phase=view.phase, job_id=job_id, word=view.word, reason=said or view.reason)

    def _described_all(self, machines: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Those that are there, by ZONE/NAME; of several by one question."""
        if len(machines) == 1:
            one = self._described(machines[0])
            return {} if one is None else {machines[0]: one}
        zone, _, name = machines[0].partition("/")
        found = dict(self._listed(f'name eq "{named_by(base_of(name))}"', zones=(zone,)))
        return {one: found[one] for one in machines if one in found}

    def _ends(self, gone: Sequence[str]) -> dict[str, JobView]:
        """Of instances that are no more: who ended each, by the zone's operations, which Google keeps for a while."""
        if not gone:
            return {}
        zone, _, name = gone[0].partition("/")
        target = name if len(gone) == 1 else named_by(base_of(name))
        operations: dict[str, list[dict[str, Any]]] = {}
        for one in self._operations(zone, f'targetLink eq ".*/instances/{target}"'):
            operations.setdefault(str(one.get("targetLink")).rpartition("/")[2], []).append(one)
        return {one: _end_of(one, operations.get(one.partition("/")[2], [])) for one in gone}

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the instances' names are enough
        """Deleted with their disks; each machine's ACPI signal comes first."""
        for machine in job_id.split(JOINT):
            zone, _, name = machine.partition("/")
            try:
                self.call("DELETE", f"{self._zone(zone)}/instances/{name}")
            except GoogleError as error:
                if error.status != 404:
                    raise

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        """Those that have stopped are among them: their disks are billed."""
        jobs: dict[tuple[str, str], list[JobView]] = {}
        for job_id, one in self._listed(f'labels.tonnage-home = "{home}"'):
            items = {item["key"]: item.get("value", "") for item in (one.get("metadata") or {}).get("items") or ()}
            tag, token = str(items.get("tonnage-tag", "")), str((one.get("labels") or {}).get("tonnage-token", ""))
            view = view_of(job_id, one)
            phase = Phase.ENDING if view.phase is Phase.ENDED else view.phase
            billed = JobView(phase=phase, job_id=job_id, word=view.word, reason=view.reason)
            jobs.setdefault((tag, token), []).append(billed)
        return [
            TaggedCloudJob(job_id=JOINT.join(sorted(str(one.job_id) for one in views)), tag=tag, view=joint_view(views))
            for (tag, _), views in jobs.items()
        ]

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

    def _listed(self, wanted: str, *, zones: Sequence[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        for zone in zones or self.place.zones:
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


def view_of(job_id: str, instance: Mapping[str, Any]) -> JobView:
    """An instance as instances.get tells of it.

    >>> view_of("us-central1-a/t", {"name": "t", "status": "STAGING"}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    word = str(instance.get("status") or "")
    phase = PHASES.get(word, Phase.PROVISIONING)
    return JobView(phase=phase, job_id=job_id, word=word, reason=str(instance.get("statusMessage") or ""))


def _names(body: Body) -> tuple[str, ...]:
    """Of the machines that a request makes."""
    return tuple(body["perInstanceProperties"]) if "perInstanceProperties" in body else (str(body["name"]),)


def _end_of(job_id: str, operations: Sequence[Mapping[str, Any]]) -> JobView:
    """Of an instance that is no more, by its operations, the newest first."""
    by_google = next((kind for one in operations if (kind := str(one.get("operationType"))) in BY_GOOGLE), None)
    if by_google is not None:
        word = by_google.rpartition(".")[2]
        return JobView(phase=Phase.GONE, job_id=job_id, word=word, reason=BY_GOOGLE[by_google])
    refused = causes(operations)
    code, words = refused[0] if refused else ("", "")
    return JobView(phase=Phase.GONE, job_id=job_id, word=code, reason=words)


def _nothing_started(refused: Mapping[str, tuple[str, str] | tuple[()]], name: str) -> TonnageError:
    words = "; ".join(f"{zone}: {': '.join(why)}" for zone, why in refused.items())
    capacity = all(why and why[0] in NO_CAPACITY for why in refused.values())
    hint = "more zones, another type or region, `spot = false`, or `--on any`" if capacity else (
        f"`tonnage places check {name}`"
    )  # fmt: skip
    return TonnageError(f"Google started no instance: {words}", hint=hint)
