"""Azure's Blob Storage as the bucket of runs, by its REST API.

Signed by azure-identity's own chain, or by the SAS token in `AZURE_STORAGE_SAS_TOKEN`; another endpoint than Azure's is
in `AZURE_STORAGE_SERVICE_ENDPOINT` (both are variables of `az storage` too).
Sources: «Blob service REST API», «Specifying conditional headers for Blob service operations».
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote
from xml.etree import ElementTree

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.api_client import ABSENT, ATTEMPTS, GOES_ON, age_s
from tonnage.places.bucket.azure import AzureClient, AzureError
from tonnage.places.bucket.objects import StoredObject

if TYPE_CHECKING:
    import httpx

VERSION: Final = "2023-11-03"  # of the API
SERVICE: Final = "https://storage.azure.com"
ADDRESS: Final = re.compile(
    r"az://(?P<container>[a-z0-9-]+)@(?P<host>(?P<account>[a-z0-9]+)\.blob\.[a-z0-9.]+)(/(?P<prefix>.*))?"
)
HOW: Final = "az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX"
BLOCK_BYTES: Final = 32 << 20
CHANGED: Final = (409, 412)  # it is there already; it is another version
NO_SUCH_BYTES: Final = 416
NO_CONTAINER: Final = "ContainerNotFound"


class BlobClient(AzureClient):
    """With the version that every request names, and the SAS token instead of a sign-in where there is one."""

    def __init__(self, *, attempts: int = ATTEMPTS) -> None:
        super().__init__(SERVICE, attempts=attempts)
        self.sas = dict(parse_qsl(os.environ.get("AZURE_STORAGE_SAS_TOKEN", "").lstrip("?")))

    def signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        signed = {"x-ms-version": VERSION, **(headers or {})}
        return signed if self.sas else super().signed(signed)

    def refusal(self, answer: httpx.Response, url: str) -> TonnageError:
        code = answer.headers.get("x-ms-error-code", "")
        host = url.split("/")[2]
        if answer.status_code in {401, 403}:
            hint = "`az login`, and the role «Storage Blob Data Contributor» on the container"
            return InputError(f"{host}: access refused ({code or answer.status_code})", hint=hint)
        return AzureError(answer.status_code, code, f"{host}: {code or answer.text[:200]}", hint=GOES_ON)


class BlobObjects:
    """Objects below `az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX`."""

    def __init__(self, url: str, *, attempts: int = ATTEMPTS) -> None:
        found = ADDRESS.fullmatch(url)
        if found is None:
            raise InputError(f"{url} names no container of a storage account", hint=HOW)
        self._container, self._account = found["container"], found["account"]
        self._prefix = f"{found['prefix'].strip('/')}/" if (found["prefix"] or "").strip("/") else ""
        endpoint = os.environ.get("AZURE_STORAGE_SERVICE_ENDPOINT") or f"https://{found['host']}"
        self._root = f"{endpoint.rstrip('/')}/{self._container}"
        self._shown = f"az://{self._container}@{found['host']}"
        self._client = BlobClient(attempts=attempts)

    @property
    def url(self) -> str:
        return f"{self._shown}/{self._prefix}".rstrip("/")

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        headers = {"Range": f"bytes={start}-"} if start else {}
        answer = self._send("GET", self._blob(key), headers=headers, accept=(ABSENT, NO_SUCH_BYTES))
        if answer.status_code in {ABSENT, NO_SUCH_BYTES} or (start and not answer.content):
            return None  # Azure refuses a range behind the end, its emulator answers nothing
        return StoredObject(content=answer.content, age_s=age_s(answer.headers), version=answer.headers["etag"])

    def write(self, key: str, content: bytes) -> None:
        self._put(key, content, {})

    def write_if(self, key: str, content: bytes, version: str | None) -> bool:
        condition = {"If-None-Match": "*"} if version is None else {"If-Match": version}
        return self._put(key, content, condition).status_code not in CHANGED

    def _put(self, key: str, content: bytes, condition: dict[str, str]) -> httpx.Response:
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream", **condition}
        return self._send("PUT", self._blob(key), headers=headers, content=content, accept=CHANGED if condition else ())

    def put(self, key: str, path: Path) -> None:
        """In blocks, each of which is sent again where it is cut; the list of them makes the object."""
        if path.stat().st_size <= BLOCK_BYTES:
            self.write(key, path.read_bytes())
            return
        blocks: list[str] = []
        with path.open("rb") as file:
            while piece := file.read(BLOCK_BYTES):
                blocks.append(base64.b64encode(f"{len(blocks):06d}".encode()).decode())
                params = {"comp": "block", "blockid": blocks[-1]}
                self._send("PUT", self._blob(key), params=params, content=piece)
        listed = "".join(f"<Latest>{one}</Latest>" for one in blocks)
        content = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
        self._send("PUT", self._blob(key), params={"comp": "blocklist"}, content=content)

    def get(self, key: str, path: Path) -> None:
        self._client.download(self._blob(key), path, params=self._client.sas, shown=f"{self.url}/{key}")

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        marker = ""
        while True:
            params = {"restype": "container", "comp": "list", "prefix": self._prefix + prefix,
                      **({"marker": marker} if marker else {})}  # fmt: skip
            page = ElementTree.fromstring(self._send("GET", self._root, params=params).content)
            for one in page.iter("Blob"):
                name, size = one.findtext("Name") or "", one.findtext("Properties/Content-Length") or "0"
                found[name.removeprefix(self._prefix)] = int(size)
            marker = page.findtext("NextMarker") or ""
            if not marker:
                return dict(sorted(found.items()))

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._send("DELETE", self._blob(key), accept=(ABSENT,))

    def _send(self, method: str, url: str, *, params: Mapping[str, str] | None = None, accept: Iterable[int] = (),
              **more: Any) -> httpx.Response:  # fmt: skip
        """The answer; a container that is not there is no object that is not there."""
        query = {**(params or {}), **self._client.sas}
        try:
            answer = self._client.send(method, url, params=query, accept=tuple(accept), **more)
        except AzureError as error:
            if error.reason == NO_CONTAINER:
                raise self._no_container() from error
            raise
        if answer.headers.get("x-ms-error-code") == NO_CONTAINER:
            raise self._no_container()
        return answer

    def _no_container(self) -> InputError:
        words = f"--name {self._container} --account-name {self._account} --auth-mode login"
        return InputError(f"there is no container {self._container} in {self._account}",
                          hint=f"`az storage container create {words}`")  # fmt: skip

    def _blob(self, key: str) -> str:
        return f"{self._root}/{quote(self._prefix + key, safe='/')}"
