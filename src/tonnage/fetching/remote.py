"""A file somewhere else, and what a place to fetch from must be able to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from importlib import import_module
from typing import Any, Final, Literal, Protocol

from tonnage.errors import FetchError, MissingExtra
from tonnage.values import dataclass

Algorithm = Literal["sha256", "md5", "git-blob"]
BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """A digest in hex and who stated it, in words for the reader."""

    algorithm: Algorithm
    hex: str
    stated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of a source. `version` changes whenever its bytes do; None: the server cannot tell."""

    name: str  # in a target, with / between folders
    identity: str
    place: str = field(repr=False)  # what the backend opens; may hold secrets
    size_bytes: int | None
    version: str | None
    ranged: bool  # whether parts of it can be asked for
    checksums: tuple[Checksum, ...] = ()


class SourceChanged(Exception):
    """The file is another one than when it was begun."""


class FetchStopped(Exception):
    """The user interrupted."""


class Backend(Protocol):
    """One kind of place that files are read from by ranges."""

    def list_files(self) -> list[RemoteFile]:
        """Every file of the source. FetchError when there is none, TemporaryError when it is worth asking again."""

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
        """The bytes from `start` to before `end` (None: to the end), of exactly this version.

        Raises SourceChanged, TemporaryError or FetchError.
        """

    def look_again(self, file: RemoteFile) -> RemoteFile:
        """The same file as it is now."""

    def close(self) -> None:
        """Let go of connections; nothing is read afterwards."""


def need(module: str, what: str, extra: str = "fetch") -> Any:
    """An optional library; MissingExtra names the extra that brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtra(what, extra) from error


def not_found(identity: str) -> FetchError:
    """Nothing is there."""
    return FetchError(f"{identity}: there is no such file or folder", hint="check the spelling and the revision")
