"""Idempotency keys: the first request runs, repeats get its answer, whatever happens between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import (
    GatewayHarness,
    Scripted,
    chat,
    hang_up,
    play,
    said,
    spoken,
    streamed,
    until,
    whole,
    words,
)

from tonnage.gateway.idempotency.store import LOST_AFTER_S, SILENT_S, Claim, IdempotencyStore, ReplayableAnswer
from tonnage.gateway.money.shared_accounts import SharedAccounts


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_gets_the_first_answer(tmp_path: Path, stream: bool) -> None:
    """The same bytes, as a stream where it was one; one attempt, one charge, in a new worker too."""

    async def scenario() -> None:
        answer = streamed(*words(3)) if stream else said()
        async with Scripted(answer) as up:
            async with GatewayHarness(tmp_path, {"a": up}) as harness:
                first = await harness.ask(chat(stream=stream), Idempotency_Key="one")
                again = await harness.ask(chat(stream=stream), Idempotency_Key="one")
                assert (again.status, again.body) == (200, first.body)
                assert first.header("idempotent-replayed") is None
                assert again.header("idempotent-replayed") == "true"
                assert again.header("x-tonnage-cost-usd") == "0"
                assert again.header("x-tonnage-request-id") == first.header("x-tonnage-request-id")
            async with GatewayHarness(tmp_path, {"a": up}) as harness:
                assert (await harness.ask(chat(stream=stream), Idempotency_Key="one")).body == first.body
                assert len(await harness.rows()) == len(up.seen) == 1

    play(scenario())


def test_under_way_and_another_body(tmp_path: Path) -> None:
    """409 while the first is under way, 422 for another body; keys of other callers are other keys."""

    async def scenario() -> None:
        keys = {"x": {"key": "env:KEY_A"}, "y": {"key": "env:KEY_B"}}
        x, y = {"Authorization": "Bearer secret-a"}, {"Authorization": "Bearer secret-b"}
        asked = asyncio.Event()

        async def first(writer: asyncio.StreamWriter) -> None:
            await asked.wait()
            await said("first")(writer)

        async with (
            Scripted(first, always=said("second")) as up,
            GatewayHarness(tmp_path, {"a": up}, keys=keys) as harness,
        ):
            under_way = asyncio.ensure_future(harness.ask(chat(), Idempotency_Key="one", **x))
            await until(lambda: up.seen)
            busy = await harness.ask(chat(), Idempotency_Key="one", **x)
            assert (busy.status, busy.header("retry-after")) == (409, "1")
            other = await harness.ask(chat("other"), Idempotency_Key="one", **x)
            assert other.status == 422
            assert json.loads(other.body)["error"]["code"] == "idempotency_key_reused"
            assert b"second" in (await harness.ask(chat(), Idempotency_Key="one", **y)).body
            asked.set()
            assert b"first" in (await under_way).body
            assert (await harness.ask(chat(), Idempotency_Key="", **x)).status == 400
            assert len(up.seen) == 2

    play(scenario())


def test_what_failed_may_be_asked_again(tmp_path: Path) -> None:
    """A 502, a 429 of a limit, a broken stream and the gateway's own refusals keep nothing; a 400 of the upstream is
    an answer."""

    async def scenario() -> None:
        wrong = whole({"error": {"message": "no such tool"}}, 400)
        async with (
            Scripted(hang_up, streamed(*words(2, end=False), cut=True), streamed(*words(2)), wrong, said()) as up,
            GatewayHarness(
                tmp_path, {"a": up}, route={"retry": {"attempts": 1}}, limits=[{"requests_per_minute": 4}]
            ) as harness,
        ):
            assert (await harness.ask(chat(stream=True), Idempotency_Key="one")).status == 502
            reader, writer = await spoken(harness.port, chat(stream=True), idempotency_key="one", connection="close")
            assert b"gave no whole answer" in await reader.read()
            writer.close()
            assert (await harness.ask(chat(stream=True), Idempotency_Key="one")).body.endswith(b"[DONE]\n\n")
            refused = [await harness.ask(chat(), Idempotency_Key="two") for _ in range(2)]
            assert [one.status for one in refused] == [400, 400]
            assert (await harness.ask(chat(), Idempotency_Key="three")).status == 429
            assert (await harness.ask(chat(), Idempotency_Key="three")).status == 429
            assert len(up.seen) == 4

    play(scenario())


def test_a_client_that_left_finds_its_answer(tmp_path: Path) -> None:
    """It leaves in the middle of a stream, which is read to its end; the repeat has all of it, for one charge."""

    async def scenario() -> None:
        async with (
            Scripted(streamed(*words(20), pause_s=0.005)) as up,
            GatewayHarness(tmp_path, {"a": up}, after_disconnect="0s") as harness,
        ):
            reader, writer = await spoken(harness.port, chat(stream=True), idempotency_key="one")
            await reader.readuntil(b"w1")
            writer.transport.abort()
            while (answer := await harness.ask(chat(stream=True), Idempotency_Key="one")).status == 409:
                await asyncio.sleep(0.02)
            assert answer.body.count(b'"content"') == 20
            (row,) = await harness.rows()
            assert (row["outcome"], row["estimated"]) == ("ok", 0)

    play(scenario())


def test_an_answer_that_is_too_large_is_not_computed_again(tmp_path: Path) -> None:
    """It is not kept, and the key is not free: the repeat is told so."""

    async def scenario() -> None:
        async with (
            Scripted(streamed(*words(20))) as up,
            GatewayHarness(tmp_path, {"a": up}, idempotency={"largest_mb": 0.0005}) as harness,
        ):
            assert (await harness.ask(chat(stream=True), Idempotency_Key="one")).status == 200
            again = await harness.ask(chat(stream=True), Idempotency_Key="one")
            assert again.status == 409
            assert b"idempotency_answer_not_kept" in again.body

    play(scenario())


def test_the_header_can_be_ignored(tmp_path: Path) -> None:
    """`idempotency: {on: false}`: each request runs."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, idempotency={"on": False}) as harness,
        ):
            for _ in range(2):
                assert (await harness.ask(Idempotency_Key="one")).status == 200
            assert len(up.seen) == 2

    play(scenario())


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SharedAccounts, IdempotencyStore]]:
    """The two parts of one store."""
    server = None
    url = str(tmp_path / "a.db")
    if request.param == "postgresql":
        server = pytest.importorskip("pgserver").get_server(tmp_path_factory.mktemp("pg"))
        url = server.get_uri()
    accounts, store = SharedAccounts(url), IdempotencyStore(url)
    accounts.open()
    store.open()
    try:
        yield accounts, store
    finally:
        store.close()
        accounts.close()
        if server is not None:
            server.cleanup()


