"""Blob Storage's REST API: blobs with ETags and conditions, blocks and lists of them, pages."""

from __future__ import annotations

import itertools
import re
import time
from email.utils import formatdate
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tonnage.testing.http_service import Asked, HTTPAnswer
from tonnage.values import dataclass

BLOBS: Final = re.compile(r"/account/([^/]+)(?:/(.+))?")


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
        told = {"ETag": found.etag, "Last-Modified": formatdate(found.changed, usegmt=True)}
        return HTTPAnswer(status=206 if start else 200, content=found.content[start:], headers=told)

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
