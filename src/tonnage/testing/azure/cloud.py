"""An Azure subscription: virtual machines and Azure ML with their documented life, Blob Storage, and what `check` asks.

with fake_azure(folder) as service: ...      # every variable of `service.environ()` set

Bodies are held to the recorded members of the official models. A machine is a process of this one. Tokens come from a
pretended identity endpoint, which the real azure-identity asks.
"""

from __future__ import annotations

import itertools
import re
import time
from contextlib import AbstractContextManager
from email.utils import format_datetime, formatdate
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tonnage.places.azure.checks import RIGHTS, SET_RIGHTS
from tonnage.places.azure.job_checks import RIGHTS as ML_RIGHTS
from tonnage.testing.azure.compute import GROUP, SUBSCRIPTION, FakeCompute, azure_fault
from tonnage.testing.azure.machine_learning import FakeAzureML
from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.machines import lay_docker
from tonnage.values import dataclass

IDENTITY: Final = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/tonnage-run"
HEADER: Final = "test-header"
MACHINES: Final = re.compile(rf"{GROUP}/providers/Microsoft.Compute/virtualMachines(?:/([^/]+)(/\w+)?)?")
SETS: Final = re.compile(rf"({GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets)(?:/([^/]+))?")
OPERATIONS: Final = re.compile(r"/operations/(\d+)")
EVENTS: Final = re.compile(r"/metadata/([^/]+)/metadata/scheduledevents")
CONSOLES: Final = re.compile(r"/console/([^/]+)")
BLOBS: Final = re.compile(r"/account/([^/]+)(?:/(.+))?")


