"""Amazon S3 and what speaks its language, through boto3: reads under `If-Match`, writes under conditions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

from tonnage.batches.objects import ObjectChanged, ObjectState
from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.http.retries import TemporaryError

BLOCK_BYTES: Final = 2**20
PART_BYTES: Final = 2**25  # of a multipart upload: 10,000 of them are allowed, 320 GB
MOST_DELETED: Final = 1000  # in one request
ATTEMPTS: Final = 8  # of boto3 for one request, waits up to 20 s between them
CONFLICT_WAIT_S: Final = 0.2
_CHANGED: Final = frozenset({"PreconditionFailed", "412", "NoSuchKey", "NoSuchUpload", "404", "InvalidRange", "416"})


def make_client() -> Any:
    """A client by boto3's own chain of credentials (AWS_PROFILE, roles, ...) and AWS_ENDPOINT_URL_S3."""
    config = _need("botocore.config").Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS}, connect_timeout=30, read_timeout=60
    )
    with translated("s3"):
        return _need("boto3").session.Session().client("s3", config=config)


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Exceptions of botocore as ours."""
    exceptions = _need("botocore.exceptions")
    try:
        yield
    except exceptions.ClientError as error:
        code = _code(error)
        if code in _CHANGED:
            raise ObjectChanged from error
        said = error.response.get("Error", {}).get("Message", "")
        if code == "NoSuchBucket":
            raise InputError(f"{shown}: there is no such bucket", hint="check the spelling") from error
        if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"):
            raise InputError(
                f"{shown}: access refused ({code})", hint="check the profile, its rights and region"
            ) from error
        raise TonnageError(f"{shown}: S3 answers {code}: {said}", hint="the same command goes on") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        raise InputError(f"{shown}: {error}", hint="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret") from error
    except exceptions.BotoCoreError as error:
        raise TonnageError(f"{shown}: {error}", hint="the same command goes on") from error


class S3BatchObjects:
    """The objects of one bucket."""

    def __init__(self, bucket: str, client: Any = None) -> None:
        self._bucket, self._client = bucket, client or make_client()

    def look(self, key: str) -> ObjectState | None:
        try:
            with self._translated(key):
                head = self._client.head_object(Bucket=self._bucket, Key=key)
        except ObjectChanged:
            return None
        return ObjectState(size_bytes=int(head["ContentLength"]), version=str(head["ETag"]))

    def read(self, key: str, start: int, version: str) -> Iterator[bytes]:
        broken = (
            _need("botocore.exceptions").HTTPClientError, _need("botocore.exceptions").IncompleteReadError,
            _need("urllib3.exceptions").HTTPError, OSError,
        )  # fmt: skip
        try:
            with self._translated(key):
                answer = self._client.get_object(Bucket=self._bucket, Key=key, IfMatch=version, Range=f"bytes={start}-")
            with answer["Body"] as body:
                while block := body.read(BLOCK_BYTES):
                    yield block
        except broken as error:
            raise TemporaryError(f"{type(error).__name__}: {error}") from error

    def create(self, key: str, data: bytes) -> bool:
        while True:
            try:
                with self._translated(key):
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*")
            except ObjectChanged:
                return False
            except TonnageError as error:
                if _code(error.__cause__) != "ConditionalRequestConflict":  # two at once: S3 asks to try again
                    raise
                time.sleep(CONFLICT_WAIT_S)
                continue
            return True

    def replace(self, key: str, blocks: Iterator[bytes], version: str | None) -> None:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        named = {"Bucket": self._bucket, "Key": key}
        parts = _parts_of(blocks)
        first = next(parts, b"")
        second = next(parts, None)
        with self._translated(key):
            if second is None:
                self._client.put_object(**named, Body=first, **condition)
                return
            self._abort_old(key)
            upload = named | {"UploadId": self._client.create_multipart_upload(**named)["UploadId"]}
            try:
                made = []
                for number, part in enumerate(_chained(first, second, parts), start=1):
                    tag = self._client.upload_part(**upload, PartNumber=number, Body=part)["ETag"]
                    made.append({"PartNumber": number, "ETag": tag})
                state = self.look(key)  # for stores that know no condition here
                if (None if state is None else state.version) != version:
                    raise ObjectChanged
                self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": made}, **condition)
            except BaseException:
                with suppress(_need("botocore.exceptions").ClientError):
                    self._client.abort_multipart_upload(**upload)
                raise

    def _abort_old(self, key: str) -> None:
        """End what a kill has left: parts that are paid for and invisible."""
        found = self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=key)
        for one in found.get("Uploads", ()):
            if one["Key"] == key:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=one["UploadId"])

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._translated(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            found = {one["Key"]: int(one["Size"]) for page in pages for one in page.get("Contents", ())}
        return dict(sorted(found.items()))

    def delete(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), MOST_DELETED):
            some = [{"Key": key} for key in keys[begin : begin + MOST_DELETED]]
            with self._translated(keys[begin]):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
            for fault in answer.get("Errors", ()):
                raise TonnageError(f"s3://{self._bucket}/{fault['Key']} cannot be deleted: {fault.get('Message')}")

    def _translated(self, key: str) -> Any:
        return translated(f"s3://{self._bucket}/{key}")


def _parts_of(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of one size, but for the last."""
    gathered: list[bytes] = []
    size = 0
    for block in blocks:
        gathered.append(block)
        size += len(block)
        if size >= PART_BYTES:
            whole = b"".join(gathered)
            yield whole[:PART_BYTES]
            gathered, size = [whole[PART_BYTES:]], size - PART_BYTES
    if size:
        yield b"".join(gathered)


def _chained(first: bytes, second: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield second
    yield from rest


def _code(error: Any) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra("s3://", "fetch") from error
