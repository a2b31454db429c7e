"""What a run's bucket has to be able to do, and a folder that does it: a mounted volume, or a test's."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from tonnage.errors import InputError
from tonnage.files import DRAFT_PREFIX, make_private_folder, move_whole, write_whole
from tonnage.values import dataclass

SCHEMES: Final = ("s3://", "gs://", "az://", "file://", "/Volumes/")
MOUNTED: Final = "volume"  # the scheme of a mounted volume, on the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object's bytes, and how long ago they were written by the store's own clock."""

    content: bytes
    age_s: float
    version: str


class Objects(Protocol):
    """Objects below one address. Each is written whole or not at all; what was written is read from then on."""

    @property
    def url(self) -> str: ...

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        """From a byte on; None where there is no such object, or not so many bytes."""

    def write(self, key: str, content: bytes) -> None: ...

    def write_if(self, key: str, content: bytes, version: str | None) -> bool:
        """Only where the object is still this version (None: is not there); False where it is another."""

    def put(self, key: str, path: Path) -> None:
        """A file of any size."""

    def get(self, key: str, path: Path) -> None:
        """Into a file. FileNotFoundError where there is no such object."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Every object whose key begins so, in order."""

    def remove(self, keys: Iterable[str]) -> None: ...


def open_objects(url: str, *, region: str | None = None, profile: str | None = None, endpoint: str | None = None,
                 ) -> Objects:  # fmt: skip
    """The objects below an address: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `file:///FOLDER`,
    `az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX`, a volume of Databricks' Unity Catalog
    `/Volumes/CATALOG/SCHEMA/VOLUME/FOLDER`, and `volume:///Volumes/...` where it is mounted.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "s3":
        from tonnage.places.bucket.s3 import S3Objects

        return S3Objects(url, region=region, profile=profile, endpoint=endpoint)
    if scheme == "gs":
        from tonnage.places.bucket.gcs import GCSObjects

        return GCSObjects(url)
    if scheme == "az":
        from tonnage.places.bucket.blobs import BlobObjects

        return BlobObjects(url)
    if url.startswith("/Volumes/"):
        from tonnage.places.bucket.volume import VolumeObjects

        return VolumeObjects(url, profile=profile)
    if scheme in {"file", MOUNTED}:
        return FolderObjects(Path(rest), renames=scheme == "file")
    raise InputError(f"{url}: no place for runs", hint=f"an address that begins with {', '.join(SCHEMES)}")


def replaced(objects: Objects, key: str, content: bytes, version: str) -> bool:
    """`write_if` of a store that knows no condition: not against another client in the same instant."""
    found = objects.read(key)
    if found is None or found.version != version:
        return False
    objects.write(key, content)
    return True


class FolderObjects:
    """A folder: a volume that is mounted here and at the machine.

    `renames`: an object gets its name once it is whole. Without it each is written in one piece: volumes of Unity
    Catalog show a file once it is closed, and take neither appends nor writes in its middle.
    """

    def __init__(self, folder: Path, *, renames: bool = True) -> None:
        self._folder, self._renames = folder, renames

    @property
    def url(self) -> str:
        return f"file://{self._folder}"

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        path = self._folder / key
        try:
            content, changed = path.read_bytes(), path.stat().st_mtime
        except FileNotFoundError:
            return None
        if start and start >= len(content):
            return None
        version = hashlib.sha256(content).hexdigest()
        return StoredObject(content=content[start:], age_s=max(0.0, time.time() - changed), version=version)

    def write(self, key: str, content: bytes) -> None:
        if self._renames:
            write_whole(self._made(key), content)
        else:
            self._made(key).write_bytes(content)

    def write_if(self, key: str, content: bytes, version: str | None) -> bool:
        path = self._made(key)
        if version is None:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                return False
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            return True
        return replaced(self, key, content, version)

    def put(self, key: str, path: Path) -> None:
        goal = self._made(key)
        if not self._renames:
            shutil.copyfile(path, goal)
            return
        beside = goal.with_name(f"{DRAFT_PREFIX}{os.getpid()}-{goal.name}")
        shutil.copyfile(path, beside)
        move_whole(beside, goal)

    def get(self, key: str, path: Path) -> None:
        shutil.copyfile(self._folder / key, path)

    def sizes(self, prefix: str) -> dict[str, int]:
        above = self._folder / prefix.rpartition("/")[0]
        files = (path for path in above.rglob("*") if path.is_file() and not path.name.startswith(DRAFT_PREFIX))
        found = {str(path.relative_to(self._folder)): path.stat().st_size for path in files}
        return {key: size for key, size in sorted(found.items()) if key.startswith(prefix)}

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            (self._folder / key).unlink(missing_ok=True)

    def _made(self, key: str) -> Path:
        path = self._folder / key
        make_private_folder(path.parent)
        return path
