"""A volume of Databricks' Unity Catalog as the bucket of runs, through the Files API; the SDK's own chain of sign-in.

The machine has the volume mounted and uses it as a folder (`FolderObjects`). The Files API has no condition on what is
replaced: a lease that two clients replace in the same instant goes to the later one.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.places.bucket.objects import StoredObject, replaced

PATIENCE_S: Final = 120  # of the SDK's own tries of one call
VOLUME_PARTS: Final = 5  # of /Volumes/CATALOG/SCHEMA/VOLUME


class WorkspaceError(TonnageError):
    """What a workspace refused, with its own code."""

    def __init__(self, code: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class Missing(WorkspaceError):
    """What was asked for is not there."""


class Existing(WorkspaceError):
    """What was to be made is there already."""


def workspace_of(*, profile: str | None, patience_s: int = PATIENCE_S) -> Any:
    """A client of the SDK. Throttling and connections that fail are tried again by it, for so long.

    MissingExtra without the SDK, InputError without a way to sign in.
    """
    try:
        sdk, core = import_module("databricks.sdk"), import_module("databricks.sdk.core")
    except ImportError as error:
        raise MissingExtra("Databricks", "databricks") from error
    try:
        config = core.Config(profile=profile, retry_timeout_seconds=patience_s, http_timeout_seconds=60)
        return sdk.WorkspaceClient(config=config)
    except ValueError as error:
        raise InputError(f"Databricks: {_first_line(error)}", hint=f"{sign_in(profile)}, or DATABRICKS_HOST and "
                         "DATABRICKS_TOKEN") from error  # fmt: skip


def sign_in(profile: str | None) -> str:
    """The command that signs in again."""
    return "`databricks auth login" + (f" --profile {profile}`" if profile else "`")


@contextmanager
def translated(shown: str, profile: str | None) -> Iterator[None]:
    """The SDK's exceptions as ours: Missing, Existing, InputError where the sign-in is refused, else WorkspaceError."""
    errors, requests = import_module("databricks.sdk.errors"), import_module("requests")
    try:
        yield
    except errors.NotFound as error:
        raise Missing(_code(error), f"{shown}: {_first_line(error)}", hint="docs/places.md: Databricks") from error
    except (errors.AlreadyExists, errors.ResourceAlreadyExists) as error:
        raise Existing(_code(error), f"{shown}: {_first_line(error)}", hint="give it another name") from error
    except errors.Unauthenticated as error:
        message = f"{shown}: the sign-in is refused or has expired: {_first_line(error)}"
        raise InputError(message, hint=sign_in(profile)) from error
    except errors.PermissionDenied as error:
        hint = "an administrator of the workspace grants it to `databricks current-user me`"
        raise WorkspaceError(_code(error), f"{shown}: refused: {_first_line(error)}", hint=hint) from error
    except errors.DatabricksError as error:
        words = f"{shown}: {_code(error)}: {_first_line(error)}"
        raise WorkspaceError(_code(error), words, hint="the same command goes on") from error
    except (requests.RequestException, TimeoutError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        message = f"{shown}: the workspace does not answer: {_first_line(error)}"
        raise TonnageError(message, hint="the same command goes on") from error


def _code(error: Any) -> str:
    return str(getattr(error, "error_code", None) or type(error).__name__)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


class VolumeObjects:
    """Objects below `/Volumes/CATALOG/SCHEMA/VOLUME/FOLDER`."""

    def __init__(self, url: str, *, profile: str | None = None) -> None:
        self._root, self._profile = url.rstrip("/"), profile
        self._made: set[str] = set()

    @cached_property
    def _client(self) -> Any:
        return workspace_of(profile=self._profile)

    @property
    def url(self) -> str:
        return self._root

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        try:
            with self._translated(key):
                answer = self._client.api_client.do(
                    "GET", f"/api/2.0/fs/files{quote(self._path(key))}", raw=True,
                    headers={"Accept": "application/octet-stream"}, response_headers=["last-modified", "date"],
                )  # fmt: skip
                with answer["contents"] as body:
                    content = body.read()
        except Missing:
            return None
        if start and start >= len(content):
            return None
        changed, date = answer.get("last-modified"), answer.get("date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        age_s = 0.0 if not changed else max(0.0, (now - parsedate_to_datetime(changed)).total_seconds())
        return StoredObject(content=content[start:], age_s=age_s, version=hashlib.sha256(content).hexdigest())

    def write(self, key: str, content: bytes) -> None:
        self._upload(key, io.BytesIO(content), overwrite=True)

    def write_if(self, key: str, content: bytes, version: str | None) -> bool:
        if version is None:
            try:
                self._upload(key, io.BytesIO(content), overwrite=False)
            except Existing:
                return False
            return True
        return replaced(self, key, content, version)

    def put(self, key: str, path: Path) -> None:
        with path.open("rb") as file:
            self._upload(key, file, overwrite=True)

    def _upload(self, key: str, content: Any, *, overwrite: bool) -> None:
        path = self._path(key)
        above = str(PurePosixPath(path).parent)
        with self._translated(key):
            if above not in self._made:
                self._client.files.create_directory(above)
                self._made.add(above)
            self._client.files.upload(path, content, overwrite=overwrite)

    def get(self, key: str, path: Path) -> None:
        try:
            with (
                self._translated(key),
                self._client.files.download(self._path(key)).contents as body,
                path.open("wb") as file,
            ):
                shutil.copyfileobj(body, file)
        except Missing as error:
            raise FileNotFoundError(self._path(key)) from error

    def sizes(self, prefix: str) -> dict[str, int]:
        above = prefix.rpartition("/")[0]
        try:
            found = dict(self._listed(self._path(above) if above else self._root))
        except Missing:
            self._must_be_there()
            return {}
        return {key: size for key, size in sorted(found.items()) if key.startswith(prefix)}

    def _listed(self, folder: str) -> Iterator[tuple[str, int]]:
        with self._translated(folder):
            entries = list(self._client.files.list_directory_contents(folder))
        for one in entries:
            if one.is_directory:
                yield from self._listed(one.path.rstrip("/"))
            else:
                yield one.path.removeprefix(f"{self._root}/"), int(one.file_size or 0)

    def _must_be_there(self) -> None:
        """InputError where the volume is not: a folder in it that is missing is an empty one."""
        volume = "/".join(self._root.split("/")[:VOLUME_PARTS])
        try:
            with self._translated(volume):
                self._client.files.get_directory_metadata(volume)
        except Missing as error:
            hint = f"`databricks volumes create {' '.join(volume.split('/')[2:])} MANAGED`"
            raise InputError(f"there is no volume {volume}", hint=hint) from error

    def remove(self, keys: Iterable[str]) -> None:
        """The objects, and folders that are empty then."""
        folders: set[str] = set()
        for key in keys:
            folders |= {str(one) for one in PurePosixPath(key).parents if str(one) != "."}
            try:
                with self._translated(key):
                    self._client.files.delete(self._path(key))
            except Missing:
                continue
        bad_request = import_module("databricks.sdk.errors").BadRequest
        for folder in sorted(folders, key=lambda one: one.count("/"), reverse=True):
            self._made.discard(self._path(folder))
            try:
                with self._translated(folder):
                    self._client.files.delete_directory(self._path(folder))
            except Missing:
                continue
            except WorkspaceError as error:
                if not isinstance(error.__cause__, bad_request):  # one that still has others' files
                    raise

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _translated(self, key: str) -> Any:
        return translated(key if key.startswith("/") else self._path(key), self._profile)
