"""Faults of the money that a reader found: each seen to fail before it was mended."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from time import time
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, silence, spoken, streamed, words
from tests.gateway.test_book import BUDGET, kill, outcome, take
from tests.gateway.test_book import play as play_books

from tonnage.errors import TonnageError
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.holds import AllowanceExceeded, Hold
from tonnage.gateway.money.remains import bring_in_dead, remains
from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.processes import GatewayProcesses, _Child
from tonnage.gateway.proxy.attempt import Attempt

OpenBook = Callable[[], Awaitable[SpendBook]]


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_bills_what_is_under_way(tmp_path: Path, stream: bool) -> None:
    """The upstream still writes: what was seen so far is in the ledger, marked; nothing stays held."""
    answer = streamed(*words(200), pause_s=0.02) if stream else silence

    async def scenario() -> None:
        async with Scripted(answer) as up:
            async with GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 1}]) as harness:
                _, writer = await spoken(harness.port, chat(stream=stream))
                while not up.seen or (stream and not _read_events(harness)):
                    await asyncio.sleep(0.01)
                writer.close()
            accounts = SharedAccounts(str(harness.gateway.store))
            (row,) = accounts.attempts()
            (state,) = (one for one in accounts.states() if one.account[0].startswith("usd"))
            assert (row["outcome"], row["estimated"]) == ("gateway-stopped", 1)
            assert row["usd_pico"] == state.committed > 0
            assert state.leased == 0
            accounts.close()

    play(scenario())


def _read_events(harness: GatewayHarness) -> bool:
    streams = [one._streaming for one in harness.handler._attempts if isinstance(one, Attempt)]
    return any(one is not None and one.tap.events > 2 for one in streams)


def test_open_holds_keep_their_journal(tmp_path: Path) -> None:
    """A worker that ends with a hold open leaves it to the next one, which charges the estimate."""

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        await take(book, 100)
        await book.close()
        book.killed = True
        other = await open_book()
        (row,) = await other.ledger()
        assert (row["usd_pico"], row["estimated"]) == (7, 1)

    play_books(tmp_path, scenario)


def test_a_lowered_budget_takes_back_leases(tmp_path: Path) -> None:
    """The file is read again with a lower cap: what no request holds is given back at once, the new cap refuses."""
    lower = Allowance(scope="total", name="", unit="usd", window="ever", cap=100)

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        hold = await take(book, 40)
        assert (await book.states())[0].leased == BUDGET.cap
        book.follow_changed_caps()
        await book.flush()
        assert (await book.states())[0].leased == 40
        with pytest.raises(AllowanceExceeded, match="too little left"):
            await take(book, 61, lower)
        book.settle(await take(book, 60, lower), outcome(60))
        book.settle(hold, outcome(40))
        await book.flush()
        (state,) = await book.states()
        assert (state.committed, state.leased) == (100, 0)

    play_books(tmp_path, scenario)


def test_a_failed_sync_leaks_no_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`durable`, and the disk fails: the request is refused, and nothing stays held."""

    def failing(_: object) -> None:
        raise OSError(errno.EIO, "the disk fails")

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        book.durable = True
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(OSError, match="the disk fails"):
                await take(book, 10)
        assert book.open_holds == 0
        book.settle(await take(book, BUDGET.cap), outcome(1))

    play_books(tmp_path, scenario)


def test_a_full_disk_settles_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New requests are refused; each one under way is settled, in the journal too."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    async def scenario(open_book: OpenBook) -> None:
        monkeypatch.setattr("tonnage.gateway.money.journal.ROOM_BYTES", 8192)
        book = await open_book()
        holds: list[Hold] = []

        async def fill() -> None:
            while True:
                holds.append(await take(book, 1))

        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match="no space"):
                await fill()
            assert holds
            for hold in holds:
                book.settle(hold, outcome(1))
        assert (book.open_holds, len(book._rows)) == (0, len(holds))
        found = remains(book.journal.path.read_bytes(), 0, book.worker)
        assert (len(found.rows), found.lost) == (len(holds), 0)

    play_books(tmp_path, scenario)


