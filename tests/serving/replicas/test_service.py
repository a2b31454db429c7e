"""Real replicas behind the balancer: killed, drained, updated, scaled, and no request lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tonnage.errors import TonnageError
from tonnage.scaling.service import ScaledService
from tonnage.serving.engines.devices import Device
from tonnage.serving.engines.engine import EngineCommand
from tonnage.serving.listening import listening_socket
from tonnage.serving.replicas.raised import RAISED, Raised, clear_raised, write_raised
from tonnage.serving.replicas.service import ReplicatedService, Service, serve_replicas

for needed in ("uvicorn", "httptools"):
    pytest.importorskip(needed)
SERVER = Path(__file__).with_name("echo_server.py")


def echo(ready_after_s: float = 0.0, program: Path = SERVER) -> Callable[[str, int], EngineCommand]:
    def render(name: str, port: int) -> EngineCommand:
        del name
        return EngineCommand(
            engine="echo", argv=(sys.executable, str(program), str(port), str(ready_after_s)), host="127.0.0.1",
            port=port, health="/health",
        )  # fmt: skip

    return render


def settings(least: int = 2, most: int = 4, *, slots: int = 4, **other: Any) -> ReplicatedService:
    scaled = ScaledService(slots=slots, start_up_s=1.0, promise_s=0.5, least=least, most=most)
    return ReplicatedService(scaled=scaled, port=0, **other)


@asynccontextmanager
async def served(
    asked: ReplicatedService, folder: Path, render: Callable[[str, int], EngineCommand] | None = None
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """The service, listening; a client of it."""
    begun: asyncio.Future[tuple[Service, int]] = asyncio.get_running_loop().create_future()
    work = asyncio.ensure_future(
        serve_replicas(asked, render or echo(), folder, lambda _: None, on_begin=lambda *found: begun.set_result(found))
    )
    await asyncio.wait((begun, work), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        await work
    service, port = begun.result()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30, limits=httpx.Limits(max_connections=200)
        ) as client:
            await until(lambda: service.replicas.count("ready") >= max(asked.scaled.least, 1))
            yield service, client
    finally:
        service.stop()
        await asyncio.wait_for(work, 30)


async def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.02)


def run(work: Awaitable[None]) -> None:
    async def whole() -> None:
        await work

    asyncio.run(whole())


def pids(service: Service) -> list[int]:
    return [one.running.process.pid for one in service.replicas.replicas.values() if one.state == "ready"]


async def load(client: httpx.AsyncClient, count: int, gap_s: float, work_s: float) -> list[httpx.Response]:
    async def one(number: int) -> httpx.Response:
        await asyncio.sleep(number * gap_s)
        return await client.post(f"/work?s={work_s}", content=b"x" * 100)

    return list(await asyncio.gather(*(one(number) for number in range(count))))


def test_requests_are_spread_and_answered(tmp_path: Path) -> None:
    """Both replicas work; the service's own pages say so; an unknown path is the replicas'."""

    async def work() -> None:
        async with served(settings(2, 2), tmp_path) as (service, client):
            answers = await load(client, 40, 0.005, 0.05)
            assert {one.json()["pid"] for one in answers} == set(pids(service))
            assert all(one.json()["bytes"] == 100 for one in answers)
            assert (await client.get("/ready")).json() == {"ready": 2}
            assert (await client.get("/health")).status_code == 200
            assert "tonnage_requests_finished_total 40" in (await client.get("/metrics")).text
            found = (await client.get("/replicas")).json()
            assert [one["state"] for one in found["replicas"]] == ["ready", "ready"]

    run(work())


def test_a_killed_replica_loses_no_request(tmp_path: Path) -> None:
    """kill -9 under load: what it was doing is done by another one, and a new one takes its place."""

    async def work() -> None:
        async with served(settings(2, 2), tmp_path) as (service, client):
            under_way = asyncio.ensure_future(load(client, 120, 0.01, 0.1))
            replica = next(iter(service.replicas.replicas.values()))
            await until(lambda: replica.seat.in_flight > 0)
            victim = replica.running.process.pid
            os.kill(victim, signal.SIGKILL)
            answers = await under_way
            assert [one.status_code for one in answers] == [200] * 120
            assert service.balancer.counts.retried >= 1
            await until(lambda: service.replicas.count("ready") == 2)
            assert victim not in pids(service)
            assert service.replicas.restarts == 1

    run(work())


def test_a_replica_that_dies_within_an_answer_costs_nothing(tmp_path: Path) -> None:
    """The head and a part of the body were there: as nothing had gone out, another replica answers."""

    async def work() -> None:
        async with served(settings(), tmp_path) as (service, client):
            answer = await client.post(f"/die?once={tmp_path / 'once'}", content=b"x")
            assert answer.json() == {"alive": True}
            assert service.balancer.counts.retried == 1

    run(work())


def test_streams_pass_piece_by_piece(tmp_path: Path) -> None:
    """Pieces come as they are sent; a replica that dies in a stream ends it visibly."""

    async def work() -> None:
        async with served(settings(), tmp_path) as (service, client):
            times = []
            async with client.stream("POST", "/stream?n=4&s=0.1") as answer:
                async for line in answer.aiter_lines():
                    if line:
                        times.append(asyncio.get_running_loop().time())
            assert len(times) == 4
            assert times[-1] - times[0] > 0.2
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post("/stream?n=4&s=0.02&die=1")
            assert service.balancer.counts.failed == 1

    run(work())


def test_what_is_full_says_when_to_come_again(tmp_path: Path) -> None:
    """Beyond the queue's limit 429 with Retry-After; what waits too long 503."""

    async def work() -> None:
        asked = settings(1, 1, slots=1, most_waiting=2, longest_wait_s=0.6)
        async with served(asked, tmp_path) as (service, client):
            answers = sorted(await load(client, 6, 0.01, 1.0), key=lambda one: one.status_code)
            assert [one.status_code for one in answers] == [200, 429, 429, 429, 503, 503]
            assert int(answers[1].headers["retry-after"]) >= 1
            assert answers[1].json()["error"]["type"] == "queue_full"
            assert answers[5].json()["error"]["type"] == "no_slot_in_time"
            assert service.balancer.counts.refused == 5

    run(work())


