"""Where files go: a local folder, and the manifest that every target keeps of what was put there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from tonnage.errors import FetchError, InputError
from tonnage.fetching.addresses import MANIFEST_NAME, Address
from tonnage.fetching.remote import BLOCK_BYTES
from tonnage.files import SHARED, write_whole
from tonnage.values import dataclass

MANIFEST_SCHEMA: Final = "tonnage/fetch-manifest@1"


class Target(Protocol):
    """A place that files are put into."""

    shown: str

    def state(self, name: str) -> str | None: ...

    def put(self, path: Path, name: str) -> None: ...

    def read_text(self, name: str) -> str | None: ...

    def write_text(self, name: str, text: str) -> None: ...

    def blocks(self, name: str) -> Iterator[bytes]: ...


class FolderTarget:
    """A local folder. Files arrive whole, as hard links into the cache where that is possible."""

    def __init__(self, address: Address, *, copy: bool) -> None:
        self.shown = address.path
        self.root = Path(address.path)
        self._copy = copy
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.shown} is not a folder", hint="--to names a folder; files keep their own names")

    def path(self, name: str) -> Path:
        """The path of a file; refused where a symbolic link leads out of the folder."""
        folder = (self.root / name).parent
        if not folder.resolve().is_relative_to(self.root.resolve()):
            raise FetchError(
                f"{folder} leads out of {self.root} through a symbolic link, {name} is not written there",
                hint="remove the link, or name another --to",
            )
        return self.root / name

    def state(self, name: str) -> str | None:
        """What changes when the file does; None: it is not there."""
        path = self.path(name)
        if path.is_symlink() or not path.is_file():
            return None
        state = path.stat()
        return f"{state.st_size} {state.st_mtime_ns}"

    def links_from(self, path: Path) -> bool:
        """Whether a file below `path` can be here too without taking room again."""
        return not self._copy and nearest_folder(path).stat().st_dev == nearest_folder(self.root).stat().st_dev

    def put(self, path: Path, name: str) -> None:
        """Link or copy a file here under a draft's name, then give it its own, over an older file."""
        goal = self.path(name)
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal = self.path(name)  # once more, now that the folders are there
        handle, draft = tempfile.mkstemp(dir=goal.parent, prefix=".tonnage-draft-")
        os.close(handle)
        try:
            if not (self._copy is False and _linked(path, Path(draft))):
                shutil.copyfile(path, draft)
                shutil.copystat(path, draft)
                Path(draft).chmod(0o644)
            Path(draft).replace(goal)
        except OSError as error:
            Path(draft).unlink(missing_ok=True)
            raise FetchError(f"{goal} cannot be written: {error.strerror or error}") from error
        Path(draft).unlink(missing_ok=True)  # replacing a link by a link to the same file leaves both

    def read_text(self, name: str) -> str | None:
        """A small file; None when it is not there."""
        try:
            return self.path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write_text(self, name: str, text: str) -> None:
        """A small file, whole or not at all."""
        self.root.mkdir(parents=True, exist_ok=True)
        write_whole(self.path(name), text, mode=SHARED)

    def blocks(self, name: str) -> Iterator[bytes]:
        """The bytes of a file."""
        with self.path(name).open("rb") as stream:
            while block := stream.read(4 * BLOCK_BYTES):
                yield block


def _linked(path: Path, draft: Path) -> bool:
    """Make `draft` a hard link to `path`; False where the file system has none between the two."""
    draft.unlink()
    try:
        path.resolve().chmod(0o444)  # a write through the link would change the cache
        draft.hardlink_to(path.resolve())
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES):
            return False
        raise
    return True


def nearest_folder(path: Path) -> Path:
    """The folder itself, or the one above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def open_target(address: Address, *, copy: bool, jobs: int) -> Target:
    """The target of an address."""
    if address.scheme == "file":
        return FolderTarget(address, copy=copy)
    if address.scheme == "s3":
        from tonnage.fetching.s3 import S3Target

        return S3Target(address, jobs=jobs)
    if address.scheme in ("gs", "az"):
        from tonnage.fetching.filesystems import FilesystemTarget

        return FilesystemTarget(address)
    raise InputError(
        f"{address.identity}: nothing is written to {address.scheme}://", hint="a folder, s3://, gs://, az://"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One file of a manifest. `state` is the target's own mark of the file as it was put there."""

    source: str
    version: str | None
    size_bytes: int
    sha256: str
    verified_by: str
    fetched_at: str
    state: str


class Manifest:
    """`.tonnage-fetch.json` of a target: read at the start, written as files arrive."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._lock = Lock()
        self._entries = self._read()
        self._unsaved: dict[str, ManifestEntry] = {}

    def _read(self) -> dict[str, ManifestEntry]:
        text = self.target.read_text(MANIFEST_NAME)
        if text is None:
            return {}
        try:
            document: Any = json.loads(text)
            if document["schema"] != MANIFEST_SCHEMA:
                raise ValueError(f"its schema is {document['schema']!r}")
            return {name: ManifestEntry(**entry) for name, entry in document["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FetchError(
                f"{self.target.shown}/{MANIFEST_NAME} cannot be read: {error}",
                hint="move it away: the files are then looked at and fetched as if they were new",
            ) from error

    @property
    def entries(self) -> dict[str, ManifestEntry]:
        """Name to entry."""
        return self._entries

    def current(self, name: str, identity: str, version: str | None, sha256: str | None) -> ManifestEntry | None:
        """The entry of a file that is there, untouched, of this source and version (or of the SHA-256 stated)."""
        entry = self._entries.get(name)
        if entry is None or entry.source != identity or sha256 not in (None, entry.sha256):
            return None
        if sha256 is None and (version is None or version != entry.version):
            return None
        return entry if self.target.state(name) == entry.state else None

    def add(self, name: str, entry: ManifestEntry) -> None:
        """Enter a file that was put."""
        with self._lock:
            self._entries[name] = self._unsaved[name] = entry

    def save(self) -> None:
        """Write what is new, beside what another process entered meanwhile."""
        with self._lock:
            if not self._unsaved:
                return
            merged = {**self._read(), **self._unsaved}
            files = {name: asdict(merged[name]) for name in sorted(merged)}
            document = {"schema": MANIFEST_SCHEMA, "files": files}
            self.target.write_text(MANIFEST_NAME, json.dumps(document, indent=1) + "\n")
            self._unsaved = {}