def test_a_settlement_that_cannot_be_written_stays_open(tmp_path: Path) -> None:
    """It can be settled again."""

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        hold = await take(book, 10)
        write = book.journal._write

        def failing(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "the disk fails")

        book.journal._write = failing
        with pytest.raises(OSError, match="the disk fails"):
            book.settle(hold, outcome(3))
        book.journal._write = write
        assert (hold.settled, book.open_holds) == (False, 1)
        book.settle(hold, outcome(3))
        assert (book.open_holds, len(book._rows)) == (0, 1)

    play_books(tmp_path, scenario)


def test_a_commit_whose_answer_is_lost_counts_once(tmp_path: Path) -> None:
    """It is in the accounts, and the worker is told that it failed: tried again, together with what came since."""

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        book.settle(await take(book, 10), outcome(10))
        apply = book.accounts.apply

        def lossy(*given: Any, **named: Any) -> None:
            apply(*given, **named)
            raise AccountsError("the connection is lost")

        book.accounts.apply = lossy
        with pytest.raises(AccountsError):
            await book.flush()
        book.settle(await take(book, 5), outcome(5))
        book.accounts.apply = apply
        await book.flush()
        (state,) = await book.states()
        assert (state.committed, len(await book.ledger())) == (15, 2)

    play_books(tmp_path, scenario)


def test_a_lease_whose_answer_is_lost_is_found_again(tmp_path: Path) -> None:
    """What the accounts gave and the worker does not know of is no loss of the budget."""

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        lease = book.accounts.lease

        def lossy(*given: Any) -> None:
            lease(*given)
            raise AccountsError("the connection is lost")

        book.accounts.lease = lossy
        with pytest.raises(AccountsError):
            await take(book, 10)
        book.accounts.lease = lease
        await book._compare_leases()
        book.settle(await take(book, BUDGET.cap), outcome(1))

    play_books(tmp_path, scenario)


def test_a_window_that_ends_while_the_accounts_are_asked(tmp_path: Path) -> None:
    """The request is held in the next minute; what was leased of the one before goes back."""
    minute = Allowance(scope="total", name="", unit="tokens", window="minute", cap=1000)

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        begin = time() // 60 * 60
        at = [begin + 59.9]
        book.now = lambda: at[0]
        lease, loop = book.accounts.lease, asyncio.get_running_loop()

        def slow(*given: Any) -> Any:
            granted = lease(*given)
            if at[0] < begin + 60:
                at[0] = begin + 60.1
                asyncio.run_coroutine_threadsafe(_forget(), loop).result(5)
            return granted

        async def _forget() -> None:
            assert book._taken_for_flush() == ([], [])

        book.accounts.lease = slow
        hold = await take(book, 10, minute)
        assert hold.accounts[0].begin == int(begin) + 60
        book.settle(hold, None)
        await book.flush()
        leased = {one.account[1]: one.leased for one in await book.states()}
        assert leased[int(begin)] == 0

    play_books(tmp_path, scenario)


def test_a_worker_that_was_suspended_goes_on_right(tmp_path: Path) -> None:
    """Another host gave back its leases meanwhile: it leases anew, and what it had spent is committed once."""

    async def scenario(open_book: OpenBook) -> None:
        slept, living = await open_book(), await open_book()
        slept._flushes.cancel()
        hold = await take(slept, 400)

        def later() -> float:
            return time() + 4000.0

        living.now = later
        living.host = "another"
        await living._in_thread(living._sweep)
        slept.now = later
        living.settle(await take(living, 500), outcome(500))
        await living.flush()
        with pytest.raises(AllowanceExceeded, match="too little left"):
            await take(slept, 200)
        slept.settle(hold, outcome(400))
        await kill(slept)
        await living._in_thread(bring_in_dead, living.accounts, living.folder, living._say)
        (state,) = await living.states()
        assert state.committed == 900

    play_books(tmp_path, scenario)


def _journal_of(book: SpendBook) -> tuple[bytes, list[bytes]]:
    data = book.journal.path.read_bytes().rstrip(b"\0")
    return data, data.splitlines(keepends=True)


def test_a_torn_line_stops_no_start(tmp_path: Path) -> None:
    """The end of the file did not reach the disk: what stands before it is brought in."""

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        for _ in range(2):
            book.settle(await take(book, 10), outcome(10))
        data, lines = _journal_of(book)
        await kill(book)
        for cut in (data[:-3], data[: -len(lines[-1])] + lines[-1][:9] + b"\0" * 50):
            found = remains(cut, 0, book.worker)
            assert (len(found.rows), found.lost, found.damaged) == (2, 1, 0)
        book.journal.path.write_bytes(data[:-3])
        other = await open_book()
        (state,) = await other.states()
        assert state.committed == 17  # the second one by estimate
        assert not tuple(tmp_path.rglob("*.damaged"))

    play_books(tmp_path, scenario)


