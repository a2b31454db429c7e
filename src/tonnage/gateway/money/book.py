"""A worker's book: it takes holds from leases in memory, writes them to the journal and settles them; the
accounts follow.

Nothing here waits for a disk but when a lease is used up. `flush` brings what was settled into the shared accounts
four times a second, and gives back what other workers want.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, TypeVar

from tonnage.gateway.money.allowances import Allowance, Amounts
from tonnage.gateway.money.forecast import SLOT_S, SpendSample
from tonnage.gateway.money.holds import AttemptOutcome, Hold, Who, WorkerAccount
from tonnage.gateway.money.journal import Journal, Mark
from tonnage.gateway.money.remains import bring_in_dead
from tonnage.gateway.money.shared_accounts import (
    FORGOTTEN_AFTER_S,
    AccountKey,
    AccountState,
    AttemptRow,
    Granted,
    LeaseAsk,
    LeaseMove,
    SharedAccounts,
)
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.money.worker_accounts import WorkerAccounts, lease_ask

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
FLUSH_S: Final = 0.25
PATIENCE_S: Final = 0.5  # how long a request waits for other workers to give back what they do not need
POLL_S: Final = 0.05
SWEEP_S: Final = 10.0
SILENT_S: Final = FORGOTTEN_AFTER_S / 2  # a worker that was suspended for so long looks first what it still has


class _Flush(NamedTuple):
    """What one flush brings into the accounts: tried again as it is until it is known to be in."""

    number: int
    moves: list[LeaseMove]
    rows: list[AttemptRow]
    mark: Mark
    begun_s: float


class SpendBook:
    """Use it in one event loop; `open` before the first hold, `close` after the last.

    `here`: what this worker has of the accounts. `durable`: a hold is on the disk before its request is sent; those of
    one moment share a write. `say`: gets what dead workers left that somebody should know.
    """

    def __init__(
        self,
        accounts: SharedAccounts,
        folder: Path,
        *,
        durable: bool = False,
        now: Callable[[], float] = time,
        say: Callable[[str], None] = _LOG.warning,
    ) -> None:
        self.accounts, self.folder, self.durable, self.now, self._say = accounts, folder, durable, now, say
        self.host = socket.gethostname()
        self.worker = f"{self.host}-{os.getpid()}-{os.urandom(3).hex()}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gateway-accounts")
        self.here = WorkerAccounts(lambda: self.now(), lambda key: self.journal.number(key))
        self._sets = self.here.sets
        self._rows: list[AttemptRow] = []
        self._batch: _Flush | None = None
        self._flushed = 0  # batches so far
        self._doubtful = False  # whether the accounts may have more or less leased to this worker than it knows
        self._caps_changed = False
        self._confirmed_s = now()
        self._next_sample_s = 0.0
        self._number = 0
        self.open_holds = 0
        self.failing: AccountsError | None = None
        self._flushes: asyncio.Task[None] | None = None
        self._closing = False
        self._syncing: asyncio.Task[None] | None = None
        self._synced = 0

    async def open(self) -> int:
        """Begin the journal, bring in what dead workers left; how many of their requests were under way."""
        self._leasing, self._flushing = asyncio.Lock(), asyncio.Lock()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._in_thread(self.accounts.open)
        self.journal = Journal(self.folder, self.worker, durable=self.durable)
        await self._in_thread(self.accounts.join, self.worker, self.host, self.now())
        lost = await self._in_thread(bring_in_dead, self.accounts, self.folder, self._say)
        self._flushes = asyncio.ensure_future(self._flush_for_ever())
        return lost

    async def close(self) -> None:
        """Bring everything into the accounts and give all leases back.

        With holds still open the journal stays, for whoever comes next to bring in. Raises AccountsError: so it does.
        """
        self._closing = True  # a flush under way ends by itself: one that is cut off may be in the accounts, or not
        if self._flushes is not None:
            await self._flushes
        try:
            await self.flush()
            if self.open_holds:
                self._say(f"{self.open_holds} holds are open at the end; the next worker settles them by estimate")
                self.journal.close()
            else:
                moves, rows = self._taken_for_flush()
                await self._in_thread(self.accounts.leave, self.worker, moves, rows)
                self.journal.remove()
        finally:
            await self._in_thread(self.accounts.close)
            self._thread.shutdown()

    async def hold(
        self, allowances: Sequence[Allowance], amounts: Amounts, *, who: Who, request: str, lost_usd_pico: int
    ) -> Hold:
        """Take the amounts from every allowance, or from none. Raises Refused, AccountsError, OSError.

        `lost_usd_pico`: what is charged should this process be killed before it is settled.
        """
        if self.now() - self._confirmed_s > SILENT_S:
            await self.flush()
            await self._compare_leases()
        accounts = self.here.of(allowances)
        waited_until = self.now() + PATIENCE_S
        while short := [one for one in accounts if one.free < amounts.of(one.unit)]:
            self.here.refuse_again(short, amounts)
            async with self._leasing:
                asks = self.here.asks(short, amounts)
                if not asks:
                    continue  # another request's lease was enough for this one
                granted = await self._lease(asks)
            if granted.short:
                if not granted.others or self.now() >= waited_until:
                    self.here.refused(granted.short)
                    raise self.here.refusal(short, granted.short, amounts)
                await asyncio.sleep(POLL_S)
            accounts = self.here.of(allowances)  # a window may have ended meanwhile
        numbers = tuple(self.journal.number(one.key) for one in accounts)
        hold = self._take(accounts, numbers, amounts, who, request, lost_usd_pico, self.now())
        if self.durable:
            try:
                await self._on_disk()
            except BaseException:  # it is not promised, so nothing is sent
                self.settle(hold, None)
                raise
        return hold

    def hold_now(
        self, allowances: tuple[Allowance, ...], amounts: Amounts, *, who: Who, request: str, lost_usd_pico: int
    ) -> Hold | None:
        """The same where nothing must be waited for; None: a lease is too small, or holds go to the disk first.

        Raises OSError.
        """
        now_s = self.now()
        if self.durable or now_s - self._confirmed_s > SILENT_S:
            return None
        known = self._sets.get(id(allowances))
        if known is None or known.allowances is not allowances or now_s >= known.until_s:
            known = self.here.set_of(allowances, now_s)
        accounts, needs = known.accounts, amounts.parts
        for one in accounts:
            if one.leased - one.used - one.held < needs[one.part]:
                return None
        return self._take(accounts, known.numbers, amounts, who, request, lost_usd_pico, now_s)

    def settle(self, hold: Hold, outcome: AttemptOutcome | None) -> None:
        """What a hold came to; None: nothing was sent. A second time it does nothing.

        Raises OSError, and the hold is open as before; a full disk is no reason, as the hold took the room for it.
        """
        if hold.settled:
            return
        if outcome is None:
            self.journal.drop(hold.number)
        else:
            row = self._row(hold, outcome)
            self.journal.settle(hold.number, outcome.amounts.usd_pico, outcome.amounts.tokens, row)
            self._rows.append(row)
        hold.settled = True
        self.open_holds -= 1
        held = hold.amounts.parts
        spent = None if outcome is None else outcome.amounts.parts
        for account in hold.accounts:
            part = account.part
            account.held -= held[part]
            if spent is not None and not account.returns:
                account.used += spent[part]

    def give_place_back(self, hold: Hold) -> None:
        """A hold that is kept on for its money no longer counts as a request under way."""
        for account in hold.accounts:
            if account.allowance.returns:
                account.held -= hold.amounts.of(account.unit)
        hold.accounts = tuple(one for one in hold.accounts if not one.allowance.returns)

    def left(self, allowances: Iterable[Allowance]) -> int | None:
        """Pico-dollars that are free for this worker now in the tightest budget; None: no budget."""
        hard = tuple(one for one in allowances if one.hard and one.unit == "usd")
        found = [one.free for one in self.here.of(hard)]
        return min(found) if found else None

    def places(self, allowance: Allowance) -> tuple[int, int]:
        """What is free, and what is leased, of an allowance in this worker."""
        (account,) = self.here.of((allowance,))
        return account.free, account.leased

    async def lease_all(self, allowances: Sequence[Allowance]) -> None:
        """Ask for whatever the tightest budgets have left, so that `left` says what can be had."""
        for account in self.here.of(allowances):
            if account.allowance.unit != "usd" or not account.allowance.hard:
                continue
            async with self._leasing:
                await self._lease([lease_ask(account, 0)])

    def follow_changed_caps(self) -> None:
        """After the file was read again: what no request holds is given back, and leased again under the new caps."""
        self.here.forget_refusals()
        self._caps_changed = True  # once more at the next flush: a lease may be on its way
        self.here.give_all_back()

    async def flush(self) -> None:
        """Bring what was settled into the accounts. AccountsError: it stays in the journal and in memory."""
        async with self._flushing:
            if self._batch is not None:
                await self._apply(self._batch)
            moves, rows = self._taken_for_flush()
            if moves or rows:
                self._flushed += 1
                self._batch = _Flush(self._flushed, moves, rows, self.journal.mark(), self.now())
                await self._apply(self._batch)

    async def states(self) -> list[AccountState]:
        """The present accounts. Raises AccountsError."""
        return await self._in_thread(self.accounts.states)

    async def samples(self) -> dict[str, list[SpendSample]]:
        """What accounts of budgets had committed lately, by allowance. Raises AccountsError."""
        return await self._in_thread(self.accounts.samples)

    async def ledger(self) -> list[dict[str, Any]]:
        """Every attempt that is in the accounts, oldest first."""
        return await self._in_thread(self.accounts.attempts)

    async def forget_before(self, moment_s: float) -> None:
        """Attempts older than this leave the ledger. Raises AccountsError."""
        await self._in_thread(self.accounts.forget_attempts, moment_s)

    # inside

    async def _apply(self, batch: _Flush) -> None:
        """Bring a batch in; it stays until it is known to be. Raises AccountsError."""
        number, moves, rows, mark, now_s = batch
        size = mark.size
        try:
            await self._in_thread(
                partial(self.accounts.apply, self.worker, moves, rows, number=number, journal_bytes=size, now_s=now_s)
            )
        except AccountsError as error:
            self.failing = error
            raise
        self._batch = self.failing = None
        try:
            self.journal.renew(mark)
        except OSError as error:  # it goes on as it is, and the next flush tries again
            self.failing = AccountsError(f"the journal cannot be started again: {error}")

    async def _lease(self, asks: Sequence[LeaseAsk]) -> Granted:
        """Ask the accounts, and count what they give. Raises AccountsError: they may have given it all the same."""
        try:
            granted: Granted = await self._in_thread(self.accounts.lease, self.worker, asks, self.now())
        except BaseException:
            self._doubtful = True
            raise
        self.here.granted(granted.granted)
        return granted

    async def _compare_leases(self) -> None:
        """Go by what the accounts say is leased: a grant's answer may have been lost, or another host gave it back."""
        async with self._leasing, self._flushing:
            if self._batch is not None:
                return  # what is leased is known when it is in
            await self._in_thread(self.accounts.tell_alive, self.worker, self.now())
            found: dict[AccountKey, int] = await self._in_thread(self.accounts.leases, self.worker)
            self.here.leased_are(found)
            self._confirmed_s, self._doubtful = self.now(), False

    def _take(
        self, accounts: tuple[WorkerAccount, ...], numbers: tuple[int, ...], amounts: Amounts, who: Who, request: str,
        lost_usd_pico: int, at_s: float,
    ) -> Hold:  # fmt: skip
        number = self._number
        self._number += 1
        self.journal.hold(
            number, numbers, amounts.usd_pico, amounts.tokens, lost_usd_pico, request, at_s, who.key, who.team,
            who.project, who.route, who.deployment,
        )  # fmt: skip
        needs = amounts.parts
        for account in accounts:
            account.held += needs[account.part]
        self.open_holds += 1
        return Hold(number, accounts, amounts, who, request, at_s)

    def _row(self, hold: Hold, outcome: AttemptOutcome) -> AttemptRow:
        who = hold.who
        return (
            f"{self.worker}:{hold.number}", hold.request, hold.at_s, who.key, who.team, who.project, who.route,
            who.deployment, outcome.status, outcome.outcome, outcome.input_tokens, outcome.output_tokens,
            outcome.cached_tokens, outcome.amounts.usd_pico, int(outcome.estimated), outcome.first_byte_s,
            outcome.latency_s,
        )  # fmt: skip

    def _taken_for_flush(self) -> tuple[list[LeaseMove], list[AttemptRow]]:
        """What goes into the accounts now."""
        moves = self.here.moves(self.journal.forget)
        rows, self._rows = self._rows, []
        return moves, rows

    async def _on_disk(self) -> None:
        """Wait until the journal as it is now is on the disk; all that wait together share one write."""
        wanted = self.journal.size
        while self._synced < wanted:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.ensure_future(self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        size = self.journal.size
        await asyncio.get_running_loop().run_in_executor(None, self.journal.sync().run)
        self._synced = size

    async def _flush_for_ever(self) -> None:
        swept = self.now()
        while not self._closing:
            await asyncio.sleep(FLUSH_S)
            try:
                await self._give_back_wanted()
                await self.flush()
                if self._doubtful:
                    await self._compare_leases()
                if self.now() - swept >= SWEEP_S:
                    swept = self.now()
                    await self._in_thread(self._sweep)
                    self._confirmed_s = swept
            except AccountsError:
                pass  # `failing` reports it; tried again
            except OSError as error:  # of a journal that a dead worker left
                self.failing = AccountsError(f"the journals in {self.folder}: {error}")

    async def _give_back_wanted(self) -> None:
        """What others were refused lately is returned, as far as it is free here."""
        if self._caps_changed:
            self._caps_changed = False
            self.here.give_all_back()
        self.here.give_back(await self._in_thread(self.accounts.wanted_since, self.now() - PATIENCE_S))

    def _sweep(self) -> None:
        """In the accounts' thread: this worker lives; what is over goes, and what dead workers left is brought in."""
        now_s = self.now()
        self.accounts.tell_alive(self.worker, now_s)
        self.accounts.forget_silent(self.host, now_s)
        self.accounts.forget_minutes(now_s)
        if now_s >= self._next_sample_s:
            self.accounts.sample(now_s)
            slot_s = min(SLOT_S.values())
            self._next_sample_s = (now_s // slot_s + 1) * slot_s
        if lost := bring_in_dead(self.accounts, self.folder, self._say):
            self._say(f"{lost} requests were under way when a worker was killed; they are charged by estimate")

    def _in_thread(self, function: Callable[..., T], *given: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *given)
