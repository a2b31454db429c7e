"""Objects of a store (S3, Google, Azure) as a batch needs them: read from a byte on, made once, written whole."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final, Protocol, cast

from tonnage.errors import InputError, TonnageError
from tonnage.http.retries import RetryPolicy, TemporaryError
from tonnage.values import dataclass

READ_TRIES: Final = 6  # without a byte in between
BUFFER_BYTES: Final = 2**20
_ALIASES: Final = {"gcs": "gs", "abfs": "az", "abfss": "az", "s3a": "s3"}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]+)/(.+)", re.DOTALL)


class ObjectChanged(Exception):
    """The object is of another version than before, or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectState:
    """One object as it is now. `version` changes whenever its bytes do."""

    size_bytes: int
    version: str


class ObjectStore(Protocol):
    """One bucket. Keys are names inside it. TonnageError where the store refuses, or is away for too long."""

    def look(self, key: str) -> ObjectState | None:
        """None: there is no such object."""

    def read(self, key: str, start: int, version: str) -> Iterator[bytes]:
        """The bytes from `start` on. Raises ObjectChanged where it is no longer of that version, TemporaryError."""

    def create(self, key: str, data: bytes) -> bool:
        """Make an object, whole or not at all; False where one is there already, which stays as it is."""

    def replace(self, key: str, blocks: Iterator[bytes], version: str | None) -> None:
        """Write an object, whole or not at all, over that version (None: where there is none). ObjectChanged else."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """The keys that begin so, in order, with their bytes."""

    def delete(self, keys: Sequence[str]) -> None:
        """Objects that are not there are no error."""


def is_object_url(text: str) -> bool:
    """Whether a text names an object, not a file of this machine.

    >>> is_object_url("s3://bucket/in.jsonl"), is_object_url("in.jsonl"), is_object_url("C:/in.jsonl")
    (True, False, False)
    """
    return "://" in text


def open_store(url: str) -> tuple[ObjectStore, str]:
    """The store of `s3://BUCKET/KEY` (gs, az), and the key. InputError where nothing reads such a URL."""
    found = _URL.fullmatch(url)
    if found is None:
        raise InputError(f"'{url}' names no object", hint="s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY")
    scheme, bucket, key = found[1].lower(), found[2], found[3]
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == "s3":
        from tonnage.batches.s3_objects import S3BatchObjects

        return S3BatchObjects(bucket), key
    from tonnage.batches.fsspec_objects import FsspecObjects, open_filesystem

    return FsspecObjects(open_filesystem(scheme), bucket, shown=f"{scheme}://{bucket}"), key


class ObjectPlace:
    """One object in the place of a `Path` that is read: `open`, `suffix`, its URL as text. All reads of one
    ObjectPlace see one version of it."""

    def __init__(self, url: str, state: ObjectState | None = None) -> None:
        self._store, self._key = open_store(url)
        self._url = url
        state = state or self._store.look(self._key)
        if state is None:
            raise InputError(f"{url} is not there", hint="check the spelling")
        self.state = state

    def __str__(self) -> str:
        return self._url

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process: the same version, or an error where it is read."""
        return _opened_again, (self._url, self.state)

    @property
    def suffix(self) -> str:
        return "." + self._key.rpartition("/")[2].rpartition(".")[2]

    def open(self, mode: str = "rb") -> BinaryIO:
        if mode != "rb":
            raise ValueError(mode)
        return open_object(self._store, self._key, self.state, shown=self._url)


def _opened_again(url: str, state: ObjectState) -> ObjectPlace:
    return ObjectPlace(url, state)


def open_object(store: ObjectStore, key: str, state: ObjectState, *, shown: str) -> BinaryIO:
    """A buffered stream over one version of an object."""
    return cast(BinaryIO, io.BufferedReader(_ObjectStream(store, key, state, shown), BUFFER_BYTES))


class _ObjectStream(io.RawIOBase):
    """Bytes of an object, taken up where they stopped when the connection breaks, and requested again after a seek."""

    def __init__(self, store: ObjectStore, key: str, state: ObjectState, shown: str) -> None:
        self._store, self._key, self._state, self._shown = store, key, state, shown
        self._place = 0
        self._blocks: Iterator[bytes] | None = None
        self._rest = memoryview(b"")
        self._policy = RetryPolicy(attempts=READ_TRIES, wait=_sleep, give_up=_given_up)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._state.size_bytes}[whence]
        if base + offset != self._place:
            self._place, self._rest = base + offset, memoryview(b"")
            self._let_go()
        return self._place

    def readinto(self, buffer: Any) -> int:
        while not self._rest and self._place < self._state.size_bytes:
            self._rest = memoryview(self._next_block())
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        self._place += taken
        return taken

    def close(self) -> None:
        self._let_go()
        super().close()

    def _next_block(self) -> bytes:
        """The next bytes; where the connection broke, from where it did."""
        try:
            if self._blocks is None:
                self._blocks = self._store.read(self._key, self._place, self._state.version)
            block = next(self._blocks, None)
            if block is None:
                raise TemporaryError("the answer ended early")
            self._policy.progressed()
            return block
        except TemporaryError as error:
            self._let_go()
            self._policy.failed(error, self._shown)
            return b""
        except ObjectChanged as error:
            raise ObjectChanged(f"{self._shown} was changed while it was read") from error

    def _let_go(self) -> None:
        close, self._blocks = getattr(self._blocks, "close", None), None
        if close is not None:
            close()


def _sleep(seconds: float) -> None:
    from time import sleep

    sleep(seconds)


def _given_up(shown: str, failures: int, error: TemporaryError) -> TonnageError:
    return TonnageError(f"{shown}: {error}, {failures} times in a row", hint="the same command goes on")
