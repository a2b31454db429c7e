"""What a request may cost at most: output that nobody stated, input that the upstream adds itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, late, play, said, until, whole

from tonnage.gateway.proxy.asked import UnreadableRequest, read_asked
from tonnage.gateway.proxy.bounds import FEWEST_SHARED_TOKENS, UNSTATED_OUTPUT_TOKENS

UNSTATED = {key: value for key, value in chat().items() if key != "max_tokens"}
RESPONSE = {"object": "response", "output": [], "usage": {"input_tokens": 3, "output_tokens": 1}}


def responses(**more: Any) -> dict[str, Any]:
    return {"model": "chat", "max_output_tokens": 10, "input": "hi"} | more


def test_nobody_is_told_absurd_numbers(tmp_path: Path) -> None:
    """A large budget and no known limit: a sane number, said to the client; eight at once are all answered."""

    async def scenario() -> None:
        async with (
            Scripted(always=late(said(), 0.05)) as up,
            GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 1}]) as harness,
        ):
            answers = await asyncio.gather(*(harness.ask(UNSTATED) for _ in range(8)))
            assert [one.status for one in answers] == [200] * 8
            assert {one.header("x-tonnage-max-tokens") for one in answers} == {str(UNSTATED_OUTPUT_TOKENS)}
            assert {one["max_completion_tokens"] for one in up.seen} == {UNSTATED_OUTPUT_TOKENS}

    play(scenario())


def test_the_last_of_a_budget_is_shared(tmp_path: Path) -> None:
    """It does not pay for the deployment's own limit: four requests share what there is, and each is told."""

    async def scenario() -> None:
        async with (
            Scripted(always=late(said(), 0.05)) as up,
            GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 0.02}], a={"max_output_tokens": 50_000}) as harness,
        ):
            answers = await asyncio.gather(*(harness.ask(UNSTATED) for _ in range(3)))
            assert [one.status for one in answers] == [200] * 3
            told = [int(one.header("x-tonnage-max-tokens") or 0) for one in answers]
            assert max(told) < 0.02 / 2e-6 / 4
            assert min(told) >= FEWEST_SHARED_TOKENS

    play(scenario())


PARTS = [
    (responses(previous_response_id="resp_1"), "previous_response_id"),
    (responses(conversation={"id": "conv_1"}), "conversation"),
    (responses(prompt={"id": "pmpt_1"}), "prompt"),
    (responses(input=[{"role": "user", "content": "hi"}, {"id": "msg_1"}]), "input"),
    (responses(input=[{"type": "item_reference", "id": "msg_1"}]), "input"),
    (responses(input=[{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]), "file_id"),
    (responses(tools=[{"type": "web_search_preview"}]), "tools"),
]


@pytest.mark.parametrize(("body", "part"), PARTS)
def test_what_an_upstream_adds_is_refused_under_a_budget(tmp_path: Path, body: dict[str, Any], part: str) -> None:
    """By name; without a budget it passes."""

    async def scenario() -> None:
        async with Scripted(always=whole(RESPONSE)) as up:
            async with GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 1}]) as harness:
                refused = await harness.ask(body, "/v1/responses")
                error = json.loads(refused.body)["error"]
                assert (refused.status, error["type"], error["param"]) == (400, "unbounded_input", part)
                assert "stored_tokens" in error["message"]
                assert (await harness.ask(responses(), "/v1/responses")).status == 200
            async with GatewayHarness(tmp_path, {"a": up}, store=str(tmp_path / "other.db")) as harness:
                assert (await harness.ask(body, "/v1/responses")).status == 200

    play(scenario())


def test_a_file_may_bound_what_is_stored(tmp_path: Path) -> None:
    """The deployment that states how much it adds is asked, and so much is held: the other one is passed over."""
    body = PARTS[0][0]

    async def scenario() -> None:
        async with (
            Scripted(always=whole(RESPONSE)) as one,
            Scripted(always=late(whole(RESPONSE), 0.2)) as other,
            GatewayHarness(
                tmp_path, {"a": one, "b": other}, budgets=[{"usd": 1}], b={"stored_tokens": 200_000}
            ) as harness,
        ):
            asked = asyncio.ensure_future(harness.ask(body, "/v1/responses"))
            await until(lambda: other.seen)
            held = [account.held for account in harness.book.here.by_key.values()]
            assert held == [(len(json.dumps(body)) + 512 + 200_000) * 10**6 + 10 * 2 * 10**6]
            assert (await asked).header("x-tonnage-deployment") == "b"
            assert not one.seen

    play(scenario())


@pytest.mark.parametrize(("text", "part"), [
    ('{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"f\\u0069le_id":"f"}}]}]}', "file_id"),
    ('{"model":"m","messages":[{"role":"user","content":"\\"file_id\\": \\"x\\""}]}', None),
    ('{"model":"m","tools":[{"function":{"parameters":{"properties":{"file_id":{"type":"string"}}}}}]}', None),
])  # fmt: skip
def test_names_in_escapes_and_names_in_texts(text: str, part: str | None) -> None:
    """A name in escapes is the name; a text that quotes it, or a tool that has such a parameter, is not."""
    assert read_asked("chat", text.encode()).unbounded == part


def test_documents_by_address() -> None:
    """Of Anthropic's dialect; one that comes along is bounded by its bytes."""
    for source, part in (({"type": "url", "url": "https://x"}, "document"), ({"type": "base64", "data": "AA"}, None)):
        body = {"model": "m", "messages": [{"role": "user", "content": [{"source": source, "type": "document"}]}]}
        assert read_asked("messages", json.dumps(body).encode()).unbounded == part


def test_the_larger_limit_counts() -> None:
    """Upstreams differ in which of two names they follow."""
    body = {"model": "m", "max_tokens": 5000, "max_completion_tokens": 10, "messages": []}
    assert read_asked("chat", json.dumps(body).encode()).max_tokens == 5000
    with pytest.raises(UnreadableRequest, match="max_tokens"):
        read_asked("chat", json.dumps(body | {"max_tokens": -1}).encode())


def test_estimates_count_every_answer(tmp_path: Path) -> None:
    """A request for eight answers that may have been billed is charged for eight."""
    from tests.gateway.harness import hang_up

    async def scenario() -> None:
        async with (
            Scripted(always=hang_up) as up,
            GatewayHarness(
                tmp_path, {"a": up}, route={"retry": {"attempts": 1}}, limits=[{"tokens_per_minute": 10_000}]
            ) as harness,
        ):
            await harness.ask(chat())
            await harness.ask(chat(n=8))
            harness.handler.settle_uncertain()
            one, eight = (row["usd_pico"] for row in await harness.rows())
            assert eight - one >= 70 * 2 * 10**6
            (tokens,) = await harness.book.states()
            assert tokens.committed >= 9 * 10

    play(scenario())


@pytest.mark.parametrize("asked", [chat(), UNSTATED])
def test_rejected_predictions_are_held(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Tokens of a prediction that the answer does not follow are billed as output: at most as many as it has bytes."""

    async def scenario() -> None:
        text = "x" * 2000
        predicted = asked | {"prediction": {"type": "content", "content": text}}
        usage = {"prompt_tokens": 7, "completion_tokens": 2010, "total_tokens": 2017}
        async with (
            Scripted(always=said(usage=usage)) as up,
            GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 0.008}]) as harness,
        ):
            assert (await harness.ask(predicted)).status == 200
            over = [name for name, _ in harness.measures.counts if name == "tonnage_gateway_over_hold_total"]
            assert not over
            told = up.seen[0].get("max_completion_tokens") or 10
            assert len(text) + told <= 0.008 / 2e-6

    play(scenario())