def test_scaling_down_drains(tmp_path: Path) -> None:
    """Four replicas at work, one wanted: three finish what they do, then end; all answers come."""

    async def work() -> None:
        async with served(settings(4, 4), tmp_path) as (service, client):
            assert service._scaler is not None
            service._scaler.cancel()
            under_way = asyncio.ensure_future(load(client, 16, 0.0, 0.6))
            await until(lambda: service.balancer.running == 16)
            service.replicas.scale_to(1)
            assert service.replicas.count("draining") == 3
            answers = await under_way
            assert [one.status_code for one in answers] == [200] * 16
            await until(lambda: len(service.replicas.replicas) == 1)

    run(work())


def test_it_grows_with_its_queue(tmp_path: Path) -> None:
    """More than one replica can do: the law starts others, and no request fails."""

    async def work() -> None:
        async with served(settings(1, 3, slots=2), tmp_path) as (_, client):
            answers = await load(client, 60, 0.02, 0.2)
            assert {one.status_code for one in answers} == {200}
            assert len({one.json()["pid"] for one in answers}) >= 2

    run(work())


def test_a_rolling_update_fails_no_request(tmp_path: Path) -> None:
    """Under load every replica is replaced; a command that never gets ready leaves the old ones in place."""

    async def work() -> None:
        async with served(settings(2, 2), tmp_path) as (service, client):
            before = pids(service)
            under_way = asyncio.ensure_future(load(client, 100, 0.015, 0.05))
            await service.replicas.update(echo(0.1))
            await until(lambda: len(service.replicas.replicas) == 2)
            answers = await under_way
            assert {one.status_code for one in answers} == {200}
            assert not set(before) & set(pids(service))
            kept = pids(service)
            broken = tmp_path / "broken.py"
            broken.write_text("raise SystemExit(3)\n")
            with pytest.raises(TonnageError, match="did not become ready"):
                await service.replicas.update(echo(program=broken))
            assert set(kept) <= set(pids(service))
            assert (await client.post("/work")).status_code == 200

    run(work())


