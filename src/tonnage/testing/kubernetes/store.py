"""Objects of a pretended cluster: created, listed, changed and deleted as an API server does."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tonnage.places.kubernetes.checking.judging import ObjectVerdict, Server, judge, judge_update
from tonnage.places.kubernetes.checking.refusals import ObjectRefusal
from tonnage.places.terms import merged

Document = dict[str, Any]
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 410: "Expired", 422: "Invalid"}
WORDS = {"required": "FieldValueRequired", "duplicate": "FieldValueDuplicate", "not found": "FieldValueNotFound",
         "unsupported": "FieldValueNotSupported", "type": "FieldValueTypeInvalid"}  # fmt: skip


class FakeServerRefusal(Exception):
    """An answer that is no success."""

    def __init__(
        self, code: int, message: str, refusals: tuple[ObjectRefusal, ...] = (), reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: Document = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
            "reason": reason or REASONS.get(code, "InternalError"),
        }  # fmt: skip
        if code == 422:
            causes = [{"reason": WORDS.get(one.reason, "FieldValueInvalid"), "message": one.message,
                       "field": one.field or "<nil>"} for one in refusals]  # fmt: skip
            self.status["details"] = {"causes": causes}


class FakeObjectStore:
    """All objects, by their path. Every method holds the lock."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lock = threading.RLock()
        self._objects: dict[str, Document] = {}
        self._managers: dict[str, str] = {}  # who applied an object first
        self._clock = itertools.count(1)

    def create(self, path: str, namespace: str, document: Document, *, dry_run: bool = False) -> Document:
        """Checked as a real server would. Refused with its code."""
        self._refuse(document, judge(document, self.server, namespace=namespace))
        with self.lock:
            made: Document = json.loads(json.dumps(document))
            head = made["metadata"]
            head.setdefault("name", f"{head.get('generateName', '')}{uuid.uuid4().hex[:5]}")
            if f"{path}/{head['name']}" in self._objects:
                raise FakeServerRefusal(409, f'{path.rsplit("/", 1)[1]} "{head["name"]}" already exists')
            if not dry_run:
                self.put(path, namespace, made)
            return made

    def put(self, path: str, namespace: str, made: Document) -> Document:
        """Without a check: what a controller or a test lays down."""
        with self.lock:
            now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now, "resourceVersion": self._next()}
            if namespace:
                made["metadata"]["namespace"] = namespace
            self._objects[f"{path}/{made['metadata']['name']}"] = made
            return made

    def get(self, path: str) -> Document:
        with self.lock:
            if path not in self._objects:
                raise FakeServerRefusal(404, f"{path.rsplit('/', 1)[1]} not found")
            return self._objects[path]

    def find(self, path: str, *, labels: str = "", fields: str = "") -> list[Document]:
        """Those of a collection that a selector takes; the newest last."""
        wanted = dict(one.split("=", 1) for one in labels.split(",") if one)
        asked = dict(one.split("=", 1) for one in fields.split(",") if one)
        with self.lock:
            return [
                one for key, one in self._objects.items()
                if key.rsplit("/", 1)[0] == path and wanted.items() <= (one["metadata"].get("labels") or {}).items()
                and all(str(_field(one, field)) == value for field, value in asked.items())
            ]  # fmt: skip

    def of_kind(self, plural: str) -> Iterator[tuple[str, Document]]:
        """(path, object) of one kind in all namespaces."""
        with self.lock:
            yield from [(key, one) for key, one in self._objects.items() if key.split("/")[-2] == plural]

    def apply(self, path: str, namespace: str, document: Document, *, manager: str, force: bool = False) -> Document:
        """Server-side apply: created where it is not there; of a change what the kind's rules let change."""
        collection, name = path.rsplit("/", 1)
        with self.lock:
            if path not in self._objects:
                made = self.create(
                    collection, namespace, {**document, "metadata": {**document["metadata"], "name": name}}
                )
                self._managers[path] = manager
                return made
            found = self._objects[path]
            same = force or self._managers.get(path) == manager
            self._refuse(document, judge_update(found, document, self.server, same_manager=same))
            changed = merged(found, document)
            found.clear()
            found.update(changed)
            return found

    def _refuse(self, document: Document, verdict: ObjectVerdict) -> None:
        if not verdict.accepted:
            said = "; ".join(map(str, verdict.refusals))
            first = verdict.refusals[0]
            reason = "Conflict" if first.code == 409 else None
            raise FakeServerRefusal(first.code, f"{document.get('kind')} is invalid: {said}", verdict.refusals, reason)

    def remove(self, path: str) -> None:
        with self.lock:
            self._objects.pop(path, None)

    def count(self) -> int:
        with self.lock:
            return len(self._objects)

    def _next(self) -> str:
        return str(next(self._clock))


def _field(given: Any, path: str) -> Any:
    for name in path.split("."):
        given = given.get(name) if isinstance(given, Mapping) else None
    return given
