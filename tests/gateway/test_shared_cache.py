"""Answers kept in Redis for several workers, against a real server; and what happens without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said, streamed, words

import tonnage
from tonnage.errors import InputError
from tonnage.gateway.caching import SharedCache, shared_prefix
from tonnage.gateway.measures import GatewayMeasures


def met(measures: GatewayMeasures, name: str) -> float:
    return measures.cell("tonnage_gateway_shared_cache_total", (("met", name),))[0]


class Shared(GatewayHarness):
    """A worker whose routes keep their answers in Redis."""

    def __init__(self, folder: Path, upstreams: dict[str, Scripted], url: str, **file: Any) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "redis").write_text(url)
        super().__init__(folder, upstreams, redis=f"file:{folder / 'redis'}", route={"cache": {"ttl": "1h"}}, **file)

    async def __aexit__(self, *given: object) -> None:
        await super().__aexit__(*given)
        if self.running.shared_cache is not None:
            await self.running.shared_cache.close()


@pytest.mark.parametrize("stream", [False, True])
def test_what_one_worker_kept_another_gives(tmp_path: Path, redis_url: str, stream: bool) -> None:
    """The same bytes at no cost, streams too; of another team, or from another upstream of that name, nothing."""
    asked = chat(temperature=0, stream=stream)
    keys = {"keys": {"web": {"key": "env:KEY_A", "team": "web"}, "other": {"key": "env:KEY_B", "team": "other"}}}

    async def scenario() -> None:
        answer = streamed(*words(2)) if stream else said()
        async with Scripted(always=answer) as one, Scripted(always=answer) as elsewhere:
            async with Shared(tmp_path / "1", {"a": one}, redis_url, **keys) as first:
                given = await first.ask(asked, authorization="Bearer secret-a")
            async with Shared(tmp_path / "2", {"a": one}, redis_url, **keys) as second:
                again = await second.ask(asked, authorization="Bearer secret-a")
                assert again.header("x-tonnage-cache") == "hit"
                assert again.body == given.body
                assert met(second.measures, "hit") == 1
                await second.ask(asked, authorization="Bearer secret-a")
                assert met(second.measures, "hit") == 1  # from its own memory
                assert len(one.seen) == 1
                await second.ask(asked, authorization="Bearer secret-b")
                assert len(one.seen) == 2
                assert await second.rows() != []
            async with Shared(tmp_path / "3", {"a": elsewhere}, redis_url, **keys) as third:
                await third.ask(asked, authorization="Bearer secret-a")
                assert len(elsewhere.seen) == 1
                assert shared_prefix(third.gateway, "chat") != shared_prefix(second.gateway, "chat")

    play(scenario())


def test_answers_end_with_their_time(tmp_path: Path, redis_url: str, redis_server: Any) -> None:
    """Redis forgets them itself; a worker that takes one keeps it no longer than Redis does."""

    async def scenario() -> None:
        async with Scripted(always=said()) as one:
            async with Shared(tmp_path / "1", {"a": one}, redis_url) as first:
                await first.ask(chat(temperature=0))
            (key,) = redis_server.keys("*")
            assert 3_500_000 < redis_server.pttl(key) <= 3_600_000
            redis_server.pexpire(key, 40_000)
            async with Shared(tmp_path / "2", {"a": one}, redis_url) as second:
                await second.ask(chat(temperature=0))
                (kept,) = second.running.caches["chat"]._kept.values()
                assert kept.until_s - second.running.caches["chat"]._now() <= 40

    play(scenario())


def test_redis_away_is_a_miss(tmp_path: Path) -> None:
    """Requests are answered; each is counted, and Redis is left alone for a while."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as one,
            Shared(tmp_path, {"a": one}, f"unix://{tmp_path}/none.sock") as harness,
        ):
            for number in range(3):
                assert (await harness.ask(chat(str(number), temperature=0))).status == 200
            assert (met(harness.measures, "away"), met(harness.measures, "not-kept")) == (3, 3)
            again = await harness.ask(chat("0", temperature=0))
            assert again.header("x-tonnage-cache") == "hit"  # its own memory is as it was

    play(scenario())


def test_what_nobody_wrote_is_a_miss(redis_url: str, redis_server: Any) -> None:
    """Also what was torn."""

    async def scenario() -> None:
        cache = SharedCache(redis_url, measures)
        for number, value in enumerate((b"", b"{}\nx", b"[200]\nx", b'[200,"a",1,"d"]')):
            redis_server.set(f"k{number}", value, ex=10)
            assert await cache.get(b"k%d" % number) is None
        await cache.close()

    measures = GatewayMeasures()
    play(scenario())
    assert met(measures, "unreadable") == 4


def test_the_file_says_where(tmp_path: Path) -> None:
    """An address that is none and a Redis that nothing uses are refused; the password is in no message."""
    from tests.gateway.test_request_log import written

    (tmp_path / "redis").write_text("http://u:s3cret@x")
    with pytest.raises(InputError, match="no route has a cache"):
        tonnage.check_gateway(written(tmp_path, redis=f"file:{tmp_path / 'redis'}"))
    with pytest.raises(InputError) as error:
        SharedCache("http://u:s3cret@x", GatewayMeasures())
    assert "s3cret" not in str(error.value)
