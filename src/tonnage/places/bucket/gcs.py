"""Google Cloud Storage as the bucket of runs, by its JSON API.

Sources: Google, «Request preconditions», «Resumable uploads», «Objects: list».
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tonnage.errors import InputError
from tonnage.http.retries import TemporaryError
from tonnage.places.bucket.api_client import ABSENT, ATTEMPTS, age_s
from tonnage.places.bucket.google import GoogleClient, GoogleError
from tonnage.places.bucket.objects import StoredObject

if TYPE_CHECKING:
    import httpx

CHUNK_BYTES: Final = 32 << 20  # of a resumable upload: a multiple of 256 KiB
GOES_ON: Final = 308  # an upload that wants more
NO_SUCH_BYTES: Final = 416
CHANGED: Final = 412


class GCSObjects:
    """Objects below `gs://BUCKET/PREFIX`."""

    def __init__(self, url: str, *, attempts: int = ATTEMPTS) -> None:
        self._bucket, _, prefix = url.removeprefix("gs://").partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = GoogleClient(attempts=attempts)
        self._root = (os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com").rstrip("/")

    @property
    def url(self) -> str:
        return f"gs://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        headers = {"Range": f"bytes={start}-"} if start else {}
        answer = self._client.send(
            "GET", self._object(key), params={"alt": "media"}, headers=headers, accept=(ABSENT, NO_SUCH_BYTES)
        )
        if answer.status_code in {ABSENT, NO_SUCH_BYTES}:
            return None
        return StoredObject(
            content=answer.content, age_s=age_s(answer.headers),
            version=answer.headers.get("x-goog-generation", ""),
        )  # fmt: skip

    def write(self, key: str, content: bytes) -> None:
        self._upload(key, content)

    def write_if(self, key: str, content: bytes, version: str | None) -> bool:
        condition = {"ifGenerationMatch": "0" if version is None else version}
        return self._upload(key, content, condition).status_code != CHANGED

    def _upload(self, key: str, content: bytes, condition: dict[str, str] | None = None) -> httpx.Response:
        params = {"uploadType": "media", "name": self._prefix + key, **(condition or {})}
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._client.send(
            "POST", self._uploads(), params=params, content=content, headers=headers, accept=(CHANGED, ABSENT)
        )
        if answer.status_code == ABSENT:
            raise self._no_bucket()
        return answer

    def put(self, key: str, path: Path) -> None:
        """In pieces; one that is cut goes on where the bucket has it."""
        size = path.stat().st_size
        params = {"uploadType": "resumable", "name": self._prefix + key}
        begun = self._client.send("POST", self._uploads(), params=params, json={}, accept=(ABSENT,))
        if begun.status_code == ABSENT:
            raise self._no_bucket()
        session, at = begun.headers["location"], 0
        policy = self._client.policy(session)
        with path.open("rb") as file:
            while True:
                file.seek(at)
                piece = file.read(CHUNK_BYTES)
                last = at + len(piece) - 1
                span = f"bytes {at}-{last}/{size}" if piece else f"bytes */{size}"
                headers = {"Content-Range": span}
                try:
                    answer = self._client.once("PUT", session, content=piece, headers=headers, accept=(GOES_ON,))
                    policy.progressed()
                except TemporaryError as error:
                    policy.failed(error, "a piece of the upload")
                    headers = {"Content-Range": f"bytes */{size}"}
                    answer = self._client.send("PUT", session, headers=headers, accept=(GOES_ON,))
                if answer.status_code != GOES_ON:
                    return
                has = answer.headers.get("range")  # bytes=0-LAST; none where it has nothing yet
                at = int(has.rpartition("-")[2]) + 1 if has else 0

    def get(self, key: str, path: Path) -> None:
        self._client.download(self._object(key), path, params={"alt": "media"}, shown=f"{self.url}/{key}")

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        token: str | None = None
        while True:
            params: dict[str, Any] = {"prefix": self._prefix + prefix, "fields": "items(name,size),nextPageToken"}
            params |= {"pageToken": token} if token else {}
            try:
                answer = self._client.call("GET", f"{self._root}/storage/v1/b/{self._bucket}/o", params=params)
            except GoogleError as error:
                if error.status == ABSENT:
                    raise self._no_bucket() from error
                raise
            found |= {one["name"].removeprefix(self._prefix): int(one["size"]) for one in answer.get("items") or ()}
            token = answer.get("nextPageToken")
            if not token:
                return dict(sorted(found.items()))

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._client.send("DELETE", self._object(key), accept=(ABSENT,))

    def _no_bucket(self) -> InputError:
        hint = f"`gcloud storage buckets create gs://{self._bucket} --uniform-bucket-level-access`"
        return InputError(f"there is no bucket {self._bucket}", hint=hint)

    def _object(self, key: str) -> str:
        return f"{self._root}/storage/v1/b/{self._bucket}/o/{quote(self._prefix + key, safe='')}"

    def _uploads(self) -> str:
        return f"{self._root}/upload/storage/v1/b/{self._bucket}/o"
