"""Compute Engine's disks and snapshots, with what Google refuses of them; all content is one folder of this machine."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from tonnage.http.body_shapes import faults_of
from tonnage.places.google.disks import READ_BY_MANY, WRITTEN_BY_ONE
from tonnage.places.google.schema import DISK_ROOT, SNAPSHOT_ROOT, disk_schemas
from tonnage.testing.google.storage import google_fault
from tonnage.testing.http_service import Asked, Document, HTTPAnswer
from tonnage.values import dataclass

DISKS: Final = re.compile(r"/compute/v1/projects/[^/]+/zones/([^/]+)/disks(?:/([^/]+)(/setLabels)?)?")
SNAPSHOTS: Final = re.compile(r"/compute/v1/projects/[^/]+/global/snapshots(?:/([^/]+))?")
Made = Callable[[str, str, str], Document]  # an operation of a zone (or "global"), a name and a kind


@dataclass(slots=True, kw_only=True)
class FakeDisk:
    """One disk or snapshot."""

    body: Document
    since: float


def has_labels(wanted: str, labels: Document) -> bool:
    """Whether labels are those of a list's filter: `labels.A = "B"` or `labels.A:*`, with AND between."""
    for part in wanted.split(" AND "):
        found = re.fullmatch(r'labels\.([a-z-]+)(?: = "([^"]*)"|:\*)', part)
        assert found is not None, wanted
        if found[1] not in labels or (found[2] is not None and labels[found[1]] != found[2]):
            return False
    return True


class FakeDisks:
    """Of a project. `users`: names of instances that have a disk attached, by zone and disk."""

    def __init__(self, operation: Made, users: Callable[[str, str], list[str]]) -> None:
        self.disks: dict[tuple[str, str], FakeDisk] = {}
        self.snapshots: dict[str, FakeDisk] = {}
        self.snapshot_s = 0.05
        self._operation, self._users = operation, users
        self._ids = itertools.count(7_000_000_000)

    def answer(self, asked: Asked) -> HTTPAnswer | None:
        """None where the request is about no disk that was made here."""
        if found := DISKS.fullmatch(asked.path):
            return self._disk(asked, found[1], found[2], labels=found[3] is not None)
        if found := SNAPSHOTS.fullmatch(asked.path):
            return self._snapshot(asked, found[1])
        return None

    def refusal(self, zone: str, attached: Iterable[Document]) -> HTTPAnswer | None:
        """Why an instance cannot have its disks."""
        for one in attached:
            name = str(one.get("source", "")).rpartition("/")[2]
            disk = self.disks.get((zone, name))
            if disk is None:
                continue
            mode, users = disk.body["accessMode"], self._users(zone, name)
            if one["mode"] == "READ_ONLY" and mode != READ_BY_MANY:
                return google_fault(400, "invalid", f"The disk {name} is {mode}: it cannot be attached READ_ONLY")
            if one["mode"] == "READ_WRITE" and mode != WRITTEN_BY_ONE:
                return google_fault(400, "invalid", f"The disk {name} is {mode}: it cannot be attached READ_WRITE")
            if one["mode"] == "READ_WRITE" and users:
                return google_fault(400, "resourceInUseByAnotherResource", f"{name} is in use by {users[0]}")
        return None

    def _disk(self, asked: Asked, zone: str, name: str | None, *, labels: bool) -> HTTPAnswer | None:
        if name is None:
            if asked.method == "GET":
                some = {one: disk for (where, one), disk in self.disks.items() if where == zone}
                return self._listed(asked, some, zone)
            return self._made(asked, DISK_ROOT, zone)
        one = self.disks.get((zone, name))
        if one is None:
            return None
        users = self._users(zone, name)
        if labels:
            if asked.body["labelFingerprint"] != one.body["labelFingerprint"]:
                return google_fault(412, "conditionNotMet", "Labels fingerprint either invalid or out of date")
            one.body |= {"labels": asked.body["labels"], "labelFingerprint": f"{next(self._ids)}"}
            return HTTPAnswer(document=self._operation(zone, name, "setLabels"))
        if asked.method == "PATCH":
            return self._changed(asked, zone, one, users)
        if asked.method == "DELETE":
            if users:
                return google_fault(400, "resourceInUseByAnotherResource", f"{name} is in use by {users[0]}")
            del self.disks[zone, name]
            return HTTPAnswer(document=self._operation(zone, name, "delete"))
        return HTTPAnswer(document={**one.body, "users": users})

    def _changed(self, asked: Asked, zone: str, one: FakeDisk, users: list[str]) -> HTTPAnswer:
        assert asked.query["paths"] == "accessMode", asked.query
        wanted, name = asked.body["accessMode"], one.body["name"]
        if users:
            return google_fault(400, "resourceInUseByAnotherResource", f"{name} is in use by {users[0]}")
        if one.body["accessMode"] == READ_BY_MANY and wanted != READ_BY_MANY:
            return google_fault(400, "invalid", "The access mode cannot be changed back")
        one.body["accessMode"] = wanted
        return HTTPAnswer(document=self._operation(zone, name, "update"))

    def _snapshot(self, asked: Asked, name: str | None) -> HTTPAnswer | None:
        if name is None:
            if asked.method == "GET":
                return self._listed(asked, self.snapshots, None)
            return self._made(asked, SNAPSHOT_ROOT, "global")
        one = self.snapshots.get(name)
        if one is None:
            return None
        if asked.method == "DELETE":
            del self.snapshots[name]
            return HTTPAnswer(document=self._operation("global", name, "delete"))
        ready = time.monotonic() - one.since > self.snapshot_s
        return HTTPAnswer(document={**one.body, "status": "READY" if ready else "UPLOADING"})

    def _made(self, asked: Asked, root: str, where: str) -> HTTPAnswer:
        body = asked.body
        found = list(faults_of(body, {"$ref": root}, "", disk_schemas()))
        if found:
            return google_fault(400, "invalid", "; ".join(found))
        made: dict[Any, FakeDisk] = self.snapshots if root == SNAPSHOT_ROOT else self.disks
        key = body["name"] if root == SNAPSHOT_ROOT else (where, body["name"])
        if key in made:
            return google_fault(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        if missing := self._source_missing(body):
            return google_fault(404, "notFound", f"The resource '{missing}' was not found")
        state = {"id": str(next(self._ids)), "status": "READY", "labelFingerprint": f"{next(self._ids)}"}
        made[key] = FakeDisk(body={**body, **state}, since=time.monotonic())
        return HTTPAnswer(document=self._operation(where, body["name"], "insert"))

    def _source_missing(self, body: Document) -> str:
        if snapshot := str(body.get("sourceSnapshot", "")).rpartition("/")[2]:
            return "" if snapshot in self.snapshots else snapshot
        if source := str(body.get("sourceDisk", "")):
            parts = source.split("/")
            return "" if (parts[3], parts[5]) in self.disks else source
        return ""

    def _listed(self, asked: Asked, some: dict[str, FakeDisk], zone: str | None) -> HTTPAnswer:
        wanted = asked.query["filter"]
        found = [
            {**one.body, "users": [] if zone is None else self._users(zone, name)}
            for name, one in some.items() if has_labels(wanted, one.body.get("labels") or {})
        ]  # fmt: skip
        return HTTPAnswer(document={"items": found})
