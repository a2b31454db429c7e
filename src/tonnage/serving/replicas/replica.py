"""One replica: its process, its seat at the balancer, its connections."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import field
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from tonnage.errors import TonnageError
from tonnage.http.connection import UpstreamFault
from tonnage.http.upstream import Upstream
from tonnage.serving.engines.engine import EngineCommand
from tonnage.serving.engines.processes import EngineProcess, kill_engine, left_of, start_engine, stop_engine
from tonnage.serving.replicas.balancer import Seat
from tonnage.values import dataclass

POLL_S: Final = 0.1
ASK_TIMEOUT_S: Final = 10.0
SHOWN_BYTES: Final = 300
ReplicaState = Literal["starting", "ready", "draining", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTest:
    """A request that a new replica must answer with 200."""

    path: str
    body: bytes = b""
    method: str = "POST"
    timeout_s: float = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class Replica:
    """A replica from its start to its end."""

    name: str
    version: int
    running: EngineProcess
    seat: Seat
    upstream: Upstream
    state: ReplicaState = "starting"
    ready_s: float | None = None  # from its start until it took requests
    unhealthy: int = 0  # failed looks in a row
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def exit_code(self) -> int | None:
        """None while its process runs."""
        return self.running.process.poll()

    async def wait_ready(self, timeout_s: float) -> float:
        """Seconds from its start until it takes requests; TonnageError where it ends first or takes too long."""
        while True:
            if await self.healthy():
                return monotonic() - self.running.started_at
            if self.exit_code is not None:
                raise TonnageError(f"replica {self.name} ended with {self.exit_code} before it was ready",
                                   hint=f"its log: {self.running.log_file}")  # fmt: skip
            if monotonic() - self.running.started_at > timeout_s:
                raise TonnageError(f"replica {self.name} is not ready after {timeout_s:g} s",
                                   hint=f"its log: {self.running.log_file}")  # fmt: skip
            await asyncio.sleep(POLL_S)

    async def healthy(self) -> bool:
        """Whether it answers 200 at its health path now."""
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                answer = await self.upstream.ask("GET", self.running.command.health.encode(), (), b"")
                while await answer.read() is not None:
                    pass
        except (UpstreamFault, TimeoutError):
            return False
        return answer.status == 200

    async def pass_smoke_test(self, smoke: SmokeTest) -> None:
        """One real request before all others. TonnageError where it is not answered with 200."""
        head = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(smoke.body)))
        try:
            async with asyncio.timeout(smoke.timeout_s):
                answer = await self.upstream.ask(smoke.method, smoke.path.encode(), head, smoke.body)
                said = b""
                while (piece := await answer.read()) is not None:
                    said += piece
        except (UpstreamFault, TimeoutError) as error:
            raise TonnageError(f"replica {self.name} does not answer the smoke test {smoke.path}: {error}",
                               hint=f"its log: {self.running.log_file}") from error  # fmt: skip
        if answer.status != 200:
            raise TonnageError(
                f"replica {self.name} answers the smoke test {smoke.path} with {answer.status}: "
                f"{said[:SHOWN_BYTES].decode(errors='replace')}", hint=f"its log: {self.running.log_file}",
            )  # fmt: skip

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, SIGKILL after `grace_s`; its connections are closed."""
        self.state = "gone"
        await asyncio.to_thread(stop_engine, self.running, grace_s=grace_s)
        self.upstream.close()

    def kill(self) -> None:
        """SIGKILL to its process group; it is not waited for."""
        kill_engine(self.running)

    async def left(self) -> frozenset[int]:
        """The pids of it and its workers that are still there."""
        return await asyncio.to_thread(left_of, self.running)


def start_replica(name: str, version: int, command: EngineCommand, folder: Path, slots: int) -> Replica:
    """Start the command; it is not ready yet. Raises as `start_engine` does."""
    running = start_engine(command, folder / name)
    return Replica(
        name=name, version=version, running=running, seat=Seat(name, slots),
        upstream=Upstream.at(command.host, command.port),
    )  # fmt: skip


def free_port(host: str) -> int:
    """A port of this machine that nothing listens on now."""
    with socket.socket() as tried:
        tried.bind((host, 0))
        return int(tried.getsockname()[1])
