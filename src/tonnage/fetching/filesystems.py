"""Google and Azure storage through fsspec, and local files: a range is whole bytes of one version, or an error."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tonnage.errors import FetchError
from tonnage.fetching.addresses import Address
from tonnage.fetching.remote import BLOCK_BYTES, Checksum, RemoteFile, need, not_found
from tonnage.http.retries import TemporaryError

_LIBRARIES: Final = {"gs": ("gcsfs", "fetch-gs"), "az": ("adlfs", "fetch-az")}


def open_filesystem(scheme: str) -> Any:
    """The fsspec filesystem of a scheme; MissingExtra names the extra that brings it."""
    fsspec = need("fsspec", f"{scheme}://")
    if scheme in _LIBRARIES:
        module, extra = _LIBRARIES[scheme]
        need(module, f"{scheme}://", extra)
    return fsspec.filesystem("abfs" if scheme == "az" else scheme, use_listings_cache=False)


@contextmanager
def translated(identity: str) -> Iterator[None]:
    """Exceptions of filesystems as ours: what is missing or forbidden is final, the rest is worth asking again."""
    try:
        yield
    except FileNotFoundError as error:
        raise not_found(identity) from error
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        raise FetchError(f"{identity}: {error}", hint="check the rights of the account") from error
    except OSError as error:  # gcsfs.HttpError, aiohttp.ClientError and timeouts are among them
        raise TemporaryError(f"{type(error).__name__}: {error}") from error


class FilesystemBackend:
    """A file, or every file under a folder, of an fsspec filesystem."""

    def __init__(self, address: Address, *, filesystem: Any = None) -> None:
        self._address = address
        self._fs = filesystem or open_filesystem(address.scheme)
        self._root = f"{address.container}/{address.path}".strip("/") if address.container else address.path

    def list_files(self) -> list[RemoteFile]:
        """The file of that path, else all below it."""
        with translated(self._address.identity):
            info = self._fs.info(self._root)
            if info["type"] == "file":
                return [self._file(info, self._address.name, self._address.identity)]
            found = self._fs.find(self._root, detail=True)
        prefix = f"{str(info['name']).rstrip('/')}/"
        names = {str(path).removeprefix(prefix): one for path, one in sorted(found.items())}
        base = self._address.identity.rstrip("/")
        files = [self._file(one, name, f"{base}/{name}") for name, one in names.items()]
        if not files:
            raise not_found(self._address.identity)
        return files

    def _file(self, info: Any, name: str, identity: str) -> RemoteFile:
        return RemoteFile(
            name=name,
            identity=identity,
            place=str(info["name"]),
            size_bytes=int(info["size"]),
            version=_version(info),
            ranged=_version(info) is not None,
            checksums=_stated(info),
        )

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
        """A range; that the version is still the same is asked when the file is whole."""
        stop = file.size_bytes if end is None else end
        with translated(file.identity):
            while stop is not None and start < stop:
                block = self._fs.cat_file(file.place, start=start, end=min(start + 8 * BLOCK_BYTES, stop))
                if not block:
                    return
                start += len(block)
                yield block

    def look_again(self, file: RemoteFile) -> RemoteFile:
        """The file as it is now."""
        with translated(file.identity):
            return self._file(self._fs.info(file.place), file.name, file.identity)

    def close(self) -> None:
        """Let go of connections."""


def _version(info: Any) -> str | None:
    """What changes with the bytes: a generation, an ETag, or a local file's times and number."""
    for key in ("generation", "etag", "ETag"):
        if info.get(key):
            return f"{key} {info[key]}"
    if "ino" in info:
        return f"file {info['ino']} {info['size']} {info['mtime']!r}"
    return f"created {info['created']}" if info.get("created") else None


def _stated(info: Any) -> tuple[Checksum, ...]:
    settings = info.get("content_settings") or {}
    raw = info.get("md5Hash") or settings.get("content_md5")
    if not raw:
        return ()
    digest = base64.b64decode(raw) if isinstance(raw, str) else bytes(raw)
    return (Checksum(algorithm="md5", hex=digest.hex(), stated_by="storage service"),)


class FilesystemTarget:
    """Files below a folder of an fsspec filesystem."""

    def __init__(self, address: Address, *, filesystem: Any = None) -> None:
        self.shown = address.identity
        self._fs = filesystem or open_filesystem(address.scheme)
        self._root = f"{address.container}/{address.path}".strip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def state(self, name: str) -> str | None:
        """What changes when the file does; None: it is not there."""
        try:
            info = self._fs.info(self._path(name))
        except FileNotFoundError:
            return None
        return f"{info['size']} {_version(info)}"

    def put(self, path: Path, name: str) -> None:
        """Upload a file."""
        with translated(self.shown):
            self._fs.put_file(str(path), self._path(name))

    def read_text(self, name: str) -> str | None:
        """A small file; None when it is not there."""
        try:
            return str(self._fs.cat_file(self._path(name)).decode())
        except FileNotFoundError:
            return None

    def write_text(self, name: str, text: str) -> None:
        """A small file."""
        with translated(self.shown):
            self._fs.pipe_file(self._path(name), text.encode())

    def blocks(self, name: str) -> Iterator[bytes]:
        """The bytes of a file."""
        with translated(self.shown), self._fs.open(self._path(name), "rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                yield block
