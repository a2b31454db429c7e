"""A worker's journal: holds and settlements as lines of a file, written before what they tell of goes on.

The file is mapped into memory, so that a line costs no system call, and a killed process loses nothing: its pages are
the system's. Room for lines is taken from the disk ahead, so the file ends with zero bytes; a hold takes the room of
its settlement too, so that a full disk refuses requests and settles those under way. A worker's lock tells the others
that it lives; what a dead one left is brought into the shared accounts by whoever comes next, once. Lines are JSON
arrays:

    ["b", bytes]                              the file was begun anew after so many bytes, all in the accounts
    ["a", number, allowance, begin]           an account, named by a number from here on
    ["h", hold, [numbers], usd_pico, tokens, lost_usd_pico, request, at, key, team, project, route, deployment]
    ["s", hold, usd_pico, tokens, row]        what it came to, and the attempt
    ["x", hold]                               nothing was sent
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tonnage.gateway.money.shared_accounts import AccountKey, AttemptRow, LeaseMove
from tonnage.values import dataclass

SUFFIX: Final = ".journal"
RENEW_BYTES: Final = 64 << 20
ROOM_BYTES: Final = 1 << 20


class Mark(NamedTuple):
    """A place in a journal: `size` as of then; where the file may be begun anew, its `end` and the holds then open."""

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
        """The number of an account, told in a line of its own when it is new."""
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
        self._write(line, reserve=_settlement_bytes(line))
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
        """Begin the file anew where it was long, all before the mark being in the accounts.

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
        """A file that is locked before it has its name, so that nobody takes it for a dead worker's."""
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
        given = _settlement_bytes(self._open[number])
        self._write(line, reserve=-given)
        del self._open[number]

    def _write(self, data: bytes, *, reserve: int = 0) -> None:
        """Append; `reserve`: room that is kept from now on beside it, or no longer."""
        end = self._end + len(data)
        needed = end + self._reserved + reserve
        if needed > self._room:
            room = _whole_rooms(needed)
            os.posix_fallocate(self._file, self._room, room - self._room)  # a full disk says so here, untorn
            self._map.resize(room)
            self._room = room
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a dead worker left behind, beyond what is in the accounts."""

    moves: tuple[LeaseMove, ...]
    rows: tuple[AttemptRow, ...]
    lost: int  # requests that were under way, charged by estimate
    damaged: int = 0  # lines that cannot be read, or that tell of such; a torn last one is none of them


def remains(data: bytes, applied_bytes: int, worker: str) -> Remains:
    """What is to be committed of a dead worker's journal. A torn last line was not promised to anybody.

    Requests under way may have been computed and billed: each is charged what its input is estimated to cost, and
    marked so, until a bill says otherwise.
    """
    told = _Told()
    damaged = 0
    torn = False
    for offset, line in _lines(data):
        damaged += torn  # something stands after it: it was no torn end
        torn = False
        try:
            told.read(line, offset, applied_bytes)
        except (ValueError, TypeError, KeyError):
            torn = line is None
            damaged += not torn
    used, rows = told.used, told.rows
    for number, hold in told.open_holds.items():
        _use(used, [told.accounts[one] for one in hold[2]], hold[5], 0)
        rows.append(_lost_row(worker, number, hold))
    moves = tuple(LeaseMove(account=account, used=amount, returned=0) for account, amount in used.items())
    return Remains(moves=moves, rows=tuple(rows), lost=len(told.open_holds), damaged=damaged)


class _Told:
    """What the lines of a journal say, one after the other."""

    def __init__(self) -> None:
        self.accounts: dict[int, AccountKey] = {}
        self.open_holds: dict[int, list[Any]] = {}
        self.used: dict[AccountKey, int] = {}
        self.rows: list[AttemptRow] = []
        self._before = 0  # bytes of the files that this one took the place of

    def read(self, line: list[Any] | None, offset: int, applied_bytes: int) -> None:
        """Raises ValueError, TypeError, KeyError where the line is none, or tells of what was lost."""
        match line:
            case ["b", int(size)]:
                self._before = size
            case ["a", int(number), str(allowance), int(begin)]:
                self.accounts[number] = (allowance, begin)
            case ["h", int(number), list(accounts), int(), int(), int(), _, _, _, _, _, _, _]:
                if missing := [one for one in accounts if one not in self.accounts]:
                    raise KeyError(missing[0])
                self.open_holds[number] = line
            case ["x", int(number)]:
                del self.open_holds[number]
            case ["s", int(number), int(usd_pico), int(tokens), list(row)]:
                after = self._before + offset >= applied_bytes
                if after:  # the attempt is known, also where the accounts it was held in are not
                    self.rows.append(tuple(row))
                hold = self.open_holds.pop(number)
                if after:
                    _use(self.used, [self.accounts[one] for one in hold[2]], usd_pico, tokens)
            case _:
                raise ValueError(line)


def taken_of(account: AccountKey, usd_pico: int, tokens: int) -> int:
    """What amounts come to in the unit of an account; 0 for requests at a time, which nothing is committed of."""
    unit = account[0].partition("/")[0]
    if unit == "usd":
        return usd_pico
    if unit == "tokens":
        return tokens
    return 1 if unit == "requests" else 0


def dead_journals(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """(worker, file, descriptor that holds its lock) of each journal whose worker is gone. The caller closes it."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        if os.fstat(file).st_nlink == 0:  # somebody was quicker
            os.close(file)
            continue
        yield path.name.removesuffix(SUFFIX), path, file


def _use(used: dict[AccountKey, int], accounts: Sequence[AccountKey], usd_pico: int, tokens: int) -> None:
    for account in accounts:
        amount = taken_of(account, usd_pico, tokens)
        if amount:
            used[account] = used.get(account, 0) + amount


def _lost_row(worker: str, number: int, hold: list[Any]) -> AttemptRow:
    _, _, _, _, _, usd_pico, request, at, *who = hold
    return (
        f"{worker}:{number}", request, at, *who, 0, "gateway killed", None, None, None, usd_pico, 1, None, None,
    )  # fmt: skip


def _line(*values: Any) -> bytes:
    return orjson.dumps(values) + b"\n"


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


def _lines(data: bytes) -> Iterator[tuple[int, list[Any] | None]]:
    """Each line and where it begins, None: it cannot be read. After the last there are zero bytes.

    A loss of power may leave zero bytes between lines too, where a page did not reach the disk.
    """
    offset, size = 0, len(data.rstrip(b"\0"))
    while offset < size:
        end = data.find(b"\n", offset, size)
        text = data[offset : size if end < 0 else end]
        yield offset, None if end < 0 else _array(text)
        offset += len(text) + 1


def _array(text: bytes) -> list[Any] | None:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, list) else None
