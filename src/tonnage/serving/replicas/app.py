"""The balancer's HTTP side: an ASGI application that passes requests to replicas and their answers back.

An answer that is no stream is passed on whole, so a replica that dies in the middle of it has cost nothing: the
request goes to another one. A stream is passed on piece by piece; once a piece is out, a fault ends it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, Final

from tonnage.http.connection import Connection, UpstreamFault
from tonnage.http.upstream import HOP_BY_HOP, Upstream
from tonnage.serving.replicas.balancer import Balancer, NoSlotInTime, QueueFull, Seat, prefix_key
from tonnage.serving.replicas.latencies import AnswerTimes, StreamClock

LARGEST_BODY_BYTES: Final = 64 << 20
LARGEST_HELD_BYTES: Final = 16 << 20  # a larger answer is streamed
TRIES: Final = 4
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class BodyTooLarge(Exception):
    """More bytes than a request may have."""


class ClientGone(Exception):
    """The client closed its connection before its answer was whole."""


class ReplicaApp:
    """`pages` answers the service's own paths (`/health`, `/ready`, `/metrics`, `/replicas`): (status, type, body)."""

    def __init__(
        self,
        balancer: Balancer,
        upstreams: Mapping[str, Upstream],
        pages: Callable[[str], tuple[int, str, bytes] | None],
        *,
        prefix_bytes: int | None = None,
        on_fault: Callable[[str], None] | None = None,
        on_answer: Callable[[float, AnswerTimes], None] | None = None,
        event_per_token: bool = True,
    ) -> None:
        self.balancer, self.upstreams, self.pages, self.prefix_bytes = balancer, upstreams, pages, prefix_bytes
        self.on_fault = on_fault
        self.on_answer = on_answer  # (when it ended, its times): of answers that are whole
        self.event_per_token = event_per_token  # of streams, from the engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        page = self.pages(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if page is not None:
            await _answer(send, page[0], page[1], page[2])
            return
        try:
            body = await _body(receive)
        except BodyTooLarge:
            await _error(send, 413, "body_too_large", f"a request has at most {LARGEST_BODY_BYTES:,} bytes")
            return
        except ClientGone:
            return
        await self._passed_on(scope, receive, send, body)

    async def _passed_on(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """The request through a replica, given up when the client goes."""
        work = asyncio.ensure_future(self._through(scope, send, body))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            await work
        except asyncio.CancelledError:
            if not work.cancelled():
                work.cancel()
                raise
        finally:
            gone.cancel()

    async def _through(self, scope: Scope, send: Send, body: bytes) -> None:
        prefix = prefix_key(body, self.prefix_bytes) if self.prefix_bytes and body else None
        begin_s = monotonic()
        tried: list[str] = []
        fault: UpstreamFault | None = None
        for _ in range(TRIES):
            try:
                seat = await self.balancer.take(prefix, tried, again=bool(tried))
            except QueueFull as full:
                await _error(send, 429, "queue_full", str(full), retry_after_s=full.retry_after_s, place=full.waiting)
                return
            except NoSlotInTime as late:
                await _error(send, 503, "no_slot_in_time", str(late), retry_after_s=late.retry_after_s)
                return
            if tried:
                self.balancer.counts.retried += 1
            tried.append(seat.name)
            begun = _Begun(send, StreamClock(event_per_token=self.event_per_token))
            try:
                await self._on(seat, scope, begun, body)
            except UpstreamFault as error:
                fault = error
                if self.on_fault is not None:
                    self.on_fault(seat.name)
                if begun.yes:
                    self.balancer.counts.failed += 1
                    raise  # uvicorn closes the connection: the client sees that its answer is not whole
                continue
            if self.on_answer is not None:
                first_s, now_s = begun.clock.first_s, monotonic()
                self.on_answer(now_s, AnswerTimes(
                    whole_s=now_s - begin_s, first_s=None if first_s is None else first_s - begin_s,
                    per_token_s=begun.clock.per_token_s,
                ))  # fmt: skip
            return
        self.balancer.counts.failed += 1
        await _error(send, 502, "no_replica_answered", f"{len(tried)} replicas gave no answer: {fault}")

    async def _on(self, seat: Seat, scope: Scope, begun: _Begun, body: bytes) -> None:
        """The request on this replica; its slot is given back whatever happens."""
        begin_s, fault, counted, error = monotonic(), False, True, False
        try:
            upstream = self.upstreams.get(seat.name)
            if upstream is None:
                raise UpstreamFault(f"replica {seat.name} is gone")
            target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
            answer = await upstream.ask(scope["method"], target, scope["headers"], body)
            error = answer.status >= 500
            if error and seat.on_trial:
                answer.abort()
                raise UpstreamFault(f"replica {seat.name}, on trial, answers {answer.status}")
            try:
                await _pass_back(answer, begun)
            except BaseException:
                answer.abort()  # the replica stops writing an answer that is not read
                raise
        except UpstreamFault:
            fault = True
            raise
        except asyncio.CancelledError:
            counted = False
            self.balancer.counts.abandoned += 1
            raise
        finally:
            self.balancer.give_back(seat, monotonic() - begin_s, fault=fault, counted=counted, error=error)


class _Begun:
    """Whether something of the answer has gone out; `clock`: of a stream's pieces."""

    def __init__(self, send: Send, clock: StreamClock) -> None:
        self._send, self.yes, self.clock = send, False, clock

    async def __call__(self, message: dict[str, Any]) -> None:
        self.yes = True
        await self._send(message)


async def _pass_back(answer: Connection, send: _Begun) -> None:
    """The whole answer to the client: held until it is whole, or piece by piece where it streams or is large."""
    head = [(name, value) for name, value in answer.headers if name not in HOP_BY_HOP]
    start = {"type": "http.response.start", "status": answer.status, "headers": head}
    length = answer.length
    held: list[bytes] = []
    size = 0
    streams = answer.streams or (length is not None and length > LARGEST_HELD_BYTES)
    if streams:
        first = await answer.read()  # before it nothing is out, and another replica may still take over
        if first is not None and answer.streams:
            send.clock.note(monotonic(), first)
        await send(start)
        held = [] if first is None else [first]
    while not streams:
        piece = await answer.read()
        if piece is None:
            break
        held.append(piece)
        size += len(piece)
        if size > LARGEST_HELD_BYTES:
            streams = True
            await send(start)
    if not streams:
        await send(start)
        await send({"type": "http.response.body", "body": b"".join(held)})
        return
    if held:
        await send({"type": "http.response.body", "body": b"".join(held), "more_body": True})
    while (piece := await answer.read()) is not None:
        if answer.streams:
            send.clock.note(monotonic(), piece)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > LARGEST_BODY_BYTES:
            raise BodyTooLarge
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def _answer(
    send: Send, status: int, kind: str, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    head = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def _error(
    send: Send, status: int, kind: str, message: str, *, retry_after_s: float | None = None, place: int | None = None
) -> None:
    """A typed error as JSON; `Retry-After` in whole seconds where waiting helps."""
    error: dict[str, Any] = {"type": kind, "message": message}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if retry_after_s is not None:
        headers = ((b"retry-after", b"%d" % max(1, round(retry_after_s))),)
        error["retry_after_s"] = round(retry_after_s, 1)
    if place is not None:
        error["waiting"] = place
    await _answer(send, status, "application/json", json.dumps({"error": error}).encode(), headers)
