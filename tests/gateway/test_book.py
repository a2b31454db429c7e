"""Books: caps hold over workers, and a killed worker loses and repeats nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tonnage.gateway.money.allowances import Allowance, Amounts
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.holds import AllowanceExceeded, AttemptOutcome, Hold, Who
from tonnage.gateway.money.journal import Journal
from tonnage.gateway.money.remains import remains
from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.gateway.money.sql_store import AccountsError

WHO = Who(key="k", team="t", project="p", route="r", deployment="d")
BUDGET = Allowance(scope="total", name="", unit="usd", window="ever", cap=1000)
PLACES = Allowance(scope="total", name="", unit="at-once", window="ever", cap=3)
RATE = Allowance(scope="team", name="t", unit="requests", window="minute", cap=5)


def outcome(pico: int) -> AttemptOutcome:
    return AttemptOutcome(
        status=200, outcome="ok", amounts=Amounts(usd_pico=pico, tokens=1), input_tokens=1, output_tokens=0,
        cached_tokens=0, estimated=False, first_byte_s=0.1, latency_s=0.2,
    )  # fmt: skip


async def take(book: SpendBook, pico: int, *allowances: Allowance) -> Hold:
    return await book.hold(
        allowances or (BUDGET,), Amounts(usd_pico=pico, tokens=1), who=WHO, request="q", lost_usd_pico=7
    )


def play(
    folder: Path, scenario: Callable[[Callable[[], Awaitable[SpendBook]]], Awaitable[None]], url: str | None = None
) -> None:
    """Run a scenario, which is given a function that opens one more worker's book."""

    async def run() -> None:
        opened: list[SpendBook] = []

        async def open_book() -> SpendBook:
            book = SpendBook(SharedAccounts(url or str(folder / "accounts.db")), folder / "journals")
            await book.open()
            opened.append(book)
            return book

        try:
            await scenario(open_book)
        finally:
            for book in opened:
                if not getattr(book, "killed", False):
                    await book.close()

    asyncio.run(run())


async def kill(book: SpendBook) -> None:
    """As `kill -9`: nothing more is written, the lock is free."""
    book._flushes.cancel()
    await book._in_thread(book.accounts.close)  # behind what a flush may still do there
    book.journal._map.close()
    os.close(book.journal._file)
    book.killed = True


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """Where the accounts are; None: in a file of the test."""
    if request.param == "sqlite":
        yield None
        return
    server = pytest.importorskip("pgserver").get_server(tmp_path_factory.mktemp("pg"))
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def test_workers_together_pass_no_cap(tmp_path: Path, url: str | None) -> None:
    """Four workers draw at random from one budget: it is never passed, and its last part can be had by any."""

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        books = [await open_book() for _ in range(4)]
        random, spent = Random(1), 0

        async def draw(book: SpendBook) -> int:
            try:
                hold = await take(book, 40)
            except AllowanceExceeded:
                return 0
            await asyncio.sleep(random.random() / 100)
            paid = random.randrange(10, 40)
            book.settle(hold, outcome(paid))
            return paid

        for _ in range(8):
            spent += sum(await asyncio.gather(*(draw(random.choice(books)) for _ in range(10))))
        assert 900 < spent <= 1000
        for book in books:
            await book.flush()
        (state,) = await books[0].states()
        assert state.committed == spent
        assert state.committed + state.leased <= 1000

    play(tmp_path, scenario, url)


@pytest.mark.parametrize("flushed", [0, 3, 6])
def test_a_killed_worker_loses_and_repeats_nothing(tmp_path: Path, flushed: int) -> None:
    """Killed after some of its settlements are in the accounts: the rest is brought in once, open holds by estimate."""

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        book = await open_book()
        for number in range(6):
            if number == flushed:
                await book.flush()
            book.settle(await take(book, 100), outcome(10))
        if flushed == 6:
            await book.flush()
        open_hold = await take(book, 100, BUDGET, PLACES)
        assert not open_hold.settled
        dropped = await take(book, 100)
        book.settle(dropped, None)
        await kill(book)
        for _ in range(2):  # the second finds nothing left to do
            other = await open_book()
            await other.flush()
            states = {one.account[0]: one for one in await other.states()}
            assert states[BUDGET.id].committed == 67
            assert states[PLACES.id].leased == 0
            rows = await other.ledger()
            assert len(rows) == 7
            assert [row["outcome"] for row in rows].count("gateway killed") == 1

    play(tmp_path, scenario)


