"""`python -m tonnage.gateway.worker`: one process of a gateway, started by `tonnage.gateway.processes`.

The parent hands over listening sockets, and sends the gateway through this process's standard input: the first one to
begin with, others to go on with. When the input ends, the parent has gone: requests under way are answered, then it
ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import struct
import sys
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from time import monotonic, time
from typing import Final

import orjson

from tonnage.errors import TonnageError
from tonnage.files import write_whole
from tonnage.gateway.batch_api.endpoints import BatchEndpoints
from tonnage.gateway.batch_api.store import BatchStore
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.measures import GatewayMeasures, Labels, added_up, prometheus_text
from tonnage.gateway.money.accounts_of import accounts_of
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.shared_accounts import AccountState
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.observing.observer import Observer
from tonnage.gateway.observing.request_log import RequestLogWriter
from tonnage.gateway.observing.spans import SpanWriter
from tonnage.gateway.proxy.handler import RequestHandler
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.server import ClientExchange, ProxyServer
from tonnage.gateway.signing import make_signer
from tonnage.gateway.status import (
    SamplesByAllowance,
    allowance_states,
    forecast_gauges,
    status_document,
    worker_state,
)
from tonnage.values import dataclass

SIZE: Final = struct.Struct("!I")
GC_ALLOCATIONS: Final = 20_000
ORDERS: Final = 0  # the descriptor that the parent writes to
TICK_S: Final = 1.0
STALE_S: Final = 10.0  # measures that are older are of a worker that was killed
HOUR_S: Final = 3600.0
SAMPLES_HELD_S: Final = 60.0
DAY_S: Final = 86_400.0
LAST_READS_S: Final = 5.0  # after the drain, for answers that are read to their end without a client


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTask:
    """What the parent sends: a gateway, where its files lie, and the descriptors of its sockets."""

    gateway: Gateway
    folder: str
    sockets: tuple[int, ...]  # for clients, and maybe for the pages
    number: int
    batch_secret: str | None = None  # of the runner of batches, where there is one


def measures_file(folder: Path, pid: int) -> Path:
    """Where the worker of that process writes its counts, from when it serves until it ends."""
    return folder / "measures" / f"{pid}.json"


def serves(folder: Path, pid: int) -> bool:
    """Whether the worker of that process has begun to serve."""
    return measures_file(folder, pid).exists()


class Worker:
    """All parts of a worker, in one event loop."""

    def __init__(self, task: WorkerTask) -> None:
        self.task, self.folder = task, Path(task.folder)
        self.measures = GatewayMeasures()
        durable = task.gateway.durable
        accounts = accounts_of(task.gateway)
        self.book = SpendBook(accounts, self.folder / "journals", durable=durable, say=say)
        self.running = Running(task.gateway, self.measures, make_signer)
        self.handler = RequestHandler(self.running, self.book, self.measures, self.page)
        self.handler.observer = self._observer(task.gateway)
        if task.batch_secret is not None:
            self.handler.batches = BatchEndpoints(BatchStore(self.folder / "batches"), task.batch_secret)
        self.servers: list[ProxyServer] = []
        self._stopped = asyncio.Event()
        self.begun_s = monotonic()
        self._measured = measures_file(self.folder, os.getpid())
        self._samples: SamplesByAllowance = {}
        self._samples_until_s = 0.0

    async def serve(self) -> None:
        """Until SIGTERM, or until the parent is gone. Raises TonnageError where the accounts cannot be opened."""
        loop = asyncio.get_running_loop()
        lost = await self.book.open()
        if lost:
            say(f"{lost} requests were under way when a worker was killed; they are charged by estimate")
        await asyncio.to_thread(self._sign_in)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        listen = self.task.gateway.listen
        most_bytes = int(listen.body_mb * 1e6)
        servers = [ProxyServer(self.handler.handle, most_bytes, self.handler.express.take)]
        servers.append(ProxyServer(self._pages_alone, most_bytes))
        self.servers = servers[: len(self.task.sockets)]
        for server, file in zip(self.servers, self.task.sockets, strict=True):
            await server.listen(socket.socket(fileno=file))
        ticks = asyncio.ensure_future(self._tick())
        orders = asyncio.ensure_future(self._obey())
        tidying = asyncio.ensure_future(self._tidy())
        try:
            await self._stopped.wait()
            await asyncio.gather(*(server.drain(listen.drain) for server in self.servers))
        finally:
            ticks.cancel()
            orders.cancel()
            tidying.cancel()
            await self.handler.finish(LAST_READS_S)
            await self.book.close()
            self.running.close()
            if self.running.shared_cache is not None:
                await self.running.shared_cache.close()
            if self.handler.observer is not None:
                await asyncio.to_thread(self.handler.observer.close)
            self._measured.unlink(missing_ok=True)

    def _sign_in(self) -> None:
        """Ask for every token once, so that no request waits for one. A deployment that cannot be signed in to is
        reported, and tried again when it is asked."""
        for name, signer in self.running.signers.items():
            try:
                signer.headers("POST", self.running.gateway.deployments[name].endpoint.url, b"", time())
            except TonnageError as error:
                say(f"{name} cannot be signed in to: {error}")

    def stop(self) -> None:
        """Take no more requests, answer those under way."""
        self.handler.draining = True
        self._stopped.set()

    def reload(self, gateway: Gateway) -> None:
        """Requests from now on follow the new file; those under way keep the old one. One that cannot be followed is
        reported and counted, and the old one stays."""
        before = self.running
        try:
            found = Running(gateway, self.measures, make_signer, before)
            observer = self._observer(gateway, before)
            self.handler.follow(found)
        except Exception as error:  # also of a provider's library: whatever it is, later files must be followed
            self.measures.count("tonnage_gateway_reloads_total", (("result", "refused"),))
            say(f"error: worker {self.task.number} cannot follow the changed file, the old one stays: {error}")
            return
        self.measures.count("tonnage_gateway_reloads_total", (("result", "followed"),))
        self.running = found
        if observer is not self.handler.observer:
            if self.handler.observer is not None:
                asyncio.get_running_loop().run_in_executor(None, self.handler.observer.close)
            self.handler.observer = observer
        before.retire(found.upstreams)
        if before.shared_cache is not None and before.shared_cache is not found.shared_cache:
            asyncio.ensure_future(before.shared_cache.close())  # noqa: RUF006 - its end is not awaited
        self.book.follow_changed_caps()

    def _observer(self, gateway: Gateway, before: Running | None = None) -> Observer | None:
        """Who looks at requests; the same one as before where nothing of it has changed. Raises InputError."""
        wanted = (gateway.request_log, gateway.spans, gateway.spans_headers, gateway.state_keys)
        known = None if before is None else before.gateway
        if known is not None and (known.request_log, known.spans, known.spans_headers, known.state_keys) == wanted:
            return self.handler.observer
        if gateway.request_log is None and gateway.spans is None:
            return None
        log = None
        if gateway.request_log is not None:
            log = RequestLogWriter(gateway.request_log, self.measures, say, keys=gateway.state_keys)
        spans = None
        if gateway.spans is not None:
            spans = SpanWriter(gateway.spans, gateway.spans_headers, self.measures, say)
        return Observer(log, spans)

    # pages

    async def page(self, path: str) -> tuple[int, bytes, bytes] | None:
        """The gateway's own pages; on a port that others reach, only those without figures."""
        match path:
            case "/health":
                return 200, b"application/json", b'{"status":"ok"}'
            case "/ready":
                ready = not self.handler.draining and self.book.failing is None
                return (
                    (200 if ready else 503),
                    b"application/json",
                    orjson.dumps({"ready": ready, "accounts": str(self.book.failing or "ok")}),
                )
            case "/metrics" | "/gateway" if self._open_pages:
                return self._figures(path, *await self._states())
        return None

    async def _states(self) -> tuple[list[AccountState] | AccountsError, SamplesByAllowance]:
        """The accounts, and the samples that forecasts rest on; these are read once a minute."""
        try:
            states = await self.book.states()
            if monotonic() >= self._samples_until_s:
                self._samples, self._samples_until_s = await self.book.samples(), monotonic() + SAMPLES_HELD_S
        except AccountsError as error:
            return error, {}
        return states, self._samples

    async def _pages_alone(self, exchange: ClientExchange) -> None:
        """The same pages on a port of their own, with the figures."""
        path, figures = exchange.path, exchange.path in ("/metrics", "/gateway")
        found: tuple[int, bytes, bytes] | None
        if figures and not self._may_read(exchange):
            found = 401, b"text/plain", b"`Authorization: Bearer KEY` with the key of listen.admin_key"
        else:
            found = self._figures(path, *await self._states()) if figures else await self.page(path)
        if found is None or exchange.method not in (b"GET", b"HEAD"):
            found = 404, b"text/plain", b"/health, /ready, /metrics, /gateway"
        exchange.answer(found[0], b"content-type: %b\r\n" % found[1], found[2])

    def _may_read(self, exchange: ClientExchange) -> bool:
        wanted = self.running.gateway.admin_key
        if wanted is None:
            return True
        given = next((value for name, value in exchange.headers if name == b"authorization"), b"")
        key = given[7:].strip() if given[:7].lower() == b"bearer " else b""
        return compare_digest("blake2b:" + blake2b(key, digest_size=32).hexdigest(), wanted)

    @property
    def _open_pages(self) -> bool:
        listen = self.running.gateway.listen
        return listen.admin_port is None and listen.host in ("127.0.0.1", "::1", "localhost")

    def _figures(
        self, path: str, states: list[AccountState] | AccountsError, samples: SamplesByAllowance
    ) -> tuple[int, bytes, bytes]:
        import psutil

        self._measure()
        found = {file: orjson.loads(file.read_bytes()) for file in sorted(self._measured.parent.glob("*.json"))}
        documents, now_s = list(found.values()), time()
        living = [
            one for file, one in found.items() if now_s - one["at_s"] < STALE_S and psutil.pid_exists(int(file.stem))
        ]
        if path == "/metrics":
            gauges: dict[tuple[str, Labels], float] = {}
            for document in living:
                for name, labels, amount in document["gauges"]:
                    place = (name, tuple((one, other) for one, other in labels))
                    gauges[place] = gauges.get(place, 0.0) + amount
            if not isinstance(states, AccountsError):
                gauges |= forecast_gauges(allowance_states(self.running.gateway, states, samples, now_s))
            return 200, b"text/plain; version=0.0.4", prometheus_text(added_up(documents), gauges).encode()
        document = status_document(self.running, now_s, living, documents, states, samples)
        return 200, b"application/json", orjson.dumps(document)

    def _measure(self) -> None:
        """This worker's measures to their file, where the pages of all workers find them."""
        state = worker_state(self.running, self.handler.attempts, len(self.handler.waiting))
        gauges = [
            ["tonnage_gateway_under_way", [["deployment", name]], number] for name, number in state["under_way"].items()
        ]
        gauges += [
            ["tonnage_gateway_open_holds", [], self.book.open_holds],
            ["tonnage_gateway_waiting", [], state["waiting"]],
            ["tonnage_gateway_uncertain_holds", [], self.handler.uncertain],
        ]
        document = {**self.measures.document(), **state, "gauges": gauges, "at_s": time()}
        with suppress(OSError):  # a full disk: the figures of this second are missing, requests go on
            self._measured.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._measured, orjson.dumps(document), durable=False)

    # beside the requests

    async def _tick(self) -> None:
        """Each second: measures to their file, clients that never send their headers let go, tokens renewed."""
        while True:
            await asyncio.sleep(TICK_S)
            self._measure()
            self.handler.sweep()
            for server in self.servers:
                server.sweep()
            for name, signer in self.running.signers.items():
                signer.renew(self.running.gateway.deployments[name].endpoint.url, time())

    async def _tidy(self) -> None:
        """Each hour: attempts that are older than the file keeps them leave the ledger."""
        while True:
            await asyncio.sleep(HOUR_S)
            with suppress(AccountsError):  # /ready reports it; tried again
                await self.book.forget_before(time() - self.running.gateway.log_days * DAY_S)
                await self.handler.repeats.forget()

    async def _obey(self) -> None:
        """Gateways that the parent sends, until it is gone."""
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ORDERS, "rb", 0, closefd=False)
        )
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = SIZE.unpack(await reader.readexactly(SIZE.size))[0]
                task: WorkerTask = pickle.loads(await reader.readexactly(size))
                self.reload(task.gateway)
        self.stop()


def read_order(file: int) -> bytes | None:
    """One order of the parent from a pipe and not a byte more: the next one may be in it already. None at its end."""

    def read(size: int) -> bytes:
        pieces = b""
        while len(pieces) < size and (piece := os.read(file, size - len(pieces))):
            pieces += piece
        return pieces

    header = read(SIZE.size)
    if len(header) < SIZE.size:
        return None
    size = SIZE.unpack(header)[0]
    order = read(size)
    return order if len(order) == size else None


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201


def main() -> int:
    """Exit codes as the command line's."""
    import uvloop

    order = read_order(ORDERS)
    if order is None:
        return 1
    task: WorkerTask = pickle.loads(order)
    gc.collect()
    gc.freeze()  # what is loaded stays: the collector need not look at it again and again
    gc.set_threshold(GC_ALLOCATIONS, 20, 20)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Worker(task).serve())
    except TonnageError as error:
        say(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
