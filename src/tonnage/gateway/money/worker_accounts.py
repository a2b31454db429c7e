"""A worker's part of the accounts, in memory: what it has leased of each, what it has used and not yet reported.

Nothing here waits or touches a disk: `book` asks the shared accounts for leases, and brings in what was used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from tonnage.gateway.money.allowances import Allowance, Amounts
from tonnage.gateway.money.holds import AccountSet, AllowanceExceeded, WorkerAccount
from tonnage.gateway.money.shared_accounts import AccountKey, LeaseAsk, LeaseMove

MOST_KNOWN: Final = 10_000
NO_CAP: Final = 1 << 62
REFUSED_S: Final = 0.25  # how long a refusal of the store holds: what others give back takes a flush to reach it
SOFT_LEASES: Final = 100  # requests' worth that is leased of a soft allowance at a time


class WorkerAccounts:
    """`now`: the clock; `number`: what the journal calls an account."""

    def __init__(self, now: Callable[[], float], number: Callable[[AccountKey], int]) -> None:
        self._now, self._number = now, number
        self.by_key: dict[AccountKey, WorkerAccount] = {}
        self.sets: dict[int, AccountSet] = {}  # by identity, as `SpendBook.hold_now` is asked for them
        # by identity: the account of now, until when
        self._current: dict[int, tuple[Allowance, WorkerAccount, float]] = {}
        self._moves: dict[AccountKey, list[int]] = {}  # [used, returned], not in the shared accounts yet
        # until when, and what it had left beside what is free here
        self._said_no: dict[AccountKey, tuple[float, int]] = {}

    def of(self, allowances: Sequence[Allowance]) -> tuple[WorkerAccount, ...]:
        """The accounts of the windows of now."""
        now_s, current, found = self._now(), self._current, []
        for one in allowances:
            known = current.get(id(one))
            if known is not None and known[0] is one and now_s < known[2]:
                found.append(known[1])
            else:
                found.append(self._account(one, now_s))
        return tuple(found)

    def set_of(self, allowances: tuple[Allowance, ...], now_s: float) -> AccountSet:
        """The same, kept for the next request with these allowances."""
        if len(self.sets) > MOST_KNOWN:
            self.sets.clear()
        accounts = self.of(allowances)
        numbers = tuple(self._number(one.key) for one in accounts)
        ends_s = [self._current[id(one)][2] if id(one) in self._current else now_s for one in allowances]
        until_s = min(ends_s, default=float("inf"))
        found = self.sets[id(allowances)] = AccountSet(allowances, accounts, numbers, until_s)
        return found

    def asks(self, short: Sequence[WorkerAccount], amounts: Amounts) -> list[LeaseAsk]:
        """What the accounts lack now."""
        found = []
        for one in short:
            need = amounts.of(one.allowance.unit) - one.free
            if need > 0:
                found.append(lease_ask(one, need))
        return found

    def granted(self, amounts: Mapping[AccountKey, int]) -> None:
        """The shared accounts have leased so much."""
        for key, amount in amounts.items():
            account = self.by_key.get(key)
            if account is None:  # its window ended while the accounts were asked
                self._moves.setdefault(key, [0, 0])[1] += amount
            else:
                account.leased += amount

    def leased_are(self, leases: Mapping[AccountKey, int]) -> None:
        """What the shared accounts say is leased, with all that this worker has reported to them."""
        for key, account in self.by_key.items():
            used, returned = self._moves.get(key, (0, 0))
            account.leased = leases.get(key, 0) - used - returned

    def give_back(self, keys: Iterable[AccountKey]) -> None:
        """What is free here of these accounts, with the next flush; from now on it isn't spent."""
        for key in keys:
            account = self.by_key.get(key)
            if account is not None and account.free > 0:
                self._moves.setdefault(key, [0, 0])[1] += account.free
                account.leased -= account.free
                self._said_no.pop(key, None)

    def give_all_back(self) -> None:
        self.give_back(tuple(self.by_key))

    def moves(self, forget: Callable[[AccountKey], None]) -> list[LeaseMove]:
        """What goes into the shared accounts now; here it counts as gone from the leases at once.

        `forget` is called for accounts whose windows are over and of which nothing is held.
        """
        now = datetime.fromtimestamp(self._now(), UTC)
        for key, account in tuple(self.by_key.items()):
            over = account.allowance.begin(now) != account.begin
            returned = max(account.free, 0) if over else 0
            if account.used or returned:
                move = self._moves.setdefault(key, [0, 0])
                move[0] += account.used
                move[1] += returned
                account.leased -= account.used + returned
                account.used = 0
            if over and not account.held:
                del self.by_key[key]
                forget(key)
                self._current.clear()  # whoever comes now has the account of now
                self.sets.clear()
        found = [LeaseMove(account=key, used=used, returned=returned) for key, (used, returned) in self._moves.items()]
        self._moves = {}
        return found

    # what the shared accounts have refused lately

    def refused(self, short: Mapping[AccountKey, int]) -> None:
        """They have no more than this left of these accounts."""
        until = self._now() + REFUSED_S
        self._said_no |= {key: (until, has) for key, has in short.items()}

    def forget_refusals(self) -> None:
        self._said_no.clear()

    def refuse_again(self, short: Sequence[WorkerAccount], amounts: Amounts) -> None:
        """Raise AllowanceExceeded where the store said a moment ago that it has less left than is asked for now.

        A scope that is over its limit would else ask the store at every request. What this worker itself frees counts
        at once; what others free, when the moment is over.
        """
        now_s = self._now()
        known = {}
        for account in short:
            until, has = self._said_no.get(account.key, (0.0, 0))
            if now_s < until and account.allowance.hard and has + max(account.free, 0) < amounts.of(account.unit):
                known[account.key] = has
            elif now_s >= until:
                self._said_no.pop(account.key, None)
        if known:
            raise self.refusal(short, known, amounts)

    def refusal(
        self, short: Sequence[WorkerAccount], left: Mapping[AccountKey, int], amounts: Amounts
    ) -> AllowanceExceeded:
        """Of the first account that has too little: how much, and until when."""
        account = next(one for one in short if one.key in left)
        allowance = account.allowance
        has = left[account.key] + max(account.free, 0)
        until = allowance.end(datetime.fromtimestamp(self._now(), UTC))
        return AllowanceExceeded(allowance, need=amounts.of(allowance.unit), has=has, until=until)

    def _account(self, allowance: Allowance, now_s: float) -> WorkerAccount:
        if len(self._current) > MOST_KNOWN:  # of files that were read before
            self._current.clear()
        moment = datetime.fromtimestamp(now_s, UTC)
        end = allowance.end(moment)
        key = (allowance.id, allowance.begin(moment))
        account = self.by_key.get(key)
        if account is None:
            account = self.by_key[key] = WorkerAccount(allowance, key[1])
        account.allowance = allowance
        self._current[id(allowance)] = (allowance, account, float("inf") if end is None else end.timestamp())
        return account


def lease_ask(account: WorkerAccount, need: int) -> LeaseAsk:
    """Soft allowances are counted and refuse nothing."""
    if account.allowance.hard:
        return LeaseAsk(account=account.key, cap=account.allowance.cap, need=need)
    return LeaseAsk(account=account.key, cap=NO_CAP, need=need, share=need * SOFT_LEASES)
