"""What dead workers left behind: their journals read, and brought into the shared accounts, each once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from tonnage.gateway.money.journal import SUFFIX
from tonnage.gateway.money.shared_accounts import AccountKey, AttemptRow, LeaseMove, SharedAccounts
from tonnage.values import dataclass


def bring_in_dead(accounts: SharedAccounts, folder: Path, say: Callable[[str], None]) -> int:
    """The journals of a folder whose workers are gone; how many requests they lost. Raises AccountsError, OSError."""
    lost = 0
    for worker, path, file in dead_journals(folder):
        try:
            applied = accounts.applied(worker)
            damaged = 0
            if applied is not None:
                found = remains(path.read_bytes(), applied, worker)
                accounts.leave(worker, found.moves, found.rows)
                lost, damaged = lost + found.lost, found.damaged
            _put_away(path, damaged, say)
        finally:
            os.close(file)
    return lost


def _put_away(path: Path, damaged: int, say: Callable[[str], None]) -> None:
    """A journal that is in the accounts; one with unreadable lines is kept aside."""
    if not damaged:
        path.unlink(missing_ok=True)
        return
    aside = path.with_suffix(".damaged")
    path.rename(aside)
    say(
        f"{damaged} lines of a dead worker's journal cannot be read; the rest is in the accounts, the journal is"
        f" kept as {aside}: compare the ledger with the bills"
    )


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
    journal = _JournalState()
    damaged = 0
    torn = False
    for offset, line in _lines(data):
        damaged += torn  # a line follows it: it was no torn end
        torn = False
        try:
            journal.read(line, offset, applied_bytes)
        except (ValueError, TypeError, KeyError):
            torn = line is None
            damaged += not torn
    used, rows = journal.used, journal.rows
    for number, hold in journal.open_holds.items():
        _use(used, [journal.accounts[one] for one in hold[2]], hold[5], 0)
        rows.append(_lost_row(worker, number, hold))
    moves = tuple(LeaseMove(account=account, used=amount, returned=0) for account, amount in used.items())
    return Remains(moves=moves, rows=tuple(rows), lost=len(journal.open_holds), damaged=damaged)


class _JournalState:
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