def test_a_corrupt_line_is_said_and_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a journal: the rest is brought in, the file is kept."""

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        for _ in range(2):
            book.settle(await take(book, 10), outcome(10))
        _, lines = _journal_of(book)
        await kill(book)
        lines[2] = b"\0" * (len(lines[2]) - 1) + b"\n"  # the first settlement
        book.journal.path.write_bytes(b"".join(lines))
        other = await open_book()
        (state,) = await other.states()
        assert state.committed == 17
        (kept,) = tmp_path.rglob("*.damaged")
        assert kept.name in caplog.text

    play_books(tmp_path, scenario)


def test_a_journal_is_renewed_under_steady_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines come while a flush is under way: the file stays short, and a kill loses and repeats nothing."""
    monkeypatch.setattr("tonnage.gateway.money.journal.RENEW_BYTES", 2000)

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        book._flushes.cancel()
        longest = 0
        for _ in range(20):
            early = await take(book, 10)
            book.settle(await take(book, 10), outcome(10))
            flush = asyncio.ensure_future(book.flush())
            await asyncio.sleep(0)
            book.settle(early, outcome(2))
            book.settle(await take(book, 10), outcome(3))
            await flush
            longest = max(longest, book.journal._end)
        assert longest < 5000
        await kill(book)
        other = await open_book()
        (state,) = await other.states()
        assert state.committed == 20 * 15
        assert len({row["id"] for row in await other.ledger()}) == 60

    play_books(tmp_path, scenario)


def test_minutes_that_are_over_are_forgotten(tmp_path: Path) -> None:
    """Accounts, leases and the journal's numbers of a day of minutes."""
    rate = Allowance(scope="total", name="", unit="requests", window="minute", cap=5)

    async def scenario(open_book: OpenBook) -> None:
        book = await open_book()
        book._flushes.cancel()
        book._flushes = None
        begun_s = book.now()
        for minute in range(0, 1440, 10):
            book.now = lambda now=begun_s + 60.0 * minute: now
            book.settle(await take(book, 1, BUDGET, rate), outcome(1))
            await book.flush()
            await book._in_thread(book._sweep)
        assert len(await book.states()) < 12
        assert len(await book._in_thread(book.accounts.leases, book.worker)) < 12
        assert len(book.journal._numbers) < 4
        assert len(book.here.by_key) < 4

    play_books(tmp_path, scenario)


def test_durable_accounts_wait_for_the_disk(tmp_path: Path) -> None:
    """SQLite's own setting for it."""
    for durable, setting in ((True, 2), (False, 1)):
        accounts = SharedAccounts(str(tmp_path / f"{durable}.db"), durable=durable)
        accounts.open()
        assert accounts._connection.execute("PRAGMA synchronous").fetchone() == (setting,)
        accounts.close()


@pytest.mark.parametrize("served", [True, False])
def test_an_outage_of_the_accounts_ends_no_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    """Workers that end as soon as they begin are started ever more slowly; a gateway that never served gives up."""
    clock, starts = [100.0], list[float]()
    monkeypatch.setattr("tonnage.gateway.processes.time.monotonic", lambda: clock[0])
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    ended.wait()
    processes = GatewayProcesses(None, tmp_path, lambda: None, lambda _: None)  # type: ignore[arg-type, return-value]
    processes._served = served

    def start(_: int) -> _Child:
        starts.append(clock[0])
        return _Child(ended, None, clock[0])  # type: ignore[arg-type]

    monkeypatch.setattr(processes, "_start", start)
    monkeypatch.setattr(processes, "_end", lambda: None)
    processes._workers = [start(0)]

    def run() -> None:
        for _ in range(300):
            clock[0] += 0.2
            processes._replace_dead()

    if served:
        run()
        pauses = [after - before for before, after in pairwise(starts)]
        assert pauses[0] < 1.0
        assert 10.0 < max(pauses) < 20.0
    else:
        with pytest.raises(TonnageError, match="as soon as they begin"):
            run()
        assert len(starts) == 5
