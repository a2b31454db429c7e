"""Files by their SHA-256 under TONNAGE_HOME/cache, shared by processes: locks, whole files or none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tonnage.fetching.checksums import digests
from tonnage.fetching.remote import FetchStopped, RemoteFile
from tonnage.files import write_whole
from tonnage.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


def key_of(text: str) -> str:
    """A file name for any text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, document: Any) -> None:
    """A JSON file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(document, indent=1, sort_keys=True) + "\n", durable=False)


def read_json(path: Path) -> Any:
    """What a JSON file of ours holds; None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Cache:
    """`blobs/` by SHA-256, `index/` from a version of an address to its SHA-256, `partial/`, `locks/`, `lists/`."""

    root: Path

    @contextmanager
    def lock(self, key: str, stop: Event, on_wait: Callable[[], None]) -> Iterator[None]:
        """One process at a time; a killed one holds nothing. Raises Stopped on an interruption while waiting."""
        import filelock

        path = self.root / "locks" / f"{key}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path, thread_local=False)
        waited = False
        while True:
            try:
                lock.acquire(timeout=0.5 if waited else 0)
                break
            except filelock.Timeout:
                if not waited:
                    on_wait()
                waited = True
                if stop.is_set():
                    raise FetchStopped from None
        try:
            yield
        finally:
            lock.release()

    def partial_folder(self, file: RemoteFile) -> Path:
        """Where a file grows."""
        return self.root / "partial" / key_of(file.identity)

    def blob(self, sha256: str) -> Path | None:
        """The file with these bytes. One changed since (a hard link was written into) is dropped, not handed out."""
        path = self._blob_path(sha256)
        if not path.is_file():
            return None
        if self.sealed(path) == sha256:
            return path
        if digests(path, ())["sha256"] == sha256:
            self.seal(path, sha256)
            return path
        path.unlink(missing_ok=True)
        return None

    def keep(self, data: Path, sha256: str) -> Path:
        """Move a finished file in."""
        path = self._blob_path(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        data.chmod(0o444)
        data.replace(path)
        self.seal(path, sha256)
        return path

    def remember(self, file: RemoteFile, sha256: str, verified_by: str) -> None:
        """Enter which bytes this version of an address has."""
        document = {"identity": file.identity, "version": file.version, "sha256": sha256, "verified_by": verified_by}
        write_json(self._index_path(file), document)

    def known(self, file: RemoteFile) -> tuple[str, str] | None:
        """(SHA-256, how it was verified) of this version of the address. Without a version nothing is known."""
        entry = read_json(self._index_path(file))
        if file.version is None or not isinstance(entry, dict) or entry.get("version") != file.version:
            return None
        return str(entry["sha256"]), str(entry["verified_by"])

    def seal(self, path: Path, sha256: str) -> None:
        """Remember that the file, as it is, has this digest."""
        state = path.stat()
        entry = {"path": str(path), "size_bytes": state.st_size, "mtime_ns": state.st_mtime_ns, "sha256": sha256}
        write_json(self._seal_path(path), entry)

    def sealed(self, path: Path) -> str | None:
        """The digest of a file untouched since it was sealed."""
        entry = read_json(self._seal_path(path))
        if not isinstance(entry, dict):
            return None
        state = path.stat()
        same = (entry.get("size_bytes"), entry.get("mtime_ns")) == (state.st_size, state.st_mtime_ns)
        return str(entry["sha256"]) if same else None

    def keep_list(self, source: str, files: list[dict[str, Any]]) -> None:
        """Remember what a source holds, for when it cannot be asked."""
        write_json(self.root / "lists" / f"{key_of(source)}.json", {"source": source, "files": files})

    def kept_list(self, source: str) -> list[dict[str, Any]] | None:
        """What a source held when it was last asked."""
        entry = read_json(self.root / "lists" / f"{key_of(source)}.json")
        return entry["files"] if isinstance(entry, dict) else None

    def _blob_path(self, sha256: str) -> Path:
        return self.root / "blobs" / sha256[:2] / sha256

    def _index_path(self, file: RemoteFile) -> Path:
        return self.root / "index" / f"{key_of(file.identity)}.json"

    def _seal_path(self, path: Path) -> Path:
        return self.root / "seals" / f"{key_of(str(path))}.json"