def test_a_renewed_journal_is_counted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long journal is begun anew with its open holds; what comes after it is brought in once."""
    monkeypatch.setattr("tonnage.gateway.money.journal.RENEW_BYTES", 400)

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        book = await open_book()
        kept = await take(book, 100)
        for _ in range(6):
            book.settle(await take(book, 10), outcome(10))
            await book.flush()
        assert book.journal._end < 1500
        book.settle(kept, outcome(5))
        book.settle(await take(book, 10), outcome(3))
        data = book.journal.path.read_bytes()
        found = remains(data, await book._in_thread(book.accounts.applied, book.worker) or 0, book.worker)
        assert [(move.used, move.returned) for move in found.moves] == [(8, 0)]
        await kill(book)
        other = await open_book()
        (state,) = await other.states()
        assert state.committed == 68

    play(tmp_path, scenario)


def test_limits_of_requests_at_once_and_a_minute(tmp_path: Path) -> None:
    """Places come back when a request ends, requests of a minute do not; nothing is taken where one refuses."""

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        book = await open_book()
        holds = [await take(book, 1, BUDGET, PLACES, RATE) for _ in range(3)]
        with pytest.raises(AllowanceExceeded) as refused:
            await take(book, 1, BUDGET, PLACES, RATE)
        assert (refused.value.allowance, refused.value.has) == (PLACES, 0)
        for hold in holds:
            book.settle(hold, outcome(1))
        for _ in range(2):
            book.settle(await take(book, 1, BUDGET, PLACES, RATE), outcome(1))
        with pytest.raises(AllowanceExceeded) as refused:
            await take(book, 1, BUDGET, PLACES, RATE)
        assert refused.value.allowance == RATE
        assert refused.value.until is not None
        assert book.open_holds == 0

    play(tmp_path, scenario)


def test_a_soft_budget_refuses_nothing(tmp_path: Path) -> None:
    """It is counted beyond its cap."""
    soft = Allowance(scope="total", name="", unit="usd", window="ever", cap=10, hard=False)

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        book = await open_book()
        for _ in range(3):
            book.settle(await take(book, 10, soft), outcome(10))
        await book.flush()
        (state,) = await book.states()
        assert state.committed == 30

    play(tmp_path, scenario)


def test_accounts_that_fail_are_said_and_caught_up(tmp_path: Path) -> None:
    """While the database cannot be written, leases go on and nothing that was settled is lost."""

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        book = await open_book()
        book.settle(await take(book, 10), outcome(10))
        apply = book.accounts.apply

        def failing(*_: object, **__: object) -> None:
            raise AccountsError("the disk is full")

        book.accounts.apply = failing
        with pytest.raises(AccountsError, match="full"):
            await book.flush()
        assert book.failing is not None
        book.settle(await take(book, 10), outcome(4))
        book.accounts.apply = apply
        await book.flush()
        assert book.failing is None
        (state,) = await book.states()
        assert state.committed == 14

    play(tmp_path, scenario)


def test_a_silent_worker_of_another_host_is_given_up(tmp_path: Path) -> None:
    """After an hour without a sign its leases are free again; one that tells of itself keeps its own.

    The silent one stays known: it may be suspended, and go on with what it has spent.
    """

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        silent, living = await open_book(), await open_book()
        await take(silent, 10)
        hold = await take(living, 10)
        later = silent.now() + 4000.0
        living.now = lambda: later
        await living._in_thread(living._sweep)
        leased = await living._in_thread(living.accounts.leases, silent.worker)
        assert leased[BUDGET.id, 0] > 0  # of this host: its lock tells that it lives
        living.host = "another"
        await living._in_thread(living._sweep)
        assert await living._in_thread(living.accounts.leases, silent.worker) == {}
        assert await living._in_thread(living.accounts.leases, living.worker) != {}
        assert await living._in_thread(living.accounts.applied, silent.worker) == 0
        living.settle(hold, outcome(5))
        await kill(silent)

    play(tmp_path, scenario)


def test_a_refusal_is_remembered_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scope over its limit asks the store once in a quarter of a second, not at every request; less than what is left
    is given at once, and so is what this worker frees."""

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        book = await open_book()
        clock = [1000.0]
        asked: list[object] = []
        lease = book.accounts.lease
        monkeypatch.setattr(book, "now", lambda: clock[0])
        monkeypatch.setattr(book.accounts, "lease", lambda *given: (asked.append(given), lease(*given))[1])
        first = await take(book, 900)
        asked.clear()
        for _ in range(20):
            with pytest.raises(AllowanceExceeded) as refused:
                await take(book, 200)
            assert (refused.value.need, refused.value.has) == (200, 100)
        assert len(asked) == 1
        small = await take(book, 100)  # what is left
        book.settle(small, None)
        with pytest.raises(AllowanceExceeded):
            await take(book, 200)
        book.settle(first, outcome(10))
        book.settle(await take(book, 200), None)
        with pytest.raises(AllowanceExceeded):
            await take(book, 2000)
        asked.clear()
        clock[0] += 0.3
        with pytest.raises(AllowanceExceeded):
            await take(book, 2000)
        assert len(asked) == 1

    play(tmp_path, scenario)


def test_what_another_worker_frees_is_found_after_the_moment(tmp_path: Path) -> None:
    """One worker was refused; the other settles for less and gives back; within a second the first has it."""

    async def scenario(open_book: Callable[[], Awaitable[SpendBook]]) -> None:
        one, other = await open_book(), await open_book()
        held = await take(one, 1000)
        with pytest.raises(AllowanceExceeded):
            await take(other, 500)
        one.settle(held, outcome(100))
        for _ in range(400):
            try:
                book_hold = await take(other, 500)
            except AllowanceExceeded:
                await asyncio.sleep(0.05)
            else:
                other.settle(book_hold, None)
                return
        raise AssertionError("what was freed was not found in twenty seconds")

    play(tmp_path, scenario)


def test_a_long_journal_is_not_resident(tmp_path: Path) -> None:
    """Twenty megabytes of lines: a few stay mapped, and all of them are read again."""
    journal = Journal(tmp_path, "w")
    count = 50_000
    for number in range(count):
        journal.hold(number, [], 1, 1, 1, "r" * 400, 1.0, "k", "t", "p", "r", "d")
        journal.drop(number)
    assert journal.size > 20e6
    assert _resident_bytes(str(journal.path)) < 4e6
    lines = journal.path.read_bytes().rstrip(b"\0").splitlines()
    assert len(lines) == 2 * count
    assert lines[0].startswith(b'["h",0,')
    assert lines[-1] == b'["x",%d]' % (count - 1)
    journal.close()


def _resident_bytes(path: str) -> int:
    """Of the mapping of a file, in this process."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(path)
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{path} is not mapped")
