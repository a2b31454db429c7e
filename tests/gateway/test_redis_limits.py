"""Limits a minute counted in Redis, by workers of several hosts with stores of their own, against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.gateway.harness import play

import tonnage
from tonnage.errors import InputError
from tonnage.gateway.money.accounts_of import LimitsInRedis
from tonnage.gateway.money.allowances import Allowance, Amounts
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.holds import AllowanceExceeded, AttemptOutcome, Who
from tonnage.gateway.money.sql_store import AccountsError

pytest.importorskip("redis")
CAP = 100
LIMIT = Allowance(scope="total", name="", unit="requests", window="minute", cap=CAP)
BUDGET = Allowance(scope="total", name="", unit="usd", window="ever", cap=50)
WHO = Who(key="k", team="t", project="p", route="r", deployment="d")
NOW = 1_800_000_005.0


class Clock:
    """Seconds of a minute, five times as fast: patience is short, and no minute ends by itself in a test."""

    def __init__(self) -> None:
        self.minutes, self._began_s = 0, monotonic()

    def __call__(self) -> float:
        return NOW + 60 * self.minutes + min(5 * (monotonic() - self._began_s), 54.0)


async def opened(folder: Path, url: str, now: Clock) -> SpendBook:
    """A worker of a host of its own."""
    folder.mkdir()
    book = SpendBook(LimitsInRedis(str(folder / "accounts.db"), url), folder / "journals", now=now)
    await book.open()
    return book


async def one(book: SpendBook, *allowances: Allowance) -> bool:
    """Whether a request was let in; it is settled at once."""
    try:
        hold = await book.hold(allowances, Amounts(usd_pico=1, tokens=0), who=WHO, request="r", lost_usd_pico=0)
    except AllowanceExceeded:
        return False
    book.settle(hold, AttemptOutcome(200, "ok", Amounts(usd_pico=1, tokens=0), 1, 1, 0, False, 0.1, 0.1))
    return True


def test_hosts_together_keep_a_limit(tmp_path: Path, redis_url: str) -> None:
    """Three workers at once let in exactly the limit; the next minute begins anew."""

    async def scenario() -> None:
        now = Clock()
        books = [await opened(tmp_path / str(index), redis_url, now) for index in range(3)]
        let_in = 0

        async def ask(book: SpendBook) -> None:
            nonlocal let_in
            while await one(book, LIMIT):
                let_in += 1
                if let_in % 7 == 0:
                    await book.flush()

        await asyncio.gather(*(ask(book) for book in books))
        assert let_in <= CAP
        for book in books:
            await book._give_back_wanted()
            await book.flush()
        for book in books:
            while await one(book, LIMIT):
                let_in += 1
        assert CAP - 3 <= let_in <= CAP
        for book in books:
            await book.flush()
        (state,) = [found for found in await books[0].states() if found.account[0] == LIMIT.id]
        assert state.committed == let_in
        assert state.committed + state.leased <= CAP
        now.minutes += 1
        assert await one(books[0], LIMIT)
        for book in books:
            await book.close()

    play(scenario())


def test_a_refused_budget_gives_the_limit_back(tmp_path: Path, redis_url: str, redis_server: Any) -> None:
    """Both or neither: what the store refuses is not counted in Redis."""

    async def scenario() -> None:
        book = await opened(tmp_path / "a", redis_url, Clock())
        dear = Amounts(usd_pico=60, tokens=0)
        with pytest.raises(AllowanceExceeded):
            await book.hold((LIMIT, BUDGET), dear, who=WHO, request="r", lost_usd_pico=0)
        (name,) = redis_server.keys("tonnage:limit:*")
        assert int(redis_server.hget(name, "leased")) == 0
        assert 0 < redis_server.ttl(name) <= 180
        assert await one(book, LIMIT, BUDGET)
        await book.close()

    play(scenario())


def test_redis_away_refuses(tmp_path: Path) -> None:
    """A limit that nobody counts lets nothing in; budgets alone go on."""

    async def scenario() -> None:
        book = await opened(tmp_path / "a", f"unix://{tmp_path}/none.sock", Clock())
        with pytest.raises(AccountsError, match="Redis does not count limits now"):
            await one(book, LIMIT)
        assert await one(book, BUDGET)
        await book.close()

    play(scenario())


def test_the_file_has_to_say_where(tmp_path: Path) -> None:
    """Limits in Redis need one; with one a cache is not asked for."""
    from tests.gateway.test_request_log import written

    with pytest.raises(InputError, match="needs an address of Redis"):
        tonnage.check_gateway(written(tmp_path, limits_in="redis"))
    (tmp_path / "redis").write_text("redis://127.0.0.1:1/0")
    file = f"file:{tmp_path / 'redis'}"
    assert tonnage.check_gateway(written(tmp_path, limits_in="redis", redis=file)).found.limits_in_redis
