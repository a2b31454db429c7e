"""The gateway before llama.cpp's own server, with a model of random weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from tests.gateway.harness import GatewayHarness, Scripted, chat, play
from tests.llama_server import llama_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(tmp_path_factory.mktemp("model"), at_once=2) as address:
        yield f"{address}/v1"


def test_streams_wholes_and_embeddings_of_a_real_engine(llama: str, tmp_path: Path) -> None:
    """The ledger has the engine's own counts; a stream whose usage nobody asked for ends without it."""

    async def scenario() -> None:
        upstream = Scripted()
        upstream.url = llama
        async with GatewayHarness(tmp_path, {"a": upstream}, each={"model": "tiny"}, budgets=[{"usd": 1}]) as harness:
            asked = chat("tell me more", max_tokens=8, temperature=0)
            whole = await harness.ask(asked)
            counts = json.loads(whole.body)["usage"]
            streamed = await harness.ask({**asked, "stream": True})
            assert streamed.body.endswith(b"data: [DONE]\n\n")
            assert b'"usage":{' not in streamed.body
            told = await harness.ask({**asked, "stream": True, "stream_options": {"include_usage": True}})
            assert b'"usage":{' in told.body
            completed = await harness.ask({"model": "chat", "prompt": "one", "max_tokens": 3}, "/v1/completions")
            assert completed.status == 200
            rows = await harness.rows()
            assert [row["estimated"] for row in rows] == [0] * 4
            assert {(row["input_tokens"], row["output_tokens"]) for row in rows[:3]} == {
                (counts["prompt_tokens"], counts["completion_tokens"])
            }
            spent = sum(row["usd_pico"] for row in rows)
            (state,) = await harness.book.states()
            paid = sum(row["input_tokens"] * 10**6 + row["output_tokens"] * 2 * 10**6 for row in rows)
            assert state.committed == spent == paid

    play(scenario())


def test_repeats_waiting_and_hedges_of_a_real_engine(llama: str, tmp_path: Path) -> None:
    """A stream is repeated from the store; six requests share two places; of two hedged ones the engine ends the loser,
    and holds return to none."""

    async def scenario() -> None:
        upstreams = {"a": Scripted(), "b": Scripted()}
        for one in upstreams.values():
            one.url = llama
        hedged = {"deployments": ["a", "b"], "hedge": {"after": "1ms", "share_percent": 99}}
        async with GatewayHarness(
            tmp_path, upstreams, each={"model": "tiny", "at_once": 1}, queue={}, budgets=[{"usd": 1}],
            route={"deployments": ["a", "b"]}, more={"hedged": hedged},
        ) as harness:  # fmt: skip
            asked = chat("tell me more", max_tokens=8, temperature=0, stream=True)
            first, again = [await harness.ask(asked, Idempotency_Key="one") for _ in range(2)]
            assert first.body == again.body
            answers = await asyncio.gather(*(harness.ask(chat(f"say {one}", max_tokens=16)) for one in range(6)))
            assert [one.status for one in answers] == [200] * 6
            answer = await harness.ask(chat("tell me all", model="hedged", max_tokens=64))
            assert answer.status == 200
            rows = await harness.rows()
            assert len(rows) == 1 + 6 + 2
            assert sorted(row["outcome"] for row in rows[-2:]) == ["hedge-lost", "ok"]
            assert harness.book.open_holds == len(harness.handler.waiting) == 0

    play(scenario())
