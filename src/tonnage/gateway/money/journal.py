"""A worker's journal: holds and settlements as lines of a file, written before what they tell of goes on.

The file is mapped into memory, so that a line costs no system call, and a killed process loses nothing: its pages are
the system's. Room for lines is taken from the disk ahead, so the file ends with zero bytes; a hold takes the room of
its settlement too, so that a full disk refuses requests and settles those under way. A worker's lock tells the others
that it lives; what a dead one left is brought into the shared accounts by whoever comes next, once. Lines are JSON
arrays:

    ["b", bytes]                              the file started again after so many bytes, all in the accounts
    ["a", number, allowance, begin]           an account, named by a number from here on
    ["h", hold, [numbers], usd_pico, tokens, lost_usd_pico, request, at, key, team, project, route, deployment]
    ["s", hold, usd_pico, tokens, row]        what it came to, and the attempt
    ["x", hold]                               nothing was sent
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tonnage.gateway.money.shared_accounts import AccountKey, AttemptRow

SUFFIX: Final = ".journal"
RENEW_BYTES: Final = 64 << 20
ROOM_BYTES: Final = 1 << 20


class Mark(NamedTuple):
    """A place in a journal: `size` as of then; where the file may start again, its `end` and the holds then open."""

    size: int
    end: int
    open_holds: Mapping[int, bytes] | None


class Journal:
    """Append lines; `size` is how many bytes they are, those before a renewal too.

    `durable`: a file that takes another's place is on the disk before it does.
    Raises OSError: a full disk refuses requests rather than lose what they cost.
    """

    def __init__(self, folder: Path, worker: str, *, durable: bool = False) -> None:
        self.path, self._durable = folder / f"{worker}{SUFFIX}", durable
        self.size = 0
        self._numbers: dict[AccountKey, int] = {}
        self._next_number = 0
        self._open: dict[int, bytes] = {}
        self._reserved = 0  # bytes of room for the settlements of open holds
        self._begin(b"")

    def number(self, account: AccountKey) -> int:
        """The number of an account; a new one gets a line of its own."""
        found = self._numbers.get(account)
        if found is None:
            found = self._next_number
            self._write(_line("a", found, *account))
            self._numbers[account] = found
            self._next_number += 1
        return found

    def forget(self, account: AccountKey) -> None:
        """An account whose window is over and that no open hold names."""
        self._numbers.pop(account, None)

    def hold(self, number: int, *said: Any) -> None:
        line = _line("h", number, *said)
        self._write(line, _settlement_bytes(line))
        self._open[number] = line

    def settle(self, number: int, usd_pico: int, tokens: int, row: AttemptRow) -> None:
        self._end_hold(number, _line("s", number, usd_pico, tokens, row))

    def drop(self, number: int) -> None:
        self._end_hold(number, _line("x", number))

    def sync(self) -> Syncing:
        """What brings all lines as of now to the disk, for any thread: it outlives a renewal."""
        return Syncing(os.dup(self._file))

    def mark(self) -> Mark:
        """This place, to `renew` from."""
        return Mark(self.size, self._end, dict(self._open) if self._end >= RENEW_BYTES else None)

    def renew(self, applied: Mark) -> None:
        """Start the file again where it was long, all before the mark being in the accounts.

        The holds that were open at the mark go along, and every line since then. OSError: the old file stays.
        """
        if applied.open_holds is None:
            return
        old, old_map = self._file, self._map
        known = [_line("a", number, *account) for account, number in self._numbers.items()]
        since = bytes(self._map[applied.end : self._end])
        self._begin(b"".join([_line("b", self.size), *known, *applied.open_holds.values(), since]))
        old_map.close()
        os.close(old)

    def close(self) -> None:
        """The file stays, for whoever brings it in."""
        self._map.close()
        os.close(self._file)

    def remove(self) -> None:
        """The end of a worker whose journal is in the accounts as a whole."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _begin(self, data: bytes) -> None:
        """A file that is locked before it has its name, so that no worker takes it for a dead one's."""
        beside = self.path.with_suffix(".new")
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            room = _whole_rooms(len(data) + self._reserved)
            os.posix_fallocate(file, 0, room)
            made = mmap.mmap(file, room)
            made[: len(data)] = data
            if self._durable:
                os.fsync(file)
            os.rename(beside, self.path)
        except OSError:
            os.close(file)
            beside.unlink(missing_ok=True)
            raise
        self._file, self._map, self._room, self._end = file, made, room, len(data)
        self.size += len(data)
        if self._durable:
            _sync_folder(self.path.parent)

    def _end_hold(self, number: int, line: bytes) -> None:
        self._write(line, -_settlement_bytes(self._open[number]))
        del self._open[number]

    def _write(self, data: bytes, reserve: int = 0) -> None:
        """Append; `reserve`: room that is kept from now on beside it, or no longer."""
        end = self._end + len(data)
        needed = end + self._reserved + reserve
        if needed > self._room:
            room = _whole_rooms(needed)
            os.posix_fallocate(self._file, self._room, room - self._room)  # a full disk says so here, untorn
            self._map.resize(room)
            self._room = room
            # what is written stays the system's; of this process only the end needs to be resident
            self._map.madvise(mmap.MADV_DONTNEED, 0, self._end // mmap.PAGESIZE * mmap.PAGESIZE)
        self._map[self._end : end] = data
        self._end = end
        self._reserved += reserve
        self.size += len(data)


class Syncing:
    """Bring a file to the disk with `run`, in any thread, once."""

    def __init__(self, file: int) -> None:
        self._file = file

    def run(self) -> None:
        """Raises OSError."""
        try:
            os.fsync(self._file)  # of a file that is mapped it writes the changed pages too, on Linux
        finally:
            os.close(self._file)


def _line(*values: Any) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)


def _settlement_bytes(hold: bytes) -> int:
    """The most bytes of the line that settles a hold: the same names, and numbers of bounded length."""
    return len(hold) + 1024


def _whole_rooms(size: int) -> int:
    return (size // ROOM_BYTES + 1) * ROOM_BYTES


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
