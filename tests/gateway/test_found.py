"""Faults that a reader found: each seen to fail before it was mended."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import USAGE, GatewayHarness, Scripted, chat, event, play, said, streamed, whole

import tonnage
from tonnage.errors import InputError
from tonnage.gateway.money.sql_store import AccountsError


def test_flushing_goes_on_after_a_database_error(tmp_path: Path) -> None:
    """The connection is lost, also for a reader: the next flush connects anew and brings everything in."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 1}]) as harness:
            await harness.ask()

            def lose() -> None:  # in the thread of the accounts, between two of the book's own flushes
                harness.accounts._connection.close()
                with pytest.raises(AccountsError, match="failed"):
                    harness.accounts.wanted_since(1e12)
                assert harness.accounts._connection is None

            await harness.book._in_thread(lose)
            assert await harness.book._in_thread(harness.accounts.wanted_since, 1e12) == frozenset()
            assert len(await harness.rows()) == 1

    play(scenario())


def test_budgets_of_one_deployment_hold(tmp_path: Path) -> None:
    """It is passed over when its budget is spent, and the next one answers."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as one,
            Scripted(always=said()) as other,
            GatewayHarness(
                tmp_path, {"a": one, "b": other}, budgets=[{"of": "deployment:a", "usd": 1e-7, "per": "day"}]
            ) as harness,
        ):
            assert (await harness.ask()).header("x-tonnage-deployment") == "b"
            assert not one.seen

    play(scenario())


def test_accounts_are_counted_once(tmp_path: Path) -> None:
    """Hard and soft on one scope, a name beside `*`: paid is committed once in each, the name's own cap holds."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(
                tmp_path,
                {"up": up},
                keys={"a": {"key": "env:KEY_A"}},
                budgets=[{"usd": 1}, {"usd": 0.5, "at": "soft"}],
                limits=[{"of": "key:*", "requests_per_minute": 1}, {"of": "key:a", "requests_per_minute": 2}],
            ) as harness,
        ):
            answers = [await harness.ask(authorization="Bearer secret-a") for _ in range(3)]
            assert [one.status for one in answers] == [200, 200, 429]
            paid = sum(row["usd_pico"] for row in await harness.rows())
            usd = [one.committed for one in await harness.book.states() if one.account[0].startswith("usd")]
            assert usd == [paid, paid]

    play(scenario())


def test_two_entries_for_one_thing_are_refused(tmp_path: Path) -> None:
    """Which of them holds would be a guess."""
    price = {"input_usd_per_million": 1, "output_usd_per_million": 2}
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps({
        "deployments": {"a": {"url": "http://127.0.0.1:1/v1", "model": "m", "price": price}},
        "routes": {"chat": {"deployments": ["a"]}}, "budgets": [{"usd": 1}, {"usd": 2}],
    }))  # fmt: skip
    with pytest.raises(InputError, match="total has this budget already"):
        tonnage.check_gateway(path)


def test_a_soft_budget_cuts_no_answer(tmp_path: Path) -> None:
    """Without max_tokens the deployment's own limit stands, and nothing is told to the upstream."""

    async def scenario() -> None:
        body = chat()
        del body["max_tokens"]
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(
                tmp_path, {"a": up}, budgets=[{"usd": 100, "at": "soft"}], a={"max_output_tokens": 4096}
            ) as harness,
        ):
            assert (await harness.ask(body)).status == 200
            assert "max_completion_tokens" not in up.seen[0]

    play(scenario())


@pytest.mark.parametrize(
    "bad",
    [chat(stream=True, stream_options=[1]), chat(max_tokens=10**13), chat(stream=True, stream_options={}, x=[[]])],
)
def test_bad_bodies_take_no_deployment_down(tmp_path: Path, bad: dict[str, Any]) -> None:
    """Refused with 400 as often as they come; a good request is answered afterwards."""
    if bad.pop("x", None):
        bad["metadata"] = json.loads("[" * 400 + "]" * 400)

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            assert [(await harness.ask(bad)).status for _ in range(6)] == [400] * 6
            assert (await harness.ask()).status == 200

    play(scenario())


def test_errors_inside_a_200_are_not_kept(tmp_path: Path) -> None:
    """As a whole or in a stream: the next request asks again."""

    async def scenario() -> None:
        error = {"error": {"message": "engine died"}}
        for broken, more in ((whole(error), {}), (streamed(event(error), event(b"[DONE]")), {"stream": True})):
            async with (
                Scripted(broken, always=said()) as up,
                GatewayHarness(tmp_path, {"a": up}, route={"cache": {"ttl": "1h"}}) as harness,
            ):
                await harness.ask(chat(temperature=0, **more))
                again = await harness.ask(chat(temperature=0, **more))
                assert again.header("x-tonnage-cache") is None
                assert len(up.seen) == 2

    play(scenario())


def test_a_missing_count_of_output_is_estimated(tmp_path: Path) -> None:
    """An answer whose usage names its input alone."""

    async def scenario() -> None:
        usage = {"prompt_tokens": USAGE["prompt_tokens"]}
        async with Scripted(said("word " * 400, usage=usage)) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            await harness.ask()
            (row,) = await harness.rows()
            assert row["estimated"] == 1
            assert row["output_tokens"] > 400

    play(scenario())


def test_accounts_close_a_lost_connection(tmp_path: Path) -> None:
    """A file that is no database is a fault of the accounts, with what to check."""
    from tonnage.gateway.money.shared_accounts import SharedAccounts

    path = tmp_path / "accounts.db"
    path.write_bytes(b"no database at all, but long enough to be read as one" * 20)
    with pytest.raises((AccountsError, sqlite3.DatabaseError)) as error:
        SharedAccounts(str(path)).open()
    assert isinstance(error.value, AccountsError)