@pytest.mark.slow
def test_replicas_with_devices_of_their_own_are_updated(tmp_path: Path) -> None:
    """Two replicas on all two devices: each has its own; an update drains one before its successor gets the device,
    and no request fails; a killed one's device goes to the next."""
    devices = tuple((Device(index=index, uuid=f"GPU-{index}", model="T4"),) for index in range(2))

    def held(service: Service) -> list[str]:
        replicas = service.document()["replicas"]
        return sorted(name for one in replicas if one["state"] == "ready" for name in one["devices"])

    async def work() -> None:
        async with served(settings(2, 2, devices=devices), tmp_path) as (service, client):
            assert held(service) == ["0", "1"]
            environments = {one.running.command.env for one in service.replicas.live}
            assert environments == {
                (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", name)) for name in "01"
            }
            under_way = asyncio.ensure_future(load(client, 150, 0.015, 0.05))
            await service.replicas.update(echo(0.1))
            assert {one.status_code for one in await under_way} == {200}
            assert held(service) == ["0", "1"]
            os.kill(pids(service)[0], signal.SIGKILL)
            await until(lambda: service.replicas.restarts == 1 and service.replicas.count("ready") == 2)
            assert held(service) == ["0", "1"]

    run(work())


WITH_WORKER = """
import runpy, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".worker", "w").write(str(child.pid))
runpy.run_path({server!r}, run_name="__main__")
"""


def test_devices_are_given_back_after_the_last_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica dies and a worker of it takes its time to end: its device, whose memory the worker holds, goes to the
    next replica only then."""
    monkeypatch.setattr("tonnage.serving.replicas.replica.kill_engine", lambda _: None)  # a SIGKILL not gone through
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "with_worker.py"
    program.write_text(WITH_WORKER.format(server=str(SERVER)))
    devices = ((Device(index=0, uuid="GPU-0", model="T4"),),)

    async def work() -> None:
        async with served(settings(1, 1, devices=devices), tmp_path, echo(program=program)) as (service, _):
            (replica,) = service.replicas.live
            worker = int((tmp_path / f"{replica.running.command.port}.worker").read_text())
            try:
                replica.running.process.kill()
                await until(lambda: service.replicas.restarts == 1)
                assert service.replicas.devices is not None
                assert (service.replicas.devices.free, service.replicas.live) == (0, [])
            finally:
                os.kill(worker, signal.SIGKILL)
            await until(lambda: service.replicas.count("ready") == 1)
            monkeypatch.undo()

    run(work())


def test_what_a_client_gave_up_frees_its_slot(tmp_path: Path) -> None:
    """A client that closes its connection: its request is abandoned, the slot is free again."""

    async def work() -> None:
        async with served(settings(1, 1, slots=1), tmp_path) as (service, client):
            with pytest.raises(httpx.ReadTimeout):
                await client.post("/work?s=20", timeout=0.3)
            await until(lambda: service.balancer.running == 0, 5.0)
            assert service.balancer.counts.abandoned == 1
            assert (await client.post("/work")).status_code == 200

    run(work())


def test_an_engine_that_never_starts_ends_the_service(tmp_path: Path) -> None:
    """Three replicas ended before they were ready: an error that names their logs, no endless loop."""
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no such model')\n")
    said: list[str] = []

    async def work() -> None:
        with pytest.raises(TonnageError, match="no replica became ready"):
            await asyncio.wait_for(serve_replicas(settings(1, 1), echo(program=broken), tmp_path, said.append), 20)

    run(work())
    assert any("no such model" in line for line in said)


def test_a_port_in_use_is_refused() -> None:
    """Before any replica starts, with the hint to name another."""
    taken = listening_socket("127.0.0.1", 0)
    taken.listen()
    with pytest.raises(TonnageError, match="cannot be listened on"):
        listening_socket("127.0.0.1", taken.getsockname()[1])
    taken.close()


def test_the_pages_are_json(tmp_path: Path) -> None:
    """A service without ready replicas is not ready."""
    service = Service(settings(), echo(), tmp_path, lambda _: None)
    page = service.page("/ready")
    assert page is not None
    assert (page[0], json.loads(page[2])) == (503, {"ready": 0})
    assert service.page("/v1/models") is None


def test_it_says_what_it_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replicas at $3.60 an hour: the page, the metrics and who asked for it have the same figures."""
    monkeypatch.setattr("tonnage.serving.replicas.service.METER_S", 0.02)

    async def work() -> None:
        asked = settings(least=2, most=2, usd_per_machine_hour=3.6)
        async with served(asked, tmp_path) as (service, client):
            reported: list[dict[str, Any]] = []
            service.on_costs = reported.append
            await until(lambda: service.replicas.count("ready") == 2)
            await client.post("/work?s=0")
            await until(lambda: any((one["since_start"] or {}).get("requests") == 1.0 for one in reported))
            found = (await client.get("/costs")).json()
            assert (found["machines"], found["usd_per_hour"]) == (2, 7.2)
            assert found["since_start"]["usd"] > 0.0
            assert "tonnage_service_cost_usd_per_hour 7.2" in (await client.get("/metrics")).text

    run(work())


async def _until(held: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not held():
            await asyncio.sleep(0.05)


def test_a_watch_asks_for_replicas_and_fewer_slots_and_takes_it_back(tmp_path: Path) -> None:
    """The file holds while it is there, within the most of the service; what cannot be read changes nothing."""

    async def run() -> None:
        async with served(settings(least=1, most=2), tmp_path) as (service, _):
            await _until(lambda: service.replicas.count("ready") == 1)
            write_raised(tmp_path, Raised(least=5, slots=2))
            await _until(lambda: service.replicas.count("ready") == 2)
            assert service.standing()["slots"] == 2
            assert {one.seat.slots for one in service.replicas.live} == {2}
            (tmp_path / RAISED).write_text("no JSON")
            await asyncio.sleep(3 * service.law.interval_s)
            assert service.standing()["slots"] == 2
            assert service.replicas.wanted == 2
            clear_raised(tmp_path)
            await _until(lambda: service.standing()["slots"] == 4)

    asyncio.run(run())


def test_the_95th_percentile_is_of_the_answers_of_the_last_minute(tmp_path: Path) -> None:
    """Nothing is known of it before twenty answers."""

    async def run() -> None:
        async with served(settings(least=1, most=1), tmp_path) as (service, client):
            await _until(lambda: service.replicas.count("ready") == 1)
            assert service.standing()["p95_s"] is None
            for _ in range(25):
                assert (await client.get("/echo")).status_code == 200
            found = service.standing()["p95_s"]
            assert found is not None
            assert 0.0 < found < 5.0

    asyncio.run(run())


def test_first_tokens_and_each_further_one_are_timed(tmp_path: Path) -> None:
    """Of streams: the first piece after about one wait, events one wait apart; whole answers say nothing of it."""

    async def run() -> None:
        async with served(settings(least=1, most=1), tmp_path) as (service, client):
            await _until(lambda: service.replicas.count("ready") == 1)
            for _ in range(25):
                await client.get("/echo")
            assert (service.standing()["ttft_p95_s"], service.standing()["tpot_p95_s"]) == (None, None)
            for _ in range(5):
                await asyncio.gather(*(client.post("/stream?n=6&s=0.05") for _ in range(5)))
            found = service.standing()
            assert 0.05 <= found["ttft_p95_s"] < found["p95_s"]
            assert 0.05 * 5 / 4 <= found["tpot_p95_s"] < 3.0

    asyncio.run(run())