class FakeAzure(FakeCompute):
    """A running subscription. `there`: what GET answers, by path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, lay_docker(folder)
        super().__init__()
        self.rights = [*RIGHTS, *SET_RIGHTS, *ML_RIGHTS]
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.http = server_of(self)
        self.blobs = FakeBlobs()
        self.ml = FakeAzureML(folder, GROUP, lambda: self.url, azure_fault)
        self.skus: list[Document] = [
            _sku("Standard_D2s_v5", "standardDSv5Family", 2, 8, 0, ["1", "2", "3"]),
            _sku("Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220, 1, ["1"]),
            _sku("Standard_ND96isr_H100_v5", "standardNDSH100v5Family", 96, 1900, 8, [], RdmaEnabled="True"),
            _sku("Standard_B1s", "standardBSFamily", 1, 1, 0, [], LowPriorityCapable="False"),
        ]
        self.quotas = {"standardDSv5Family": 10, "lowPriorityCores": 10, "StandardNCADSA100v4Family": 0}
        self.there: dict[str, Document] = self._group()

    def _group(self) -> dict[str, Document]:
        network = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/net/subnets"
        image = (f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus/publishers/canonical/"
                 "artifacttypes/vmimage/offers/ubuntu/skus/server/versions")  # fmt: skip
        return {
            GROUP: {"name": "ml"}, IDENTITY: {"name": "tonnage-run"}, image: {},
            f"{network}/runs": {"properties": {"natGateway": {"id": "nat"}, "defaultOutboundAccess": False}},
            f"{network}/dark": {"properties": {"defaultOutboundAccess": False}},
            f"{network}/older": {"properties": {}},
        }  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def environ(self) -> dict[str, str]:
        """The variables of a client, and of a machine, that azure-identity signs in by this identity endpoint."""
        return {
            "TONNAGE_AZURE_MANAGEMENT_URL": self.url, "AZURE_STORAGE_SERVICE_ENDPOINT": f"{self.url}/account",
            "IDENTITY_ENDPOINT": f"{self.url}/token", "IDENTITY_HEADER": HEADER, "NO_PROXY": "127.0.0.1",
        }  # fmt: skip

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the subscription says."""
        if asked.path == "/token":
            return self._token(asked)
        if found := EVENTS.fullmatch(asked.path):
            return self._events(found[1])
        if found := CONSOLES.fullmatch(asked.path):
            log = self.folder / f"{found[1]}.console"
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            return HTTPAnswer(
                content="".join(f"[ {at}.0] tonnage-run[812]: {one}\n" for at, one in enumerate(lines)).encode()
            )
        if not asked.headers.get("authorization", "").startswith("Bearer test-token"):
            return azure_fault(401, "AuthenticationFailed", "Authentication failed.")
        with self.lock:
            if (stored := self.blobs.answer(asked)) is not None:
                return stored
            if "api-version" not in asked.query and not OPERATIONS.fullmatch(asked.path):
                return azure_fault(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
            if found := OPERATIONS.fullmatch(asked.path):
                return self._operation(found[1])
            if found := MACHINES.fullmatch(asked.path):
                return self._machines(asked, found)
            if found := SETS.fullmatch(asked.path):
                return self._sets(asked, *found.groups())
            if (answer := self.ml.answer(asked)) is not None:
                return answer
            return self._others(asked)

    def _token(self, asked: Asked) -> HTTPAnswer:
        if asked.headers.get("x-identity-header") != HEADER:
            return azure_fault(400, "invalid_request", "no identity")
        until = str(int(time.time()) + 3600)
        token = {
            "access_token": f"test-token of {asked.query['resource']}",
            "expires_on": until,
            "token_type": "Bearer",
        }
        return HTTPAnswer(document=token)

    def _events(self, name: str) -> HTTPAnswer:
        one = self.machines.get(name)
        notice = self.ml.notice_of(name) if one is None else one.notice
        if notice is None:
            return HTTPAnswer(document={"DocumentIncarnation": 1, "Events": []})
        event = {"EventId": "e1", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": [name],
                 "EventStatus": "Scheduled", "NotBefore": format_datetime(notice, usegmt=True)}  # fmt: skip
        return HTTPAnswer(document={"DocumentIncarnation": 2, "Events": [event]})

    def _others(self, asked: Asked) -> HTTPAnswer:
        path = asked.path
        if path.endswith("/Microsoft.Authorization/permissions"):
            return HTTPAnswer(document={"value": [{"actions": self.rights, "notActions": []}]})
        if path.endswith("/Microsoft.Compute/skus"):
            found = self.skus if asked.query["$filter"] == "location eq 'eastus'" else []
            return HTTPAnswer(document={"value": found})
        if path.endswith("/usages"):
            usages = [
                {"name": {"value": name}, "limit": limit, "currentValue": 1} for name, limit in self.quotas.items()
            ]
            return HTTPAnswer(document={"value": usages})
        if path == f"/subscriptions/{SUBSCRIPTION}/resources":
            return HTTPAnswer(document={"value": [{"name": "keys"}] if "'keys'" in asked.query["$filter"] else []})
        if path in self.there:
            return HTTPAnswer(document=self.there[path])
        if not path.startswith(f"/subscriptions/{SUBSCRIPTION}"):
            return azure_fault(404, "SubscriptionNotFound", "The subscription could not be found.")
        return azure_fault(404, "ResourceNotFound", f"The Resource '{path}' was not found.")

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            self.ml.tick()
            for name, one in list(self.machines.items()):
                if not one.taken:
                    self._advance(name, one)

    def close(self) -> None:
        """Nothing is left running."""
        self.ml.close()
        for one in self.machines.values():
            if one.machine is not None and one.machine.ended() is None:
                one.machine.kill()


def fake_azure(folder: Path) -> AbstractContextManager[FakeAzure]:
    """A running subscription with a container `runs`, an identity, an image and a network."""
    service = FakeAzure(folder)
    service.blobs.containers["runs"] = {}
    return running(service)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeAzureBlob:
    """One object."""

    content: bytes
    etag: str
    changed: float


class FakeBlobs:
    """Containers of the storage account `account`."""

    def __init__(self) -> None:
        self.page = 5000
        self.containers: dict[str, dict[str, FakeAzureBlob]] = {}
        self.blocks: dict[tuple[str, str], dict[str, bytes]] = {}
        self._numbers = itertools.count(1)

    def answer(self, asked: Asked) -> HTTPAnswer | None:
        """None where the request is none of storage."""
        found = BLOBS.fullmatch(asked.path)
        if found is None:
            return None
        if "x-ms-version" not in asked.headers:
            return blob_fault(400, "MissingRequiredHeader")
        if found[1] not in self.containers:
            return blob_fault(404, "ContainerNotFound")
        if found[2] is None:
            return self._list(asked, found[1])
        verb = {"GET": self._read, "PUT": self._put, "DELETE": self._delete}[asked.method]
        return verb(asked, found[1], unquote(found[2]))

    def _put(self, asked: Asked, container: str, name: str) -> HTTPAnswer:
        blocks = self.blocks.setdefault((container, name), {})
        if asked.query.get("comp") == "block":
            blocks[asked.query["blockid"]] = asked.content
            return HTTPAnswer(status=201)
        if asked.query.get("comp") == "blocklist":
            wanted = [str(one.text) for one in ElementTree.fromstring(asked.content)]
            if any(one not in blocks for one in wanted):
                return blob_fault(400, "InvalidBlockList")
            return self._kept(container, name, b"".join(blocks[one] for one in wanted))
        if asked.headers.get("x-ms-blob-type") != "BlockBlob":
            return blob_fault(400, "MissingRequiredHeader")
        before = self.containers[container].get(name)
        if asked.headers.get("if-none-match") == "*" and before is not None:
            return blob_fault(409, "BlobAlreadyExists")
        wanted_version = asked.headers.get("if-match")
        if wanted_version is not None and (before is None or before.etag != wanted_version):
            return blob_fault(412, "ConditionNotMet")
        return self._kept(container, name, asked.content)

    def _kept(self, container: str, name: str, content: bytes) -> HTTPAnswer:
        made = FakeAzureBlob(content=content, etag=f'"0x{next(self._numbers):X}"', changed=time.time())
        self.containers[container][name] = made
        self.blocks.pop((container, name), None)
        return HTTPAnswer(status=201, headers={"ETag": made.etag})

    def _read(self, asked: Asked, container: str, name: str) -> HTTPAnswer:
        found = self.containers[container].get(name)
        if found is None:
            return blob_fault(404, "BlobNotFound")
        start = int(asked.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if start and start >= len(found.content):
            return blob_fault(416, "InvalidRange")
        headers = {"ETag": found.etag, "Last-Modified": formatdate(found.changed, usegmt=True)}
        return HTTPAnswer(status=206 if start else 200, content=found.content[start:], headers=headers)

    def _delete(self, asked: Asked, container: str, name: str) -> HTTPAnswer:  # noqa: ARG002 - as its siblings
        if self.containers[container].pop(name, None) is None:
            return blob_fault(404, "BlobNotFound")
        return HTTPAnswer(status=202)

    def _list(self, asked: Asked, container: str) -> HTTPAnswer:
        prefix, at = asked.query.get("prefix", ""), int(asked.query.get("marker") or 0)
        found = [(name, one) for name, one in sorted(self.containers[container].items()) if name.startswith(prefix)]
        rows = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{len(one.content)}</Content-Length>"
            "</Properties></Blob>" for name, one in found[at : at + self.page]
        )  # fmt: skip
        marker = str(at + self.page) if at + self.page < len(found) else ""
        text = (f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{rows}</Blobs>'
                f"<NextMarker>{marker}</NextMarker></EnumerationResults>")  # fmt: skip
        return HTTPAnswer(content=text.encode(), headers={"Content-Type": "application/xml"})


def blob_fault(status: int, code: str) -> HTTPAnswer:
    """An error as the Blob service writes it."""
    return HTTPAnswer(status=status, headers={"x-ms-error-code": code}, content=f"<Code>{code}</Code>".encode())


def _sku(name: str, family: str, cores: int, memory_gib: int, gpus: int, zones: list[str], **more: str) -> Document:
    has = {"vCPUs": cores, "MemoryGB": memory_gib, "GPUs": gpus, "LowPriorityCapable": "True", **more}
    return {
        "resourceType": "virtualMachines", "name": name, "family": family, "restrictions": [],
        "capabilities": [{"name": key, "value": str(value)} for key, value in has.items()],
        "locationInfo": [{"location": "eastus", "zones": zones}],
    }  # fmt: skip
