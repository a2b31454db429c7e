"""What a batch has handed over to a platform, one note a job, beside its output: a folder, or objects of a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tonnage.batches.objects import ObjectStore, is_object_url, open_object, open_store
from tonnage.errors import InputError
from tonnage.files import SHARED, write_whole
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNote:
    """Rows of one model and path that are in one job. `job` None: it may have been handed over, or not."""

    token: str  # that the platform knows the job by
    place: str
    model: str
    path: str
    lines: Sequence[int]
    keys: str  # of its rows, joined: the input that is read later must have the same rows at these lines
    size_bytes: int
    most_written: int | None  # tokens that its rows may write; None: not said
    job: str | None = None


def joined_keys(keys: Iterable[str]) -> str:
    """The keys of rows as one, whatever their order: 32 hex digits."""
    joined = 0
    for key in keys:
        joined ^= int(key, 16)
    return f"{joined:032x}"


class _Files(Protocol):
    """Where notes are kept."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


class JobNotes:
    """The notes of one output, under `OUT.jobs`."""

    def __init__(self, output: Path | str) -> None:
        text = str(output)
        self.shown = f"{text}.jobs"
        self._files: _Files
        if is_object_url(text):
            store, key = open_store(text)
            self._files = _Objects(store, f"{key}.jobs/", self.shown)
        else:
            self._files = _Folder(Path(self.shown))

    def load(self) -> list[JobNote]:
        """All notes, the oldest job not necessarily first. InputError for what is none."""
        return [self._read(name) for name in self._files.names()]

    def _read(self, name: str) -> JobNote:
        try:
            found: dict[str, Any] = json.loads(self._files.read(name))
            return JobNote(**found)
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.shown}/{name} is not a note of a job: {error}", hint="move it away") from error

    def save(self, note: JobNote) -> None:
        """Safe on return, over an earlier note of that token."""
        names = ("token", "place", "model", "path", "lines", "keys", "size_bytes", "most_written", "job")
        said = {name: getattr(note, name) for name in names} | {"lines": list(note.lines)}
        self._files.write(f"{note.token}.json", json.dumps(said).encode())

    def remove(self, note: JobNote) -> None:
        self._files.remove(f"{note.token}.json")


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return sorted(one.name for one in self._path.glob("*.json"))

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        self._path.mkdir(exist_ok=True)
        write_whole(self._path / name, data, mode=SHARED)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        if not any(self._path.iterdir()):
            self._path.rmdir()


class _Objects:
    def __init__(self, store: ObjectStore, prefix: str, shown: str) -> None:
        self._store, self._prefix, self._shown = store, prefix, shown

    def names(self) -> list[str]:
        return [key.removeprefix(self._prefix) for key in self._store.sizes(self._prefix) if key.endswith(".json")]

    def read(self, name: str) -> bytes:
        state = self._store.look(self._prefix + name)
        if state is None:
            raise InputError(f"{self._shown}/{name} is gone", hint="another process works on this output")
        with open_object(self._store, self._prefix + name, state, shown=f"{self._shown}/{name}") as stream:
            return stream.read()

    def write(self, name: str, data: bytes) -> None:
        state = self._store.look(self._prefix + name)
        self._store.replace(self._prefix + name, _once(data), None if state is None else state.version)

    def remove(self, name: str) -> None:
        self._store.delete([self._prefix + name])


def _once(data: bytes) -> Iterator[bytes]:
    yield data
