"""A guardrail and a rule of a route that ask the encoder server itself, a classifier of random weights in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from tests.gateway.encoder_server import serving
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said

from tonnage.testing.tiny_encoders import write_tiny_encoder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("encoder")
    folder = write_tiny_encoder(home / "tiny", "classification")
    with serving(folder, home / "home") as url:
        yield url


def test_an_encoder_server_judges(encoder: str, tmp_path: Path) -> None:
    """Its most likely label refuses, its least likely lets pass; several windows are one request; each is a row."""

    async def scenario() -> None:
        scored = httpx.post(f"{encoder}/predict", json={"inputs": "the film was good"}).json()
        scores = {one["label"]: one["score"] for one in scored}
        likely, unlikely = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
        judge = Scripted()
        judge.url = encoder
        rule = {"detect": "classifier", "deployment": "judge", "above": 0.001 + scores[unlikely]}
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(
                tmp_path, {"a": up, "judge": judge},
                guardrails={"no": rule | {"labels": [likely]}, "yes": rule | {"labels": [unlikely], "above": 0.999}},
                route={"deployments": ["a"], "guardrails": ["no"]},
                more={"open": {"deployments": ["a"], "guardrails": ["yes"]}}, budgets=[{"usd": 1}],
            ) as harness,
        ):  # fmt: skip
            refused = await harness.ask(chat("the film was good"))
            assert (refused.status, json.loads(refused.body)["error"]["found"]) == (400, [likely])
            assert (await harness.ask(chat("the film was good " * 300, model="open"))).status == 200
            rows = await harness.rows()
            assert [(row["deployment"], row["outcome"]) for row in rows] == [
                ("judge", "guardrail"), ("judge", "guardrail"), ("a", "ok"),
            ]  # fmt: skip
            assert harness.book.open_holds == 0

    play(scenario())


def test_an_encoder_server_routes(encoder: str, tmp_path: Path) -> None:
    """The deployment of its most likely label; its request is held, settled and in the ledger."""

    async def scenario() -> None:
        scored = httpx.post(f"{encoder}/predict", json={"inputs": "the film was good"}).json()
        likely = max(scored, key=lambda one: one["score"])
        judge = Scripted()
        judge.url = encoder
        topic = {"deployment": "judge", "above": likely["score"] - 0.001, "within": "20s"}
        rules = [{"classifier": "topic", "labels": [likely["label"]], "deployments": ["b"]}]
        async with (
            Scripted(always=said()) as a, Scripted(always=said()) as b,
            GatewayHarness(
                tmp_path, {"a": a, "b": b, "judge": judge}, classifiers={"topic": topic},
                route={"deployments": ["a"], "rules": rules}, budgets=[{"usd": 1}],
            ) as harness,
        ):  # fmt: skip
            answer = await harness.ask(chat("the film was good"))
            assert answer.header("x-tonnage-deployment") == "b"
            assert answer.header("x-tonnage-class") == f"topic={likely['label']}"
            assert [(row["deployment"], row["outcome"]) for row in await harness.rows()] == [
                ("judge", "classifier"), ("b", "ok"),
            ]  # fmt: skip
            assert harness.book.open_holds == 0

    play(scenario())
