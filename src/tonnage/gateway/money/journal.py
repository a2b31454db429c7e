"""A worker's journal: holds and settlements as lines of a file, written before what they tell of goes on.

The file is mapped into memory, so that a line costs no system call, and a killed process loses nothing: its pages are
the system's. Room for lines is taken from the disk ahead, so the file ends with zero bytes. A worker's lock tells the
others that it lives; what a dead one left is brought into the shared accounts by whoever comes next, once. Lines are
JSON arrays:

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from tonnage.gateway.money.shared_accounts import AccountKey, AttemptRow, LeaseMove
from tonnage.values import dataclass

SUFFIX: Final = ".journal"
RENEW_BYTES: Final = 64 << 20
ROOM_BYTES: Final = 1 << 20


class Journal:
    """Append lines; `size` is how many bytes they are, those before a renewal too.

    Raises OSError: a full disk refuses requests rather than lose what they cost.
    """

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"{worker}{SUFFIX}"
        self.size = 0
        self._numbers: dict[AccountKey, int] = {}
        self._open: dict[int, bytes] = {}
        self._begin()

    def number(self, account: AccountKey) -> int:
        """The number of an account, told in a line of its own when it is new."""
        found = self._numbers.get(account)
        if found is None:
            found = len(self._numbers)
            self._write(_line("a", found, *account))
            self._numbers[account] = found
        return found

    def hold(self, number: int, *said: Any) -> None:
        line = _line("h", number, *said)
        self._write(line)
        self._open[number] = line

    def settle(self, number: int, usd_pico: int, tokens: int, row: AttemptRow) -> None:
        self._write(_line("s", number, usd_pico, tokens, row))
        del self._open[number]

    def drop(self, number: int) -> None:
        self._write(_line("x", number))
        del self._open[number]

    def sync(self) -> None:
        """Bring all lines to the disk, against a loss of power."""
        self._map.flush()

    def renew_if_long(self, applied_bytes: int) -> None:
        """Begin the file anew where it is long and all of it is in the accounts; open holds go along."""
        if applied_bytes != self.size or self._end < RENEW_BYTES:
            return
        old, old_map = self._file, self._map
        known = [_line("a", number, *account) for account, number in self._numbers.items()]
        self._begin(_line("b", self.size), *known, *self._open.values())
        old_map.close()
        os.close(old)

    def remove(self) -> None:
        """The end of a worker whose journal is in the accounts as a whole."""
        self.path.unlink(missing_ok=True)
        self._map.close()
        os.close(self._file)

    def _begin(self, *lines: bytes) -> None:
        """A file that is locked before it has its name, so that nobody takes it for a dead worker's."""
        beside = self.path.with_suffix(".new")
        self._file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = b"".join(lines)
        self._room = (len(data) // ROOM_BYTES + 1) * ROOM_BYTES
        os.posix_fallocate(self._file, 0, self._room)
        self._map = mmap.mmap(self._file, self._room)
        self._map[: len(data)] = data
        self._end = len(data)
        self.size += len(data)
        os.rename(beside, self.path)

    def _write(self, data: bytes) -> None:
        end = self._end + len(data)
        if end > self._room:
            os.posix_fallocate(self._file, self._room, ROOM_BYTES)  # a full disk says so here, and nothing is torn
            self._room += ROOM_BYTES
            self._map.resize(self._room)
        self._map[self._end : end] = data
        self._end = end
        self.size += len(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a dead worker left behind, beyond what is in the accounts."""

    moves: tuple[LeaseMove, ...]
    rows: tuple[AttemptRow, ...]
    lost: int  # requests that were under way, charged by estimate


def remains(data: bytes, applied_bytes: int, worker: str) -> Remains:
    """What is to be committed of a dead worker's journal. A torn last line was not promised to anybody.

    Requests under way may have been computed and billed: each is charged what its input is estimated to cost, and
    marked so, until a bill says otherwise.
    """
    accounts: list[AccountKey] = []
    open_holds: dict[int, list[Any]] = {}
    used: dict[AccountKey, int] = {}
    rows: list[AttemptRow] = []
    before = 0  # bytes of the files that this one took the place of
    for offset, line in _lines(data):
        match line:
            case ["b", size]:
                before = size
            case ["a", _, allowance, begin]:
                accounts.append((allowance, begin))
            case ["h", number, *_]:
                open_holds[number] = line
            case ["x", number]:
                del open_holds[number]
            case ["s", number, usd_pico, tokens, row]:
                hold = open_holds.pop(number)
                if before + offset >= applied_bytes:
                    _use(used, [accounts[one] for one in hold[2]], usd_pico, tokens)
                    rows.append(tuple(row))
    for number, hold in open_holds.items():
        _use(used, [accounts[one] for one in hold[2]], hold[5], 0)
        rows.append(_lost_row(worker, number, hold))
    moves = tuple(LeaseMove(account=account, used=amount, returned=0) for account, amount in used.items())
    return Remains(moves=moves, rows=tuple(rows), lost=len(open_holds))


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


def _lines(data: bytes) -> Iterator[tuple[int, list[Any]]]:
    """Each whole line and where it begins; after the last there are zero bytes, or a torn one."""
    offset = 0
    while (end := data.find(b"\n", offset)) >= 0 and data[offset]:
        yield offset, orjson.loads(data[offset:end])
        offset = end + 1
