"""Cloud Storage's JSON API: objects with generations, preconditions, resumable uploads, pages."""

from __future__ import annotations

import itertools
import json
import re
import time
from email.utils import formatdate
from typing import Final
from urllib.parse import quote, unquote

from tonnage.testing.http_service import Asked, HTTPAnswer
from tonnage.values import dataclass

OBJECTS: Final = re.compile(r"/storage/v1/b/([^/]+)/o(?:/(.+))?")
UPLOADS: Final = re.compile(r"/upload/storage/v1/b/([^/]+)/o")


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeBlob:
    """One object."""

    content: bytes
    generation: int
    changed: float


@dataclass(slots=True, kw_only=True)
class FakeUpload:
    """A resumable one."""

    bucket: str
    name: str
    content: bytes = b""


class FakeStorage:
    """Buckets of a project."""

    def __init__(self, url: str) -> None:
        self.url, self.page = url, 1000
        self.buckets: dict[str, dict[str, FakeBlob]] = {}
        self.uploads: dict[str, FakeUpload] = {}
        self._numbers = itertools.count(1)

    def answer(self, asked: Asked) -> HTTPAnswer | None:
        """None where the request is none of storage."""
        if found := UPLOADS.fullmatch(asked.path):
            return self._upload(asked, found[1])
        if found := OBJECTS.fullmatch(asked.path):
            if found[1] not in self.buckets:
                return google_fault(404, "notFound", "The specified bucket does not exist.")
            return self._list(asked, found[1]) if found[2] is None else self._object(asked, found[1], unquote(found[2]))
        return None

    def _upload(self, asked: Asked, bucket: str) -> HTTPAnswer:
        if bucket not in self.buckets:
            return google_fault(404, "notFound", "The specified bucket does not exist.")
        if asked.method == "PUT":
            return self._piece(asked, self.uploads[asked.query["upload_id"]])
        name = asked.query["name"]
        if asked.query["uploadType"] == "resumable":
            session = f"session-{next(self._numbers)}"
            self.uploads[session] = FakeUpload(bucket=bucket, name=name)
            where = f"{self.url}/upload/storage/v1/b/{quote(bucket)}/o?uploadType=resumable&upload_id={session}"
            return HTTPAnswer(headers={"Location": where})
        before = self.buckets[bucket].get(name)
        wanted = asked.query.get("ifGenerationMatch")
        if wanted is not None and int(wanted) != (0 if before is None else before.generation):
            return google_fault(
                412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold."
            )
        return self._kept(bucket, name, asked.content)

    def _piece(self, asked: Asked, upload: FakeUpload) -> HTTPAnswer:
        span, _, size = asked.headers["content-range"].removeprefix("bytes ").partition("/")
        if span != "*":
            at = int(span.partition("-")[0])
            if at != len(upload.content):
                return google_fault(503, "backendError", f"byte {len(upload.content)} is next, not {at}")
            upload.content += asked.content
        if len(upload.content) == int(size):
            return self._kept(upload.bucket, upload.name, upload.content)
        has = {"Range": f"bytes=0-{len(upload.content) - 1}"} if upload.content else {}
        return HTTPAnswer(status=308, headers=has)

    def _kept(self, bucket: str, name: str, content: bytes) -> HTTPAnswer:
        made = FakeBlob(content=content, generation=next(self._numbers), changed=time.time())
        self.buckets[bucket][name] = made
        return HTTPAnswer(document={"name": name, "generation": str(made.generation), "size": str(len(content))})

    def _object(self, asked: Asked, bucket: str, name: str) -> HTTPAnswer:
        found = self.buckets[bucket].get(name)
        if found is None:
            return google_fault(404, "notFound", f"No such object: {bucket}/{name}")
        if asked.method == "DELETE":
            del self.buckets[bucket][name]
            return HTTPAnswer(status=204)
        start = int(asked.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if start and start >= len(found.content):
            return google_fault(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
        headers = {"X-Goog-Generation": str(found.generation), "Last-Modified": formatdate(found.changed, usegmt=True)}
        return HTTPAnswer(status=206 if start else 200, content=found.content[start:], headers=headers)

    def _list(self, asked: Asked, bucket: str) -> HTTPAnswer:
        prefix = asked.query.get("prefix", "")
        found = [{"name": name, "size": str(len(one.content))} for name, one in sorted(self.buckets[bucket].items())
                 if name.startswith(prefix)]  # fmt: skip
        at = int(asked.query.get("pageToken") or 0)
        more = {"nextPageToken": str(at + self.page)} if at + self.page < len(found) else {}
        return HTTPAnswer(document={"items": found[at : at + self.page], **more})


def google_fault(status: int, reason: str, message: str) -> HTTPAnswer:
    """An error as Google's APIs write it."""
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    return HTTPAnswer(status=status, content=json.dumps({"error": error}).encode())
