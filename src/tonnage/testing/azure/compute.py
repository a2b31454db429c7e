"""Virtual machines and scale sets of a pretended subscription: their documented life; each machine is a process.

Bodies are held to the recorded members of the official models.
"""

from __future__ import annotations

import base64
import itertools
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tonnage.http.body_shapes import faults_of, recorded_schemas
from tonnage.testing.http_service import Asked, Document, HTTPAnswer
from tonnage.testing.machines import FakeMachine, laid_script, start_machine
from tonnage.values import dataclass

SUBSCRIPTION: Final = "11111111-2222-3333-4444-555555555555"
GROUP: Final = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ml"


@dataclass(slots=True, kw_only=True)
class FakeVM:
    """One virtual machine."""

    body: Document
    made: str = "Creating"
    power: str = ""
    why: tuple[str, str] = ("", "")
    since: float = 0.0
    machine: FakeMachine | None = None
    notice: datetime | None = None  # when spot evicts it
    taken: bool = False

    @property
    def of(self) -> str:
        """The scale set that it is in."""
        return str((self.body["properties"].get("virtualMachineScaleSet") or {}).get("id") or "")


class FakeCompute:
    """The machines. `url` and `folder` are the subscription's."""

    folder: Path
    bin: Path

    def __init__(self) -> None:
        self.machines: dict[str, FakeVM] = {}
        self.sets: dict[str, tuple[Document, str]] = {}  # by path: body, and how far it is made
        self.operations: dict[str, str] = {}
        self.full: dict[str, str] = {}  # zones without capacity: Azure's code
        self.has: dict[str, int] = {}  # how many machines a zone has left for a scale set; else enough
        self.may_delete = True  # whether a machine may delete itself
        self.page, self.boot_s, self.grace_s, self.notice_s = 50, 0.1, 20.0, 20.0
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        """Where the subscription answers."""
        raise NotImplementedError

    def _machines(self, asked: Asked, found: re.Match[str]) -> HTTPAnswer:
        name, verb = found[1], found[2]
        if name is None:
            return self._list(asked)
        if asked.method == "PUT":
            return self._create(asked, name)
        one = self.machines.get(name)
        if one is None:
            return HTTPAnswer(status=204) if asked.method == "DELETE" else azure_fault(
                404, "ResourceNotFound", f"The Resource 'Microsoft.Compute/virtualMachines/{name}' was not found."
            )  # fmt: skip
        if verb == "/retrieveBootDiagnosticsData":
            return HTTPAnswer(document={"serialConsoleLogBlobUri": f"{self.url}/console/{name}?sig=signed"})
        if asked.method == "DELETE":
            self._take(name, one, self.grace_s)
            return HTTPAnswer(status=202)
        return HTTPAnswer(document=self._document(name, one, instance=asked.query.get("$expand") == "instanceView"))

    def _create(self, asked: Asked, name: str) -> HTTPAnswer:
        body = asked.body
        wrong = list(faults_of(body, {"$ref": "VirtualMachine"}, "", _schemas()))
        if wrong:
            return azure_fault(400, "InvalidParameter", "; ".join(wrong))
        if len(name) > 64 or len(body["properties"]["osProfile"]["computerName"]) > 64:
            return azure_fault(400, "InvalidParameter", "the name is too long")
        before = self.machines.get(name)
        if before is not None:
            if before.body != body:
                return azure_fault(409, "PropertyChangeNotAllowed", "Changing property 'osProfile' is not allowed.")
            return HTTPAnswer(document=self._document(name, before))
        zone = (body.get("zones") or [""])[0]
        made = FakeVM(body=body, since=time.monotonic())
        self.machines[name] = made
        if zone in self.full:
            made.made, made.why = "Failed", (self.full[zone], "We do not have sufficient capacity")
        number = str(next(self._numbers))
        self.operations[number] = name
        address = f"{self.url}/operations/{number}?api-version=x"
        return HTTPAnswer(status=201, document=self._document(name, made), headers={"Azure-AsyncOperation": address})

    def _sets(self, asked: Asked, kind: str, name: str | None) -> HTTPAnswer:
        """Scale sets of flexible orchestration: their machines are ordinary ones."""
        if name is None:
            sets = [self._set_document(path) for path in sorted(self.sets)]
            return HTTPAnswer(document={"value": sets})
        path = f"{kind}/{name}"
        if asked.method == "PUT":
            return self._create_set(asked, path)
        if path not in self.sets:
            return HTTPAnswer(status=204) if asked.method == "DELETE" else azure_fault(
                404, "ResourceNotFound", f"The Resource '{path}' was not found."
            )  # fmt: skip
        if asked.method == "DELETE":
            del self.sets[path]
            for machine, one in list(self.machines.items()):
                if one.of == path:
                    self._take(machine, one, self.grace_s)
            return HTTPAnswer(status=202)
        return HTTPAnswer(document=self._set_document(path))

    def _create_set(self, asked: Asked, path: str) -> HTTPAnswer:
        body, name = asked.body, path.rpartition("/")[2]
        wrong = list(faults_of(body, {"$ref": "VirtualMachineScaleSet"}, "", _schemas()))
        properties = body["properties"]
        profile: Document = properties.get("virtualMachineProfile") or {}
        if not wrong and (properties.get("orchestrationMode") != "Flexible" or "singlePlacementGroup" in properties):
            wrong = ["a flexible scale set names no placement group"]
        if not wrong and "networkApiVersion" not in profile["networkProfile"]:
            wrong = ["networkApiVersion is needed in Flexible orchestration mode"]
        if not wrong and len(profile["osProfile"]["computerNamePrefix"]) > 15:
            wrong = ["computerNamePrefix is too long"]
        if wrong:
            return azure_fault(400, "InvalidParameter", "; ".join(wrong))
        zone, wanted = (body.get("zones") or [""])[0], int(body["sku"]["capacity"])
        have = sum(one.of == path for one in self.machines.values())
        code = self.full.get(zone)
        left = 0 if code else self.has.get(zone, wanted)
        for _ in range(min(wanted, left) - have):
            properties = {**profile, "virtualMachineScaleSet": {"id": path}}
            machine = {"tags": {}, "properties": properties, **({"zones": [zone]} if zone else {})}
            self.machines[f"{name}_{next(self._numbers):08x}"] = FakeVM(body=machine, since=time.monotonic())
        self.sets[path] = (body, code or ("AllocationFailed" if left < wanted else ""))
        number = str(next(self._numbers))
        self.operations[number] = path
        address = f"{self.url}/operations/{number}?api-version=x"
        return HTTPAnswer(status=201, document=self._set_document(path), headers={"Azure-AsyncOperation": address})

    def _set_document(self, path: str) -> Document:
        body, fault = self.sets[path]
        some = [one.made for one in self.machines.values() if one.of == path]
        made = "Failed" if fault else "Creating" if "Creating" in some else "Succeeded"
        return {"name": path.rpartition("/")[2], "id": path, "tags": body["tags"], "sku": body["sku"],
                "properties": {"provisioningState": made}}  # fmt: skip

    def _operation(self, number: str) -> HTTPAnswer:
        path = self.operations[number]
        if path in self.sets:
            fault, made = self.sets[path][1], self._set_document(path)["properties"]["provisioningState"]
            words = {"error": {"code": fault, "message": "We do not have sufficient capacity"}} if fault else {}
            return HTTPAnswer(document={"status": "InProgress" if made == "Creating" else made, **words})
        one = self.machines.get(path)
        if one is None or one.made == "Creating":
            return HTTPAnswer(document={"status": "InProgress"} if one else {"status": "Canceled"})
        if one.made == "Failed":
            return HTTPAnswer(document={"status": "Failed", "error": {"code": one.why[0], "message": one.why[1]}})
        return HTTPAnswer(document={"status": "Succeeded"})

    def _list(self, asked: Asked) -> HTTPAnswer:
        inside = re.fullmatch(r"'virtualMachineScaleSet/id' eq '(.+)'", asked.query.get("$filter", ""))
        if inside is None and "$expand" in asked.query:
            return azure_fault(400, "InvalidParameter", "$expand needs a $filter")
        if inside is not None:
            some = [
                self._document(name, one, instance=True) for name, one in self.machines.items() if one.of == inside[1]
            ]
            return HTTPAnswer(document={"value": some})
        at, names = int(asked.query.get("$skiptoken") or 0), sorted(self.machines)
        path = f"{self.url}{GROUP}/providers/Microsoft.Compute/virtualMachines"
        more = {"nextLink": f"{path}?api-version=x&$skiptoken={at + self.page}"} if at + self.page < len(names) else {}
        some = [self._document(name, self.machines[name]) for name in names[at : at + self.page]]
        return HTTPAnswer(document={"value": some, **more})

    def _document(self, name: str, one: FakeVM, *, instance: bool = False) -> Document:
        properties: Document = {"provisioningState": one.made}
        if instance:
            states = [{"code": f"ProvisioningState/{one.made.lower()}/{one.why[0]}", "message": one.why[1]}]
            states += [{"code": f"PowerState/{one.power}"}] if one.power else []
            properties["instanceView"] = {"statuses": states}
        if one.of:
            properties["virtualMachineScaleSet"] = {"id": one.of}
        return {"name": name, "tags": one.body["tags"], "properties": properties}

    def evict(self, name: str) -> None:
        """Spot evicts the machine: a Preempt event, then it is deleted."""
        with self.lock:
            one = self.machines[name]
            one.notice = datetime.now(UTC) + timedelta(seconds=self.notice_s)

    def vanish(self, name: str) -> None:
        """The machine is lost, and the subscription no longer knows it."""
        with self.lock:
            one = self.machines.pop(name)
        if one.machine is not None:
            one.machine.kill()

    def _advance(self, name: str, one: FakeVM) -> None:
        if one.made == "Creating" and time.monotonic() - one.since > self.boot_s:
            first = base64.b64decode(one.body["properties"]["osProfile"]["customData"]).decode()
            env = {"PATH": f"{self.bin}:/usr/bin:/bin", "TONNAGE_AZURE_METADATA_URL": f"{self.url}/metadata/{name}"}
            one.machine = start_machine(["bash", "-c", laid_script(first)], env, self.folder / f"{name}.console")
            one.made, one.power = "Succeeded", "running"
        elif one.notice is not None and datetime.now(UTC) > one.notice:
            self._take(name, one, 0.0)
        elif one.power == "running" and one.machine is not None and (code := one.machine.ended()) is not None:
            one.machine.kill()
            one.power = "stopped" if not self.may_delete else "deallocated"
            if code == 0 and self.may_delete:  # as the script at its end does
                del self.machines[name]

    def _take(self, name: str, one: FakeVM, grace_s: float) -> None:
        if one.taken:
            return
        one.taken, one.made = True, "Deleting"

        def end() -> None:
            if one.machine is not None:
                one.machine.take_away(grace_s)
            with self.lock:
                self.machines.pop(name, None)

        threading.Thread(target=end, daemon=True).start()


def azure_fault(status: int, code: str, message: str) -> HTTPAnswer:
    """An error as the Resource Manager writes it."""
    return HTTPAnswer(status=status, document={"error": {"code": code, "message": message}})


def _schemas() -> Any:
    return recorded_schemas("tonnage.places.azure", "vm_schema.json")
