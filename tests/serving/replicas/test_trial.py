"""New versions on trial: the judgement, and real replicas updated under load, good ones and bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.serving.replicas.test_service import echo, run, served, settings, until

from tonnage.errors import TonnageError
from tonnage.serving.engines.engine import EngineCommand
from tonnage.serving.replicas.replica import SmokeTest
from tonnage.serving.replicas.trial import SeatCounts, TrialRules, judge

RULES = TrialRules(window_s=1.5, share=0.3)


def counts(answers: int, took_s: float = 0.1, errors: int = 0) -> SeatCounts:
    found = SeatCounts(errors=errors)
    for _ in range(answers):
        found.note(took_s, error=False)
    return found


@pytest.mark.parametrize(
    ("new", "old", "rules", "elapsed_s", "decision", "why"),
    [
        (counts(9), counts(9), RULES, 1.0, "wait", "9 answers in 1 s"),
        (counts(100), counts(100), RULES, 2.0, "go on", "p95 100.0 ms over 100 answers, 0 failed"),
        (counts(3, errors=2), counts(9), RULES, 0.1, "back", "2 of its 5 answers failed"),
        (counts(199, errors=1), counts(9), RULES, 2.0, "go on", "1 failed"),
        (counts(3, errors=1), counts(9), RULES, 6.0, "back", "1 of only 4 answers failed"),
        (counts(3), counts(9), RULES, 2.0, "wait", "too few to judge"),
        (counts(0), counts(9), RULES, 2.0, "go on", "0 answers"),
        (counts(3), counts(9), RULES, 6.0, "go on", "too few for a percentile"),
        (counts(100, 0.16), counts(100), RULES, 2.0, "back", "above 1.5 times that of the old version, 100.0 ms"),
        (counts(100, 0.16), counts(5), RULES, 2.0, "go on", "p95 160.0 ms"),
        (counts(100, 0.16), counts(5), replace(RULES, p95_s=0.15), 2.0, "back", "the promise of 150.0 ms"),
        (counts(100, 0.16), counts(5), replace(RULES, predicted_high_s=0.15), 2.0, "back", "predicted band"),
    ],
)  # fmt: skip
def test_the_judgement(
    new: SeatCounts, old: SeatCounts, rules: TrialRules, elapsed_s: float, decision: str, why: str
) -> None:
    """Errors send it back at once, time at the end of the window."""
    found = judge(new, old, rules, elapsed_s=elapsed_s)
    assert found.decision == decision
    assert why in found.why


def missing(name: str, port: int) -> EngineCommand:
    return EngineCommand(engine=name, argv=("/no/such/program",), host="127.0.0.1", port=port, health="/")


def version(name: str, **other: str) -> Callable[[str, int], EngineCommand]:
    plain = echo()
    env = (("ECHO_VERSION", name), *other.items())
    return lambda replica, port: replace(plain(replica, port), env=env)


async def asked_on(client: httpx.AsyncClient, stop: asyncio.Event) -> list[httpx.Response]:
    """Requests one after another by eight clients until `stop`."""

    async def one() -> list[httpx.Response]:
        found = []
        while not stop.is_set():
            found.append(await client.post("/work?s=0.01", content=b"x"))
        return found

    return [answer for part in await asyncio.gather(*(one() for _ in range(8))) for answer in part]


def test_a_good_version_under_load(tmp_path: Path) -> None:
    """No request fails; on trial it has its share, then all replicas are of it."""

    async def work() -> None:
        async with served(settings(2, 2), tmp_path, version("old")) as (service, client):
            stop = asyncio.Event()
            under_load = asyncio.ensure_future(asked_on(client, stop))
            await asyncio.sleep(0.3)
            before = {one.name for one in service.replicas.replicas.values()}
            await service.replicas.update(version("new"), RULES)
            await asyncio.sleep(0.3)
            stop.set()
            answers = await under_load
            assert {one.status_code for one in answers} == {200}
            assert before.isdisjoint(one.name for one in service.replicas.live)
            assert (await client.post("/work")).json()["version"] == "new"
            assert all(one.seat.share is None and one.seat.counts is None for one in service.replicas.live)
            assert service.replicas.count("ready") == 2

    run(work())


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"ECHO_STATUS": "500"}, "answers failed"),
        ({"ECHO_SLOWER_S": "0.2"}, "above 1.5 times that of the old version"),
    ],
)
def test_a_bad_version_goes_back_by_itself(tmp_path: Path, bad: dict[str, str], why: str) -> None:
    """Errors of a version on trial are asked of the old one, so that no client sees one; then it is gone."""

    async def work() -> None:
        async with served(settings(2, 2), tmp_path, version("old")) as (service, client):
            stop = asyncio.Event()
            under_load = asyncio.ensure_future(asked_on(client, stop))
            await asyncio.sleep(0.3)
            before = {one.name for one in service.replicas.live}
            with pytest.raises(TonnageError, match=why):
                await service.replicas.update(version("bad", **bad), RULES)
            await until(lambda: len(service.replicas.replicas) == 2)
            stop.set()
            answers = await under_load
            assert {one.status_code for one in answers} == {200}
            assert {one.name for one in service.replicas.live} == before
            assert {(await client.post("/work")).json()["version"] for _ in range(8)} == {"old"}
            await service.replicas.update(version("next"), replace(RULES, window_s=0.2))  # another one may be tried
            assert (await client.post("/work")).json()["version"] == "next"

    run(work())


def test_a_version_that_fails_its_smoke_test_gets_no_request(tmp_path: Path) -> None:
    """It is asked before it takes requests; its answer is in the message. One that dies on trial goes back too."""

    async def work() -> None:
        asked = settings(1, 1, smoke=SmokeTest(path="/work", body=b"{}"))
        async with served(asked, tmp_path, version("old")) as (service, client):
            said: list[str] = []
            service.replicas.say = said.append
            for bad in (version("bad", ECHO_STATUS="503"), missing):
                with pytest.raises(TonnageError):
                    await service.replicas.update(bad, RULES)
                await until(lambda: len(service.replicas.replicas) == 1)
                assert (await client.post("/work")).json()["version"] == "old"
            assert any("answers the smoke test /work with 503" in line for line in said)

    run(work())
