"""A gateway in one event loop, before scripted upstreams: each request gets the next answer of its script."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tonnage.encryption.data_keys import DataKeys
from tonnage.gateway.file.reading import load_gateway
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.gateway.proxy.handler import RequestHandler
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.server import ProxyServer
from tonnage.gateway.signing import make_signer
from tonnage.http.pool import HttpAnswer, HttpPool, read_endpoint, request_bytes

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
USAGE = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}


def whole(body: Any, status: int = 200, **headers: str) -> Answer:
    """A whole answer, JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{lines}\r\n"
        writer.write(head.encode() + data)

    return answer


def said(text: str = "hello", usage: Any = USAGE) -> Answer:
    """A chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return whole({"object": "chat.completion", "choices": [choice], "usage": usage})


def late(answer: Answer, seconds: float) -> Answer:
    """The same answer, later."""

    async def delayed(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await answer(writer)

    return delayed


def event(content: Any) -> bytes:
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


def streamed(*pieces: bytes, cut: bool = False, pause_s: float = 0.0) -> Answer:
    """A stream in these pieces; `cut`: the connection closes in its middle."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause_s)
        if cut:
            writer.close()
        else:
            writer.write(b"0\r\n\r\n")

    return answer


def words(count: int, usage: Any = USAGE, *, end: bool = True) -> tuple[bytes, ...]:
    """The events of a chat stream."""
    found = [
        event({"choices": [{
            "index": 0, "delta": {"content": f"w{one}"}, "finish_reason": "stop" if one == count - 1 else None,
        }]})
        for one in range(count)
    ]  # fmt: skip
    found.append(event({"choices": [], "usage": usage}) if usage else b"")
    return (*(one for one in found if one), *((event(b"[DONE]"),) if end else ()))


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """The connection closes before an answer."""
    writer.close()


async def silence(_: asyncio.StreamWriter) -> None:
    """Nothing comes."""
    await asyncio.sleep(30)


class Scripted:
    """An upstream. `seen`: the bodies it was sent, in order."""

    def __init__(self, *answers: Answer, always: Answer | None = None) -> None:
        self.answers, self.always = deque(answers), always
        self.seen: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.heads: list[str] = []
        self.url = ""
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for one in tuple(self._clients):
            one.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(line.split(":")[1]) for line in head.lower().splitlines() if "content-length" in line)
                body = await reader.readexactly(length)
                self.heads.append(head)
                self.raw.append(body)
                self.seen.append(json.loads(body))
                answer = self.answers.popleft() if self.answers else self.always
                assert answer is not None, "the script is at its end"
                await answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client or the scenario has ended
        finally:
            self._clients.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


class GatewayHarness:
    """`async with GatewayHarness(folder, {"a": upstream, ...}, **keys of the file)`: `ask` sends a body to the gateway.

    `EXPRESS` False: requests are carried by journeys from their beginning, as those that need more are.
    """

    EXPRESS = True
    STATE_KEYS: DataKeys | None = None

    def __init__(self, folder: Path, upstreams: dict[str, Scripted], **file: Any) -> None:
        self.folder, self.upstreams, self.file = folder, upstreams, file
        self.measures = GatewayMeasures()

    async def __aenter__(self) -> Self:
        price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0, "source": "a test"}
        own = self.file.pop("each", {})
        deployments = {
            name: {"url": one.url, "model": "upstream-model", "price": price, **own, **self.file.pop(name, {})}
            for name, one in self.upstreams.items()
        }
        routes = {"chat": {"deployments": list(deployments)} | self.file.pop("route", {})} | self.file.pop("more", {})
        path = self.folder / "gateway.yaml"
        path.write_text(json.dumps({"deployments": deployments, "routes": routes, **self.file}), encoding="utf-8")
        self.gateway = load_gateway(
            path, home=self.folder, environment={"KEY_A": "secret-a", "KEY_B": "secret-b"},
            catalog_rates=_unused, planned_speeds=_unused,
        )  # fmt: skip
        self.gateway = replace(self.gateway, state_keys=self.STATE_KEYS)
        self.accounts = SharedAccounts(self.gateway.store)
        self.book = SpendBook(self.accounts, self.folder / "journals")
        await self.book.open()
        self.running = Running(self.gateway, self.measures, make_signer)
        self.handler = RequestHandler(self.running, self.book, self.measures, _no_page)
        self.server = ProxyServer(
            self.handler.handle,
            int(self.gateway.listen.body_mb * 1e6),
            self.handler.express.take if self.EXPRESS else None,
        )
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        await self.server.listen(listening)
        self.pool = HttpPool(read_endpoint(f"http://127.0.0.1:{self.port}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.pool.close()
        await self.server.drain(1.0)
        await self.handler.finish(0.0)
        await self.book.close()
        self.running.close()

    async def ask(self, body: Any = None, path: str = "/v1/chat/completions", **headers: str) -> HttpAnswer:
        """A request; by default a short chat."""
        data = body if isinstance(body, bytes) else json.dumps(chat() if body is None else body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = request_bytes(read_endpoint(f"http://127.0.0.1:{self.port}"), path, data, named)
        return await self.pool.send(request, timeout_s=20)

    async def rows(self) -> list[dict[str, Any]]:
        """The ledger so far."""
        await self.book.flush()
        return await self.book.ledger()


def chat(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "chat", "max_tokens": 10, "messages": [{"role": "user", "content": text}]} | more


def play(scenario: Awaitable[None]) -> None:
    """Run a scenario in an event loop of its own."""

    async def run() -> None:
        await asyncio.wait_for(scenario, 30)

    asyncio.run(run())


async def _no_page(_: str) -> None:
    return None


def _unused(_: object) -> Any:
    raise AssertionError("no price of a catalog is asked for")


async def until(true: Callable[[], object]) -> None:
    """Looks again and again, for as long as a scenario may take."""
    while not true():
        await asyncio.sleep(0.005)


async def spoken(port: int, body: Any, **headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the gateway over which a chat was sent; the caller closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n"
    writer.write(head % (len(data), more) + data)
    return reader, writer
