"""The one way to write a file: beside its place, onto the disk, then renamed.

A reader sees the old file or the new one, and the old one stays as it was where the process is killed or the disk is
full.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from tonnage.errors import InputError, TonnageError

PRIVATE: Final = 0o600
SHARED: Final = 0o666  # less the umask, as every file without a stated mode
DRAFT_PREFIX: Final = ".draft-"


def write_whole(path: Path, content: str | bytes, *, mode: int = PRIVATE, durable: bool = True) -> None:
    """Replace a file by one with this content (text: as UTF-8). Raises OSError; nothing is left beside it then.

    `mode`: who may read it, less what the umask takes; a file that is for others too is `SHARED`. `durable`: the file
    and its name are on the disk on return; without it a power cut may bring the old file back.
    """
    beside = path.with_name(f"{DRAFT_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def save_for_user(
    path: Path,
    content: str | bytes,
    *,
    parents: bool = False,
    fault: type[TonnageError] = InputError,
    hint: str = "name another file",
) -> None:
    """Write a file whose path the user gave: whole, for others too, through a link or into a device as it is.

    `parents`: make the folders that are not there. Raises `fault`, with `hint`, where that cannot be done.
    """
    try:
        goal = path.resolve()
        if parents:
            goal.parent.mkdir(parents=True, exist_ok=True)
        if goal.exists() and not goal.is_file():  # /dev/stdout, a pipe: renaming over it would remove it
            goal.write_bytes(content.encode() if isinstance(content, str) else content)
        else:
            write_whole(goal, content, mode=SHARED)
    except OSError as error:
        raise fault(f"{path} cannot be written: {error.strerror or error}", hint=hint) from error


def move_whole(beside: Path, path: Path) -> None:
    """Put a finished file or folder in its place and bring the name to the disk. Raises OSError."""
    os.replace(beside, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file's content, or the names in a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_folder(path: Path) -> None:
    """A folder and those above it that are not there, for the user alone. One that is there keeps its mode."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            one.mkdir(mode=0o700)


def make_database_file(path: Path) -> None:
    """An empty file for the user alone, where there is none. One that is there, or that another makes, is not opened.

    POSIX ends all locks of a process on a file when any of its descriptors is closed, those that SQLite holds for other
    connections among them (https://sqlite.org/howtocorrupt.html, section 2.2): a reader then takes the journal of a
    transaction for that of a process that died. So the file is closed before it gets its name. Raises OSError.
    """
    if path.exists():
        return
    beside = path.with_name(f"{DRAFT_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    try:
        os.link(beside, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    finally:
        beside.unlink()


def make_private(path: Path) -> None:
    """Take from all others what a folder holds: libraries write with the umask of the process."""
    path.chmod(0o700)
    for one in path.rglob("*"):
        if not one.is_symlink():
            one.chmod(0o700 if one.is_dir() else PRIVATE)
