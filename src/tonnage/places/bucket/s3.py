"""Amazon S3, and what speaks its language, as the bucket of runs; boto3's own chain of credentials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.places.bucket.objects import StoredObject

ATTEMPTS: Final = 8
MOST_REMOVED: Final = 1000  # in one request
_ABSENT: Final = frozenset({"NoSuchKey", "404", "InvalidRange", "416"})
_CHANGED: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
_REFUSED: Final = frozenset({"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})


def client_of(service: str, *, region: str | None = None, profile: str | None = None, endpoint: str | None = None,
              attempts: int = ATTEMPTS) -> Any:  # fmt: skip
    """A client of an AWS service. Throttling and failures are tried again by boto3, eight times in all."""
    try:
        session, config = import_module("boto3.session"), import_module("botocore.config")
        exceptions = import_module("botocore.exceptions")
    except ImportError as error:
        raise MissingExtra("AWS", "fetch") from error
    core = import_module("botocore.session").get_session()
    core.register_component("data_loader", _models())
    try:
        return session.Session(profile_name=profile, region_name=region, botocore_session=core).client(
            service, endpoint_url=endpoint,
            config=config.Config(
                retries={"mode": "standard", "total_max_attempts": attempts}, connect_timeout=20, read_timeout=60
            ),
        )  # fmt: skip
    except exceptions.ProfileNotFound as error:
        raise InputError(f"AWS: {error}", hint="`aws configure list-profiles` names those there are") from error
    except exceptions.BotoCoreError as error:
        raise InputError(f"AWS: {error}", hint="the place's `region`, or AWS_REGION") from error


@cache
def _models() -> Any:
    """Botocore's models, read once: each session would read them again, a tenth of a second for each service."""
    return import_module("botocore.loaders").create_loader()


def code_of(error: BaseException | None) -> str:
    """The service's own word for a failure; empty where no service failed."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


class Absent(Exception):
    """No such object, or not so many bytes of it."""


class Changed(Exception):
    """The object is another version."""


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Exceptions of botocore as ours. Absent and Changed are for the caller alone."""
    exceptions = import_module("botocore.exceptions")
    try:
        yield
    except exceptions.ClientError as error:
        code, said = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
        if code in _ABSENT:
            raise Absent from error
        if code in _CHANGED:
            raise Changed from error
        if code in _EXPIRED:
            raise TonnageError(f"{shown}: the credentials have expired", hint="`aws sso login`") from error
        if code == "NoSuchBucket":
            bucket = shown.removeprefix("s3://").partition("/")[0]
            raise InputError(f"there is no bucket {bucket}", hint=f"`aws s3 mb s3://{bucket}`") from error
        if code in _REFUSED:
            hint = "the profile of the place, and its rights to the bucket: `aws sts get-caller-identity`"
            raise InputError(f"{shown}: access refused ({code})", hint=hint) from error
        raise TonnageError(f"{shown}: S3 answers {code}: {said}", hint="the same command goes on") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise InputError(f"{shown}: {error}", hint="the place's `profile`, AWS_PROFILE, or `aws configure`") from error
    except (exceptions.BotoCoreError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise TonnageError(f"{shown}: {error}", hint="the same command goes on") from error


class S3Objects:
    """Objects below `s3://BUCKET/PREFIX`."""

    def __init__(self, url: str, *, region: str | None = None, profile: str | None = None,
                 endpoint: str | None = None) -> None:  # fmt: skip
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client_of("s3", region=region, profile=profile, endpoint=endpoint)

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        asked = {"Range": f"bytes={start}-"} if start else {}
        try:
            with self._translated(key):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, **asked)
                with answer["Body"] as body:
                    content = body.read()
        except Absent:
            return None
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        age_s = max(0.0, (now - answer["LastModified"]).total_seconds())
        return StoredObject(content=content, age_s=age_s, version=str(answer["ETag"]))

    def write(self, key: str, content: bytes) -> None:
        with self._translated(key):
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=content)

    def write_if(self, key: str, content: bytes, version: str | None) -> bool:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            with self._translated(key):
                self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=content, **condition)
        except (Absent, Changed):
            return False
        return True

    def put(self, key: str, path: Path) -> None:
        failed = import_module("boto3.exceptions").S3UploadFailedError
        try:
            with self._translated(key):
                self._client.upload_file(str(path), self._bucket, self._prefix + key)
        except failed as error:
            raise TonnageError(f"{self._shown(key)}: {error}", hint="the same command goes on") from error

    def get(self, key: str, path: Path) -> None:
        try:
            with self._translated(key):
                self._client.download_file(self._bucket, self._prefix + key, str(path))
        except Absent as error:
            raise FileNotFoundError(self._shown(key)) from error

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._translated(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            found = {one["Key"]: int(one["Size"]) for page in pages for one in page.get("Contents", ())}
        return {key.removeprefix(self._prefix): size for key, size in sorted(found.items())}

    def remove(self, keys: Iterable[str]) -> None:
        left = [{"Key": self._prefix + key} for key in keys]
        for begin in range(0, len(left), MOST_REMOVED):
            some = left[begin : begin + MOST_REMOVED]
            with self._translated(some[0]["Key"]):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
            for fault in answer.get("Errors", ()):
                shown = f"s3://{self._bucket}/{fault['Key']}"
                raise TonnageError(f"{shown} cannot be removed: {fault.get('Message')}", hint=f"`aws s3 rm {shown}`")

    def _shown(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    def _translated(self, key: str) -> Any:
        return translated(self._shown(key))
