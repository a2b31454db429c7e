"""Files behind http and https: ranges under `If-Range`, so that two versions of a file never mix."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from tonnage.errors import FetchError, InputError
from tonnage.fetching.addresses import Address
from tonnage.fetching.remote import Checksum, RemoteFile, SourceChanged, not_found
from tonnage.http.client import check_temporary, open_client, translated
from tonnage.http.retries import TemporaryError

if TYPE_CHECKING:
    import httpx

_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class WebBackend:
    """One URL of one file."""

    def __init__(self, address: Address, *, jobs: int, timeout_s: float = 30.0) -> None:
        if not address.name:
            raise InputError(f"{address.identity} names no file", hint="folders are not listed over http: name a file")
        self._address = address
        self._client = open_client(timeout_s=timeout_s, headers={"Accept-Encoding": "identity"}, connections=jobs + 1)

    def list_files(self) -> list[RemoteFile]:
        """The one file, as a request for its first byte describes it (servers differ on HEAD)."""
        return [self._probe(self._address.name)]

    def look_again(self, file: RemoteFile) -> RemoteFile:
        """The same file as it is now."""
        return self._probe(file.name)

    def _probe(self, name: str) -> RemoteFile:
        with self._answer({"Range": "bytes=0-0"}) as response:
            found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            ranged = response.status_code == 206 and found is not None and found[3] != "*"
            if ranged and found is not None:
                size: int | None = int(found[3])
            elif response.status_code == 416:
                size = 0
            elif response.status_code == 206:
                raise FetchError(f"{self._address.identity}: the server answers a range without saying of what size")
            else:
                size = _length(response)
            version = strong_version(response)
            return RemoteFile(
                name=name,
                identity=self._address.identity,
                place=self._address.path,
                size_bytes=size,
                version=version,
                ranged=ranged and version is not None,
                checksums=_stated_checksums(response),
            )

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
        """The bytes of a range, or of the whole file where ranges are not to be had."""
        headers = {}
        if file.ranged and end is not None and file.version is not None:
            headers = {"Range": f"bytes={start}-{end - 1}", "If-Range": _validator(file.version)}
        with self._answer(headers) as response:
            self._check_same(response, file, start, end if headers else None)
            yield from response.iter_raw()  # as it comes: what a cut leaves behind counts

    def _check_same(self, response: httpx.Response, file: RemoteFile, start: int, end: int | None) -> None:
        now = strong_version(response)
        if now is not None and file.version is not None and now != file.version:
            raise SourceChanged
        if end is None:
            if file.size_bytes is not None and _length(response) not in (None, file.size_bytes):
                raise SourceChanged
            return
        if response.status_code != 206:  # the whole file instead of the range: If-Range did not hold
            raise SourceChanged
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or (found[1], found[2]) != (str(start), str(end - 1)):
            said = response.headers.get("Content-Range")
            raise TemporaryError(f"asked for bytes {start}-{end - 1}, the server sends {said!r}")
        if found[3] not in ("*", str(file.size_bytes)):
            raise SourceChanged

    def _fault(self, said: str) -> FetchError:
        return FetchError(f"{self._address.identity}: {said}")

    @contextmanager
    def _answer(self, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """A response whose body is still to come, its status judged; closed at the end."""
        with translated(self._fault), self._client.stream("GET", self._address.path, headers=headers) as response:
            self._judge(response)
            yield response

    def _judge(self, response: httpx.Response) -> None:
        """Raise on a status that is no answer."""
        code = response.status_code
        if code in (200, 206) or (code == 416 and response.headers.get("Content-Range") == "bytes */0"):
            return
        where = self._address.identity
        check_temporary(response, f"HTTP {code} {response.reason_phrase}")
        if code in (404, 410):
            raise not_found(where)
        if code in (401, 403):
            raise FetchError(f"{where}: HTTP {code}, access refused", hint="the link may have expired, or need a login")
        if code == 416:
            raise SourceChanged
        raise FetchError(f"{where}: HTTP {code} {response.reason_phrase}")

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


def _length(response: httpx.Response) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def strong_version(response: httpx.Response) -> str | None:
    """The validator that `If-Range` may carry: a strong ETag, else a date at least a second older than the answer."""
    etag = response.headers.get("ETag", "")
    if etag and not etag.startswith("W/"):
        return f"etag {etag}"
    modified, answered = response.headers.get("Last-Modified"), response.headers.get("Date")
    try:
        if modified and answered and parsedate_to_datetime(answered) > parsedate_to_datetime(modified):
            return f"date {modified}"
    except ValueError:
        return None
    return None


def _validator(version: str) -> str:
    return version.partition(" ")[2]


def _stated_checksums(response: httpx.Response) -> tuple[Checksum, ...]:
    """Digests of the whole file in the headers: `Repr-Digest` (RFC 9530) and Google's `x-goog-hash`."""
    found = []
    said = re.search(r"sha-256=:([A-Za-z0-9+/=]+):", response.headers.get("Repr-Digest", ""))
    if said and (digest := _hex(said[1])):
        found.append(Checksum(algorithm="sha256", hex=digest, stated_by="Repr-Digest header"))
    said = re.search(r"md5=([A-Za-z0-9+/=]+)", response.headers.get("x-goog-hash", ""))
    if said and (digest := _hex(said[1])):
        found.append(Checksum(algorithm="md5", hex=digest, stated_by="x-goog-hash header"))
    return tuple(found)


def _hex(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""
