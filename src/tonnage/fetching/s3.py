"""Amazon S3 and what speaks its language, through boto3: ranges under `If-Match`, so that versions never mix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from tonnage.errors import FetchError
from tonnage.fetching.addresses import Address
from tonnage.fetching.remote import BLOCK_BYTES, Checksum, RemoteFile, SourceChanged, need, not_found
from tonnage.http.retries import TemporaryError

T = TypeVar("T")
_MD5: Final = re.compile(r"[0-9a-f]{32}")
_TEMPORARY: Final = frozenset(
    {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Throttling", "503"}
)


def make_client(jobs: int) -> Any:
    """A client from the environment (AWS_PROFILE, AWS_ENDPOINT_URL_S3, ...), with our attempts instead of its own."""
    boto3, config = need("boto3", "s3://"), need("botocore.config", "s3://")
    return boto3.client(
        "s3",
        config=config.Config(
            max_pool_connections=jobs + 4,
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=30,
            read_timeout=30,
        ),
    )


@contextmanager
def translated(identity: str) -> Iterator[None]:
    """Exceptions of botocore as ours."""
    exceptions = need("botocore.exceptions", "s3://")
    urllib3 = need("urllib3.exceptions", "s3://")
    try:
        yield
    except exceptions.ClientError as error:
        raise _judged(error, identity) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        raise FetchError(f"{identity}: {error}", hint="set AWS_PROFILE or AWS_ACCESS_KEY_ID and its secret") from error
    except (exceptions.HTTPClientError, exceptions.IncompleteReadError, urllib3.HTTPError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise TemporaryError(f"{type(error).__name__}: {error}") from error
    except exceptions.BotoCoreError as error:
        raise FetchError(f"{identity}: {error}") from error


def _judged(error: Any, identity: str) -> Exception:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in ("PreconditionFailed", "412") or status in (412, 416):
        return SourceChanged()
    if code in ("NoSuchKey", "NoSuchBucket", "404") or status == 404:
        return not_found(identity)
    if code in _TEMPORARY or status in (429, 500, 502, 503, 504):
        return TemporaryError(f"S3 answers {code or status}")
    if status in (401, 403):
        return FetchError(f"{identity}: access refused ({code})", hint="check the profile, its rights and the region")
    return FetchError(f"{identity}: S3 answers {code}: {error.response.get('Error', {}).get('Message', '')}")


class S3Backend:
    """An object, or every object under a prefix."""

    def __init__(self, address: Address, *, jobs: int) -> None:
        self._address = address
        self._client = make_client(jobs)

    def list_files(self) -> list[RemoteFile]:
        """The object of that key, else those under KEY/."""
        key = self._address.path
        with translated(self._address.identity):
            if key and not key.endswith("/"):
                single = self._maybe_head(key)
                if single is not None:
                    return [self._file(key, key.rpartition("/")[2], single)]
                key += "/"
            found = list(self._listed(key))
        if not found:
            raise not_found(self._address.identity)
        return found

    def _maybe_head(self, key: str) -> Any:
        try:
            with translated(self._address.identity):
                return self._client.head_object(Bucket=self._address.container, Key=key)
        except FetchError:
            exists = self._client.list_objects_v2(Bucket=self._address.container, Prefix=f"{key}/", MaxKeys=1)
            if exists.get("KeyCount"):
                return None
            raise

    def _listed(self, prefix: str) -> Iterator[RemoteFile]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._address.container, Prefix=prefix):
            for entry in page.get("Contents", ()):
                name = entry["Key"].removeprefix(prefix)
                if name and not name.endswith("/"):  # a folder's own marker
                    yield self._file(entry["Key"], name, entry)

    def _file(self, key: str, name: str, entry: Any) -> RemoteFile:
        etag = str(entry["ETag"])
        encrypted = str(entry.get("ServerSideEncryption", "AES256")) != "AES256" or "SSECustomerAlgorithm" in entry
        plain = etag.strip('"').lower()
        stated: tuple[Checksum, ...] = ()
        if _MD5.fullmatch(plain) and not encrypted:
            stated = (Checksum(algorithm="md5", hex=plain, stated_by="S3 ETag"),)
        return RemoteFile(
            name=name,
            identity=f"s3://{self._address.container}/{key}",
            place=key,
            size_bytes=int(entry.get("ContentLength", entry.get("Size"))),
            version=f"etag {etag}",
            ranged=True,
            checksums=stated,
        )

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
        """A range of exactly this ETag."""
        asked = {"Bucket": self._address.container, "Key": file.place, "IfMatch": _etag(file)}
        if end is not None:
            asked["Range"] = f"bytes={start}-{end - 1}"
        with translated(file.identity):
            body = self._client.get_object(**asked)["Body"]
            try:
                while block := body.read(BLOCK_BYTES):
                    yield block
            finally:
                body.close()

    def look_again(self, file: RemoteFile) -> RemoteFile:
        """The object as it is now."""
        with translated(file.identity):
            head = self._client.head_object(Bucket=self._address.container, Key=file.place)
        return self._file(file.place, file.name, head)

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


def _etag(file: RemoteFile) -> str:
    return (file.version or "").partition(" ")[2]


class S3Target:
    """Files below a prefix."""

    def __init__(self, address: Address, *, jobs: int) -> None:
        self.shown = address.identity
        self._bucket, self._prefix = address.container, address.path.strip("/")
        self._client = make_client(jobs)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def state(self, name: str) -> str | None:
        """What changes when the object does; None: it is not there."""
        try:
            with translated(self.shown):
                head = self._client.head_object(Bucket=self._bucket, Key=self._key(name))
        except FetchError as error:
            if "no such file" in str(error):
                return None
            raise
        return f"{head['ContentLength']} {head['ETag']}"

    def put(self, path: Path, name: str) -> None:
        """Upload a file, in parts where it is large."""
        exceptions = need("boto3.exceptions", "s3://")
        with translated(self.shown):
            try:
                self._client.upload_file(str(path), self._bucket, self._key(name))
            except exceptions.S3UploadFailedError as error:
                raise TemporaryError(str(error)) from error

    def read_text(self, name: str) -> str | None:
        """A small object; None when it is not there."""
        try:
            with translated(self.shown):
                body = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
        except FetchError as error:
            if "no such file" in str(error):
                return None
            raise
        return str(body.decode())

    def write_text(self, name: str, text: str) -> None:
        """A small object, written whole."""
        with translated(self.shown):
            self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=text.encode())

    def blocks(self, name: str) -> Iterator[bytes]:
        """The bytes of an object."""
        with translated(self.shown):
            body = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"]
            while block := body.read(BLOCK_BYTES):
                yield block
