"""What of a home goes into a backup, and how each file is read while others may write to it."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final

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
