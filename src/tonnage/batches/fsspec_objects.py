"""Google and Azure storage through fsspec: gcsfs and adlfs make an object under the condition that there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from tonnage.batches.objects import ObjectChanged, ObjectState
from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.http.retries import TemporaryError

BLOCK_BYTES: Final = 2**23
_LIBRARIES: Final = {"gs": ("gcsfs", "fetch-gs"), "az": ("adlfs", "fetch-az")}


def open_filesystem(scheme: str) -> Any:
    """The filesystem of `gs` or `az`, with the provider's own chain of credentials. MissingExtra, InputError."""
    if scheme not in _LIBRARIES:
        raise InputError(f"nothing reads {scheme}://", hint="s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY")
    module, extra = _LIBRARIES[scheme]
    try:
        import_module(module)
        fsspec = import_module("fsspec")
    except ImportError as error:
        raise MissingExtra(f"{scheme}://", extra) from error
    return fsspec.filesystem("abfs" if scheme == "az" else scheme, use_listings_cache=False)


class FsspecObjects:
    """The objects of one bucket of an fsspec filesystem."""

    def __init__(self, filesystem: Any, bucket: str, *, shown: str) -> None:
        self._fs, self._bucket, self._shown = filesystem, bucket, shown

    def look(self, key: str) -> ObjectState | None:
        with self._translated(key):
            return self._found(key)

    def _found(self, key: str) -> ObjectState | None:
        """As `look`, with the library's own errors."""
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(self._path(key))
        except FileNotFoundError:
            return None
        return None if info["type"] == "directory" else _state(info)

    def read(self, key: str, start: int, version: str) -> Iterator[bytes]:
        try:
            state = self._same(key, version)
            while start < state.size_bytes:
                block = self._fs.cat_file(self._path(key), start=start, end=min(start + BLOCK_BYTES, state.size_bytes))
                start += len(block)
                if start >= state.size_bytes:
                    self._same(key, version)  # before its last bytes are believed
                yield block
        except FileNotFoundError as error:
            raise ObjectChanged from error
        except PermissionError as error:
            raise InputError(f"{self._shown}/{key}: {error}", hint="check the rights of the account") from error
        except OSError as error:  # gcsfs.HttpError, aiohttp.ClientError and timeouts are among them
            raise TemporaryError(f"{type(error).__name__}: {error}") from error

    def _same(self, key: str, version: str) -> ObjectState:
        """With the library's own errors: the reader retries after those of the network."""
        state = self._found(key)
        if state is None or state.version != version:
            raise ObjectChanged
        return state

    def create(self, key: str, data: bytes) -> bool:
        with self._translated(key):
            try:
                self._fs.pipe_file(self._path(key), data, mode="create")
            except FileExistsError:
                return False
        return True

    def replace(self, key: str, blocks: Iterator[bytes], version: str | None) -> None:
        with self._translated(key):
            file = self._fs.open(self._path(key), "wb", block_size=BLOCK_BYTES)
            try:
                for block in blocks:
                    file.write(block)
                state = self.look(key)
                if (None if state is None else state.version) != version:
                    raise ObjectChanged
            except BaseException:
                file.discard()
                file.closed = True  # else it is uploaded when it is collected: several libraries discard nothing
                raise
            file.close()

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._translated(prefix):
            self._fs.invalidate_cache()
            folder = prefix.rpartition("/")[0]
            try:
                found = self._fs.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        named = {str(path).lstrip("/").removeprefix(f"{self._bucket}/"): one for path, one in sorted(found.items())}
        return {key: int(one["size"]) for key, one in named.items() if key.startswith(prefix)}

    def delete(self, keys: Sequence[str]) -> None:
        with self._translated(keys[0] if keys else ""):
            for key in keys:
                try:
                    self._fs.rm_file(self._path(key))
                except FileNotFoundError:
                    continue

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{key}"

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise InputError(f"{self._shown}/{key}: {error}", hint="check the rights of the account") from error
        except OSError as error:
            said = f"{self._shown}/{key}: {type(error).__name__}: {error}"
            raise TonnageError(said, hint="the same command goes on") from error


def _state(info: Any) -> ObjectState:
    version = next(
        (f"{name} {info[name]}" for name in ("generation", "etag", "ETag", "created") if info.get(name)), None
    )
    if version is None:
        raise TonnageError(f"{info['name']}: the store states no version of it")
    return ObjectState(size_bytes=int(info["size"]), version=version)
