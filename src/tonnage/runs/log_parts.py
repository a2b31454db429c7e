"""A log whose older parts lie in files beside it. Positions count from the first byte that was ever written to it.

The agent on SSH machines is sent this text too: standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import os
import re

MOST_LOG_BYTES = 64 << 20  # of log that a client takes over at once; of more its end comes
KEPT_LOG_BYTES = 1 << 20  # this end
LARGEST_PART_BYTES = 64 << 20
OLDER_PARTS = 3  # kept beside the newest: log.1.txt is the one before it
LOG = "log.txt"
_STAYS = re.compile(r"log(-machine-\d+)?(\.\d+\.txt|\.txt\.turned(\.new)?)")


def older_part(log: str, number: int) -> str:
    """`log.txt` as it was, `number` turns ago.

    >>> older_part("a/log.txt", 2)
    'a/log.2.txt'
    """
    stem, suffix = os.path.splitext(log)
    return f"{stem}.{number}{suffix}"


def is_older_part(name: str) -> bool:
    """Whether a file of a run's folder is an older part of a log, or the note of a turn: who follows has its bytes.

    >>> [is_older_part(name) for name in ("log.1.txt", "log-machine-2.3.txt", "log.txt.turned")]
    [True, True, True]
    >>> [is_older_part(name) for name in ("log.txt", "log-machine-2.txt", "log.txt.index")]
    [False, False, False]
    """
    return _STAYS.fullmatch(name) is not None


def turn(log: str, older: int = OLDER_PARTS) -> None:
    """Put the log beside its older parts; the oldest is removed. The note is there before the log has moved."""
    found = os.stat(log)
    begins = _begins(log, found.st_ino)
    note = {"inode": found.st_ino, "was": begins, "begins": begins + found.st_size}
    with open(log + ".turned.new", "w") as file:
        json.dump(note, file)
    os.replace(log + ".turned.new", log + ".turned")
    for number in range(older - 1, 0, -1):
        if os.path.exists(older_part(log, number)):
            os.replace(older_part(log, number), older_part(log, number + 1))
    os.replace(log, older_part(log, 1))


def begin_at(log: str, position: int, content: bytes) -> None:
    """Lay the end of a log whose beginning lies elsewhere: what is written to it goes on after these bytes."""
    forget(log)
    with open(log + ".turned", "w") as note:
        json.dump({"inode": -1, "was": 0, "begins": position}, note)
    with open(log, "wb") as file:
        file.write(content)


def forget(log: str) -> None:
    """Remove all parts and notes: what is written next is the first byte."""
    for path in (
        log,
        log + ".turned",
        log + ".index",
        *(older_part(log, number) for number in range(1, OLDER_PARTS + 1)),
    ):
        if os.path.exists(path):
            os.remove(path)


def _begins(log: str, inode: int) -> int:
    """The position of the first byte of the newest part, which has this inode."""
    try:
        with open(log + ".turned") as file:
            note = json.load(file)
    except (FileNotFoundError, ValueError):
        return 0
    return int(note["was"] if note["inode"] == inode else note["begins"])


def newest_begins(log: str) -> int:
    """The position of the first byte of the newest part; the end of all where that is not begun."""
    try:
        inode = os.stat(log).st_ino
    except FileNotFoundError:
        inode = -1
    return _begins(log, inode)


def open_parts(log: str) -> list[tuple[int, int, int]]:
    """(position of its first byte, bytes, open descriptor) of each part, oldest first; none where there is no log.

    Any file that grows has one part. A turn meanwhile shows as one part that was met twice: all are opened again.
    """
    while True:
        parts = [_open(log), *(_open(older_part(log, number)) for number in range(1, OLDER_PARTS + 1))]
        there = [(descriptor, os.fstat(descriptor)) for descriptor in parts if descriptor is not None]
        if len({status.st_ino for _, status in there}) == len(there):
            break
        for descriptor, _ in there:
            os.close(descriptor)
    newest = None if parts[0] is None else there[0][1]
    end = _begins(log, -1 if newest is None else newest.st_ino) + (0 if newest is None else newest.st_size)
    found = []
    for descriptor, status in there:
        end -= status.st_size
        found.append((end, status.st_size, descriptor))
    return found[::-1]


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # never written, or in the middle of a turn


def end_of(log: str) -> int:
    """The position after the last byte; 0 where there is no log."""
    parts = open_parts(log)
    for _, _, descriptor in parts:
        os.close(descriptor)
    return parts[-1][0] + parts[-1][1] if parts else 0


def read_at(log: str, position: int, most: int) -> tuple[int, bytes]:
    """(where they begin, at most so many bytes), from a position on; from the oldest byte there is where it has gone.

    No bytes: nothing has come since.
    """
    parts = open_parts(log)
    start = max(position, parts[0][0]) if parts else position
    found = b""
    for begins, size, descriptor in parts:
        at = start + len(found) - begins
        if 0 <= at < size and len(found) < most:
            found += os.pread(descriptor, min(most - len(found), size - at), at)
        os.close(descriptor)
    return (start, found) if found else (position, b"")


def goes_on_at(have: int, end: int) -> int:
    """Where a client that has the first `have` bytes of a log of `end` bytes goes on: one rule for all places.

    >>> goes_on_at(10, 20)
    10
    >>> goes_on_at(0, 2 << 30) == (2 << 30) - KEPT_LOG_BYTES
    True
    """
    return end - KEPT_LOG_BYTES if end - have > MOST_LOG_BYTES else have


def left_out(count: int, where: str, *, gone: int = 0) -> str:
    """What is in the copy for bytes that were not taken over. `gone`: of them, with the oldest parts.

    >>> left_out(2048, "/runs/a/log.txt")
    'tonnage: 2,048 bytes of the log stay there: /runs/a/log.txt\\n'
    >>> left_out(2048, "/runs/a/log.txt", gone=1024)
    'tonnage: 1,024 bytes of the log have gone with its oldest parts, 1,024 stay there: /runs/a/log.txt\\n'
    """
    lost = f"{gone:,} bytes of the log have gone with its oldest parts"
    stays = f"{count - gone:,}{'' if gone else ' bytes of the log'} stay there: {where}"
    return "tonnage: " + ", ".join([lost] * (gone > 0) + [stays] * (count > gone)) + "\n"
