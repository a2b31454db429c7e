"""A Google Cloud project: Compute Engine's instances with their documented life, and what `check` asks of others.

with fake_google(folder) as service: ...      # every variable of `service.environ()` set

Requests are held to the members of the discovery document. An instance is a process of this machine.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tonnage.http.body_shapes import faults_of
from tonnage.places.google.checks import READS_DISKS, RIGHTS, USES_POLICIES
from tonnage.places.google.filling import RIGHTS as FILLS_DISKS
from tonnage.places.google.machine import FEW
from tonnage.places.google.schema import BULK_ROOT, ROOT, instance_schemas
from tonnage.places.google.vertex import RIGHTS as VERTEX_RIGHTS
from tonnage.testing.google.disks import FakeDisks, has_labels
from tonnage.testing.google.storage import FakeStorage, google_fault
from tonnage.testing.google.vertex import FakeVertex
from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.machines import FakeMachine, laid_script, lay_docker, lay_tools, start_machine
from tonnage.values import dataclass

PROJECT: Final = "my-project"
ACCOUNT: Final = f"tonnage-run@{PROJECT}.iam.gserviceaccount.com"
INSTANCES: Final = re.compile(rf"/compute/v1/projects/{PROJECT}/zones/([^/]+)/instances(?:/([^/]+)(/serialPort)?)?")
BULK: Final = re.compile(rf"/compute/v1/projects/{PROJECT}/zones/([^/]+)/instances/bulkInsert")
OPERATIONS: Final = re.compile(rf"/compute/v1/projects/{PROJECT}/(zones/[^/]+|global)/operations(?:/([^/]+)/wait)?")
METADATA: Final = re.compile(r"/metadata/([^/]+)/computeMetadata/v1/instance/preempted")
NAME: Final = re.compile(r'name eq "([^"]*)"')


@dataclass(slots=True, kw_only=True)
class FakeGoogleInstance:
    """One instance."""

    zone: str
    body: Document
    status: str = "PROVISIONING"
    since: float = 0.0
    machine: FakeMachine | None = None
    preempted: bool = False
    taken: bool = False

    @property
    def spot(self) -> bool:
        return bool(self.body["scheduling"]["provisioningModel"] == "SPOT")

    def item(self, key: str) -> str:
        """A value of its metadata."""
        return next(str(one["value"]) for one in self.body["metadata"]["items"] if one["key"] == key)


class FakeGoogle:
    """A running project. `there`: what GET answers, by path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, lay_docker(folder)
        lay_tools(self.bin)
        self.instances: dict[str, FakeGoogleInstance] = {}
        self.operations: dict[str, Document] = {}
        self.by_request: dict[str, str] = {}
        self.full: dict[str, str] = {}  # zones without capacity: the operation's code
        self.has: dict[str, int] = {}  # how many instances a zone has left; else enough
        self.rights = {*RIGHTS, READS_DISKS, USES_POLICIES, *FILLS_DISKS, *VERTEX_RIGHTS}
        self.vertex = FakeVertex(folder)
        self.disks = FakeDisks(self._operation_of, self._users)
        self.may_delete = True  # whether a machine may delete itself
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.flex_s = 0.2  # until Flex Start has capacity
        self.page, self.boot_s, self.operation_s, self.grace_s, self.spot_grace_s = 500, 0.1, 0.05, 20.0, 20.0
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.http = server_of(self)
        self.storage = FakeStorage(self.url)
        self.there: dict[str, Document] = self._project()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def environ(self, key: str) -> dict[str, str]:
        """The variables of a client whose service account has this private key (PEM)."""
        account = self.folder / "account.json"
        account.write_text(json.dumps({
            "type": "service_account", "project_id": PROJECT, "private_key_id": "1", "private_key": key,
            "client_email": ACCOUNT, "client_id": "1", "token_uri": f"{self.url}/token",
        }))  # fmt: skip
        services = ("iam", "cloudresourcemanager", "secretmanager", "artifactregistry", "aiplatform")
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": str(account), "STORAGE_EMULATOR_HOST": self.url, "NO_PROXY": "127.0.0.1",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{self.url}/compute/v1/",
            **{f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{one.upper()}": f"{self.url}/{one}/" for one in services},
        }  # fmt: skip

    def _project(self) -> dict[str, Document]:
        project = f"compute/v1/projects/{PROJECT}"
        region = f"{project}/regions/us-central1"
        network = f"{self.url}/{project}/global/networks/default"
        kinds: dict[str, Document] = {
            "n2-standard-2": {"guestCpus": 2, "memoryMb": 8192}, "n1-standard-8": {"guestCpus": 8, "memoryMb": 30720},
            "a3-highgpu-8g": {"guestCpus": 208, "memoryMb": 1916928, "accelerators": [
                {"guestAcceleratorType": "nvidia-h100-80gb", "guestAcceleratorCount": 8}]},
        }  # fmt: skip
        zones = [f"us-central1-{one}" for one in "abc"]
        quotas = [{"metric": "NVIDIA_T4_GPUS", "limit": 4.0, "usage": 0.0},
                  {"metric": "PREEMPTIBLE_NVIDIA_H100_GPUS", "limit": 8.0, "usage": 4.0}]  # fmt: skip
        return {
            project: {"name": PROJECT}, region: {"quotas": quotas},
            **{f"{project}/zones/{zone}/machineTypes/{name}": one for zone in zones for name, one in kinds.items()},
            **{f"{project}/zones/{zone}/acceleratorTypes/nvidia-tesla-t4": {} for zone in zones},
            **{f"{project}/zones/{zone}/disks/{name}": {"type": "zones/z/diskTypes/hyperdisk-ml", "accessMode": mode}
               for zone in zones for name, mode in (("weights", "READ_ONLY_MANY"), ("single", "READ_WRITE_SINGLE"))},
            "compute/v1/projects/ml/global/images/family/gpu": {"name": "gpu-1"},
            f"{region}/subnetworks/default": {
                "network": network, "privateIpGoogleAccess": True, "ipCidrRange": "10.128.0.0/20",
            },
            f"{project}/global/firewalls": {"items": [{
                "network": network, "direction": "INGRESS", "sourceRanges": ["10.128.0.0/9"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["0-65535"]}, {"IPProtocol": "icmp"}],
            }]},
            f"{region}/resourcePolicies/close": {"groupPlacementPolicy": {"collocation": "COLLOCATED"}},
            f"{region}/resourcePolicies/apart": {"groupPlacementPolicy": {"availabilityDomainCount": 2}},
            f"{project}/zones/us-central1-a/reservations/mine": {
                "specificReservation": {"count": "4", "inUseCount": "2"},
            },
            f"{region}/subnetworks/dark": {"network": network},
            f"{project}/global/networks/default": {"mtu": 1460}, f"{region}/routers": {"items": []},
            f"iam/v1/projects/-/serviceAccounts/{ACCOUNT}": {"email": ACCOUNT},
            f"artifactregistry/v1/projects/{PROJECT}/locations/us-central1/repositories/runs/dockerImages/"
            f"tonnage@sha256:{'0' * 64}": {},
        }  # fmt: skip

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the project says."""
        path = asked.path
        if path == "/token":
            return HTTPAnswer(document={"access_token": "test-token", "expires_in": 3600, "token_type": "Bearer"})
        if found := METADATA.fullmatch(path):
            one = self.instances.get(found[1])
            return HTTPAnswer(content=b"TRUE" if one is not None and one.preempted else b"FALSE")
        if asked.headers.get("authorization") != "Bearer test-token":
            return google_fault(401, "authError", "Request had invalid authentication credentials.")
        with self.lock:
            stored = self.storage.answer(asked) or self.vertex.answer(asked) or self.disks.answer(asked)
            if stored is not None:
                return stored
            verbs = ((BULK, self._bulk), (INSTANCES, self._instances), (OPERATIONS, self._operations))
            for pattern, verb in verbs:
                if found := pattern.fullmatch(path):
                    return verb(asked, found)
            return self._others(asked)

    def _others(self, asked: Asked) -> HTTPAnswer:
        path = asked.path.strip("/")
        if path == f"cloudresourcemanager/v1/projects/{PROJECT}:testIamPermissions":
            kept = [one for one in asked.body["permissions"] if one in self.rights]
            return HTTPAnswer(document={"permissions": kept})
        if path in self.there:
            return HTTPAnswer(document=self.there[path])
        return google_fault(404, "notFound", f"The resource '{path}' was not found")

    def _instances(self, asked: Asked, found: re.Match[str]) -> HTTPAnswer:
        zone, name, console = found[1], found[2], found[3]
        if name is None:
            return self._insert(asked, zone) if asked.method == "POST" else self._list(asked, zone)
        one = self.instances.get(name)
        if one is None or one.zone != zone:
            return google_fault(404, "notFound", f"The resource 'instances/{name}' was not found")
        if console:
            log = self.folder / f"{name}.console"
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            text = "".join(f"[ {at}.0] tonnage-run[812]: {line}\n" for at, line in enumerate(lines))
            return HTTPAnswer(document={"contents": text})
        if asked.method == "DELETE":
            self._take(name, one, "delete", self.grace_s)
            return HTTPAnswer(document=self._operation(zone, name, "delete"))
        return HTTPAnswer(document=self._document(name, one))

    def _insert(self, asked: Asked, zone: str) -> HTTPAnswer:
        body, request = asked.body, asked.query["requestId"]
        if request in self.by_request:
            return HTTPAnswer(document=self.operations[self.by_request[request]])
        found = list(faults_of(body, {"$ref": ROOT}, "", instance_schemas()))
        if found:
            return google_fault(400, "invalid", "; ".join(found))
        if any(one.zone == zone and name == body["name"] for name, one in self.instances.items()):
            return google_fault(409, "alreadyExists", f"The resource 'instances/{body['name']}' already exists")
        if refusal := self.disks.refusal(zone, body["disks"]):
            return refusal
        operation = self._operation(zone, body["name"], "insert")
        self.by_request[request] = operation["name"]
        if zone in self.full:
            operation["error"] = {"errors": [{"code": self.full[zone], "message": f"{zone} has none now"}]}
        else:
            waits = body["scheduling"]["provisioningModel"] == "FLEX_START"
            self.instances[body["name"]] = FakeGoogleInstance(
                zone=zone, body=body, since=time.monotonic(), status="PENDING" if waits else "PROVISIONING"
            )
        return HTTPAnswer(document=operation)

    def _bulk(self, asked: Asked, found: re.Match[str]) -> HTTPAnswer:
        """All of them, or none: what was begun is taken back, and the operations of the group say why."""
        zone, body, request = found[1], asked.body, asked.query["requestId"]
        if request in self.by_request:
            return HTTPAnswer(document=self.operations[self.by_request[request]])
        faults = list(faults_of(body, {"$ref": BULK_ROOT}, "", instance_schemas()))
        properties = body["instanceProperties"]
        addressed = [one for one in (properties["machineType"], *properties.get("resourcePolicies", ())) if "/" in one]
        if faults or addressed:
            return google_fault(400, "invalid", "; ".join([*faults, *(f"{one}: no name" for one in addressed)]))
        names, count = list(body["perInstanceProperties"]), int(body["count"])
        disks = [one | {"source": f"zones/{zone}/disks/{one['source']}"} if "source" in one else one
                 for one in properties["disks"]]  # fmt: skip
        if refusal := self.disks.refusal(zone, disks):
            return refusal
        if taken := [one for one in names if one in self.instances]:
            return google_fault(409, "alreadyExists", f"The resource 'instances/{taken[0]}' already exists")
        operation = self._operation(zone, "", "bulkInsert") | {"operationGroupId": f"group-{request}"}
        self.operations[operation["name"]] = operation
        self.by_request[request] = operation["name"]
        has = 0 if zone in self.full else min(count, self.has.get(zone, count))
        for number, name in enumerate(names):
            one = self._operation(zone, name, "insert") | {"operationGroupId": f"group-{request}"}
            self.operations[one["name"]] = one
            if number >= has:
                code = self.full.get(zone, "ZONE_RESOURCE_POOL_EXHAUSTED")
                one["error"] = {"errors": [{"code": code, "message": f"{zone} has {has} of {count} now"}]}
            elif has >= int(body["minCount"]):
                whole = {**properties, "name": name, "disks": disks}
                self.instances[name] = FakeGoogleInstance(zone=zone, body=whole, since=time.monotonic())
        if has < int(body["minCount"]):
            message = f"Requested minimum count of {body['minCount']} VMs could not be created."
            operation["error"] = {"errors": [{"code": FEW, "message": message}]}
        return HTTPAnswer(document=operation)

    def _operation(self, zone: str, name: str, kind: str) -> Document:
        return self._operation_of(zone, f"instances/{name}", kind)

    def _operation_of(self, where: str, name: str, kind: str) -> Document:
        number, scope = next(self._numbers), "global" if where == "global" else f"zones/{where}"
        base = f"{self.url}/compute/v1/projects/{PROJECT}/{scope}"
        made = {
            "name": f"operation-{number}", "operationType": kind, "status": "RUNNING",
            "targetLink": f"{base}/{name}", "creationTimestamp": f"{number:08d}",
            **({} if where == "global" else {"zone": base}),
        }  # fmt: skip
        self.operations[made["name"]] = made
        return made

    def _operations(self, asked: Asked, found: re.Match[str]) -> HTTPAnswer:
        if found[2] is not None:
            time.sleep(self.operation_s)
            self.operations[found[2]]["status"] = "DONE"
            return HTTPAnswer(document=self.operations[found[2]])
        member, _, rest = asked.query["filter"].partition(" eq ")
        wanted = rest.strip('"')
        some = [one for one in self.operations.values() if re.fullmatch(wanted, str(one.get(member, "")))]
        return HTTPAnswer(document={"items": sorted(some, key=lambda one: one["creationTimestamp"], reverse=True)})

    def _list(self, asked: Asked, zone: str) -> HTTPAnswer:
        wanted = asked.query["filter"]
        named = NAME.fullmatch(wanted)

        def fits(name: str, one: FakeGoogleInstance) -> bool:
            if named is not None:
                return re.fullmatch(named[1], name) is not None
            return has_labels(wanted, one.body["labels"])

        found = [
            self._document(name, one) for name, one in self.instances.items() if one.zone == zone and fits(name, one)
        ]
        at = int(asked.query.get("pageToken") or 0)
        more = {"nextPageToken": str(at + self.page)} if at + self.page < len(found) else {}
        return HTTPAnswer(document={"items": found[at : at + self.page], **more})

    def _document(self, name: str, one: FakeGoogleInstance) -> Document:
        return {"name": name, "status": one.status, "labels": one.body["labels"], "metadata": one.body["metadata"]}

    def _users(self, zone: str, disk: str) -> list[str]:
        """Instances that have a disk attached."""
        end = f"/disks/{disk}"
        here = {name: one.body["disks"] for name, one in self.instances.items() if one.zone == zone}
        return [name for name, disks in here.items() if any(str(one.get("source", "")).endswith(end) for one in disks)]

    # time

    def interrupt(self, name: str) -> None:
        """Spot takes the machine: its metadata say so, the ACPI signal comes, then it is deleted."""
        with self.lock:
            one = self.instances[name]
            one.preempted = True
            self._take(name, one, "compute.instances.preempted", self.spot_grace_s)

    def vanish(self, name: str) -> None:
        """The machine is lost, and the project no longer knows it."""
        with self.lock:
            one = self.instances.pop(name)
        if one.machine is not None:
            one.machine.kill()

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            self.vertex.tick()
            for name, one in list(self.instances.items()):
                if not one.taken:
                    self._advance(name, one)

    def _advance(self, name: str, one: FakeGoogleInstance) -> None:
        now = time.monotonic()
        if one.status == "PENDING" and now - one.since > self.flex_s:
            one.status, one.since = "PROVISIONING", now
        elif one.status == "PROVISIONING" and now - one.since > self.boot_s:
            env = {"PATH": f"{self.bin}:/usr/bin:/bin", "TONNAGE_GCP_METADATA_URL": f"{self.url}/metadata/{name}"}
            words = ["bash", "-c", laid_script(one.item("startup-script"))]
            one.machine = start_machine(words, env, self.folder / f"{name}.console")
            one.status, one.since = "RUNNING", now
        elif one.status == "RUNNING" and one.machine is not None:
            code = one.machine.ended()
            if code is not None:
                one.machine.kill()
                one.status = "TERMINATED"
                if code == 0 and self.may_delete:  # as the script at its end does
                    del self.instances[name]
            elif now - one.since > float(one.body["scheduling"].get("maxRunDuration", {"seconds": "inf"})["seconds"]):
                self._take(name, one, "compute.instances.scheduledVmTermination", self.grace_s)

    def _take(self, name: str, one: FakeGoogleInstance, kind: str, grace_s: float) -> None:
        if one.taken:
            return
        one.taken, one.status = True, "STOPPING"
        self._operation(one.zone, name, kind)

        def end() -> None:
            if one.machine is not None:
                one.machine.take_away(grace_s)
            with self.lock:
                self.instances.pop(name, None)

        threading.Thread(target=end, daemon=True).start()

    def close(self) -> None:
        """Nothing is left running."""
        self.vertex.close()
        for one in self.instances.values():
            if one.machine is not None and one.machine.ended() is None:
                one.machine.kill()


def fake_google(folder: Path) -> AbstractContextManager[FakeGoogle]:
    """A running project with a bucket `runs`, a service account, an image and a network."""
    service = FakeGoogle(folder)
    service.storage.buckets["runs"] = {}
    return running(service)
