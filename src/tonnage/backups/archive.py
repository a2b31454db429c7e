"""The file of a backup: a tar, compressed, maybe sealed, whose last member says what it holds.

A file without that last member was cut off, and is no backup.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from tonnage.encryption.streams import SealedReader, SealedWriter, is_sealed
from tonnage.errors import DataError, InputError
from tonnage.files import move_whole
from tonnage.values import dataclass

SCHEMA: Final = "tonnage/backup@1"
MANIFEST: Final = "manifest.json"
PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What a backup holds. `left_out`: files that were there and are not in it, whole or in part, with the reason."""

    file: str
    made_at: str
    version: str
    files: int
    bytes: int  # of the home's files
    size_bytes: int  # of the backup
    sealed: bool
    left_out: tuple[str, ...] = ()


def write_backup(
    out: IO[bytes], home: Path, *, version: str, secret: str | None, checkpoints: bool, now: datetime,
    on_file: Callable[[str], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write the files of a home to `out`; what the manifest says of them. OSError where `out` cannot be written."""
    sealed = None if secret is None else SealedWriter(out, secret)
    target = cast(IO[bytes], out if sealed is None else sealed)
    listed, left_out = dict[str, dict[str, Any]](), list[str]()
    packed = gzip.GzipFile(fileobj=target, mode="wb", mtime=0, compresslevel=5)
    with packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for place in files_of(home, checkpoints=checkpoints):
            if on_file is not None:
                on_file(str(place))
            try:
                with opened(home / place) as (file, size):
                    file.seek(0)
                    listed[str(place)], missing = _added(tar, str(place), file, size)
                if missing:
                    left_out.append(f"the last {missing:,} bytes of {place}: cut off while the backup was written")
            except FileNotFoundError:
                left_out.append(f"{place}: gone while the backup was written")
        manifest = {
            "schema": SCHEMA, "version": version, "made_at": now.astimezone(UTC).isoformat(), "home": str(home),
            "files": listed, "left_out": left_out,
        }  # fmt: skip
        content = json.dumps(manifest, sort_keys=True).encode()
        _added(tar, MANIFEST, io.BytesIO(content), len(content))
    if sealed is not None:
        sealed.close()
    return manifest


def _added(tar: tarfile.TarFile, name: str, file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    """One member of exactly `size` bytes: its line in the manifest, and how many of them were gone when they were read.
    What a writer adds meanwhile is of the next backup."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    hashed = _Hashed(file, size)
    tar.addfile(info, cast(IO[bytes], hashed))
    return {"bytes": size, "sha256": hashed.digest.hexdigest()}, hashed.missing


class _Hashed:
    """The first `left` bytes of a file, hashed as they are read. A file that was cut meanwhile ends in `missing` zeros,
    as the member's size comes before it."""

    def __init__(self, file: IO[bytes], left: int) -> None:
        self._file, self._left, self.missing, self.digest = file, left, 0, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        found = self._file.read(wanted)
        self.missing += wanted - len(found)
        found += b"\0" * (wanted - len(found))
        self._left -= wanted
        self.digest.update(found)
        return found


def verify_backup(source: IO[bytes], *, what: str, secret: str | None) -> dict[str, Any]:
    """Read a backup to its end: every hash, every database by SQLite's own check. Its manifest.

    DataError names the first thing that is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="tonnage-verify-") as folder:
        return _unpacked(source, Path(folder), what=what, secret=secret, keep=False)


def restore_backup(source: IO[bytes], home: Path, *, what: str, secret: str | None) -> dict[str, Any]:
    """Put a backup's files where a home is to be: all of them, verified, or none.

    InputError where something is there already; DataError where the backup is not whole.
    """
    if home.exists() and any(home.iterdir()):
        raise InputError(f"{home} is not empty", hint="restore into a new folder: --home FOLDER, or TONNAGE_HOME")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-restoring-") as folder:
        beside = Path(folder) / "home"
        beside.mkdir(mode=0o700)
        found = _unpacked(source, beside, what=what, secret=secret, keep=True)
        if home.exists():
            home.rmdir()
        move_whole(beside, home)
    return found


def _unpacked(source: IO[bytes], folder: Path, *, what: str, secret: str | None, keep: bool) -> dict[str, Any]:
    found, manifest = dict[str, str](), None
    try:
        plain = _plain(source, what=what, secret=secret)
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            for member in tar:
                stream = tar.extractfile(member)
                if manifest is not None or stream is None or not _inside(member.name):
                    raise DataError(f"{what}: {member.name!r} has no place in a backup")
                if member.name == MANIFEST:
                    manifest = json.loads(stream.read())
                else:
                    found[member.name] = _written(stream, folder / member.name, keep=keep)
        while plain.read(PIECE_BYTES):  # to the end, where the sums over the whole file are
            pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, ValueError, OSError) as error:
        raise DataError(f"{what} cannot be read: {error}", hint="it may be cut off; take an older backup") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise DataError(f"{what} is not whole: its list of files is missing", hint="take an older backup")
    listed = {name: one["sha256"] for name, one in manifest["files"].items()}
    wrong = sorted(name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name))
    if wrong:
        raise DataError(f"{what}: {wrong[0]} is not as it was written ({len(wrong)} such files)")
    return manifest


def _written(stream: IO[bytes], path: Path, *, keep: bool) -> str:
    """A member's hash; on the disk where it is kept, or a database that is to be checked."""
    digest, first = hashlib.sha256(), stream.read(PIECE_BYTES)
    digest.update(first)
    stays = keep or first.startswith(b"SQLite format 3\0")
    pieces: Iterable[bytes] = iter(lambda: stream.read(PIECE_BYTES), b"")
    if not stays:
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("wb") as file:
        path.chmod(0o600)
        file.write(first)
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    if is_database(path) and (fault := database_fault(path)) is not None:
        raise DataError(f"{path.name}: SQLite says: {fault}")
    if not keep:
        path.unlink()
    return digest.hexdigest()


def _plain(source: IO[bytes], *, what: str, secret: str | None) -> IO[bytes]:
    head = source.read(8)
    rest = cast(IO[bytes], _Joined(head, source))
    if not is_sealed(head):
        return cast(IO[bytes], gzip.GzipFile(fileobj=rest, mode="rb"))
    if secret is None:
        raise InputError(f"{what} is sealed", hint="--key with a reference such as env:NAME opens it")
    return cast(IO[bytes], gzip.GzipFile(fileobj=cast(IO[bytes], SealedReader(rest, secret, what=what)), mode="rb"))


class _Joined:
    """Bytes that were read already, then the rest of a stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        if size < 0:
            found, self._head = self._head + self._rest.read(), b""
            return found
        found, self._head = self._head[:size], self._head[size:]
        return found + (self._rest.read(size - len(found)) if len(found) < size else b"")


def _inside(name: str) -> bool:
    place = PurePosixPath(name)
    return not place.is_absolute() and ".." not in place.parts and bool(place.parts)


LEFT_OUT: Final = frozenset({"cache", "exported", "huggingface", "dagster"})  # made again when they are wanted
SECRET: Final = frozenset({"ui/login.json"})  # a key that a server gave to this user
_ENDINGS: Final = (".lock", ".pid", ".sock", ".tmp", "-wal", "-shm", "-journal")
_SQLITE: Final = b"SQLite format 3\0"


def files_of(home: Path, *, checkpoints: bool) -> Iterator[PurePosixPath]:
    """Every file worth keeping, relative to the home, in the order of names. Links are not followed."""
    for path in sorted(home.rglob("*")):
        place = PurePosixPath(path.relative_to(home).as_posix())
        if path.is_symlink() or not path.is_file() or place.parts[0] in LEFT_OUT:
            continue
        if str(place) in SECRET or any(part.startswith(".") for part in place.parts) or place.name.endswith(_ENDINGS):
            continue
        if not checkpoints and "checkpoints" in place.parts and place.parts[0] in ("runs", "sweeps"):
            continue
        yield place


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """A file and how many of its bytes to take: those it has now. A database is copied by SQLite itself, as of one
    instant. OSError where it is gone."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            size = file.seek(0, 2)
            file.seek(0)
            yield file, size
            return
    with tempfile.NamedTemporaryFile(prefix="tonnage-backup-") as copy:
        _copied(path, Path(copy.name))
        yield copy.file, copy.file.seek(0, 2)


def is_database(path: Path) -> bool:
    """Whether a file is one of SQLite's."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def database_fault(path: Path) -> str | None:
    """What SQLite's own check finds wrong with a database; None: nothing."""
    try:
        with closing(sqlite3.connect(path)) as base:
            found = base.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        return str(error)
    return None if found == "ok" else str(found)


def _copied(source: Path, target: Path) -> None:
    try:
        read = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
        with closing(read), closing(sqlite3.connect(target)) as write:
            read.backup(write)
    except sqlite3.Error as error:
        raise OSError(f"{source}: {error}") from error