def test_claims_of_dead_workers_are_free(stores: tuple[SharedAccounts, IdempotencyStore]) -> None:
    """While a worker lives its claim stands; one that has left, or is silent for a minute, holds nothing, and what it
    says of its claim later changes nothing."""
    accounts, store = stores
    accounts.join("first", "here", 1000.0)
    old = Claim("me", "key", "first", 1000.0)
    assert store.claim(old, "body", 60.0).met == "claimed"
    assert store.claim(Claim("me", "key", "second", 1001.0), "body", 60.0).met == "in-flight"
    new = Claim("me", "key", "second", 1001.0 + SILENT_S)
    accounts.join("second", "here", new.at_s)
    assert store.claim(new, "body", 60.0).met == "claimed"
    store.keep(old, ReplayableAnswer(200, b"", b"late", streamed=False), 5000.0)
    store.release(old)
    assert store.claim(Claim("me", "key", "third", new.at_s + 1), "body", 60.0).met == "in-flight"
    accounts.leave("second", (), ())
    assert store.claim(Claim("me", "key", "third", new.at_s + 2), "other", 60.0).met == "claimed"


def test_answers_are_kept_for_their_time(stores: tuple[SharedAccounts, IdempotencyStore]) -> None:
    """Then the key is free, for another body too, and the answer leaves the store."""
    accounts, store = stores
    accounts.join("w", "here", 1000.0)
    first = Claim("me", "key", "w", 1000.0)
    store.claim(first, "body", 60.0)
    kept = ReplayableAnswer(200, b"a: b\r\n", b"\x00text", streamed=True)
    store.keep(first, kept, 1060.0)
    assert store.claim(first._replace(at_s=1059.0), "body", 60.0).answer == kept
    assert store.claim(first._replace(at_s=1059.0), "other", 60.0).met == "another-body"
    store.forget(1059.0)
    assert store.claim(first._replace(at_s=1059.0), "body", 60.0).met == "kept"
    store.forget(1060.0)
    assert store.claim(first._replace(at_s=1060.0), "other", 60.0).met == "claimed"
    store.forget(1060.0 + LOST_AFTER_S - 1.0)
    accounts.tell_alive("w", 1060.0 + LOST_AFTER_S)
    assert store.claim(first._replace(at_s=1060.0 + LOST_AFTER_S), "other", 60.0).met == "in-flight"
    store.forget(1060.0 + LOST_AFTER_S)
    assert store.claim(first._replace(at_s=1060.0 + LOST_AFTER_S), "other", 60.0).met == "claimed"


def test_a_store_that_fails_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent that could not be repeated; an answer that cannot be kept reaches its client all the same."""
    from tonnage.gateway.money.sql_store import AccountsError

    def fails(*_: Any) -> Any:
        raise AccountsError("no disk")

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            with monkeypatch.context() as patch:
                patch.setattr(IdempotencyStore, "keep", fails)
                assert (await harness.ask(Idempotency_Key="one")).status == 200
                patch.setattr(IdempotencyStore, "claim", fails)
                assert (await harness.ask(Idempotency_Key="two")).status == 503
            assert len(up.seen) == 1

    play(scenario())
