"""Who looks at requests beside their way. Without one, a request costs a comparison with None."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.described import Caller
from tonnage.gateway.observing.record import RequestRecord
from tonnage.gateway.observing.request_log import RequestLogWriter
from tonnage.gateway.observing.spans import PARAMETERS, SpanWriter
from tonnage.gateway.proxy.asked import GatewayRequest
from tonnage.gateway.proxy.journey import Journey
from tonnage.gateway.proxy.layers import ExchangeLayer
from tonnage.gateway.proxy.replies import GatewayReply
from tonnage.gateway.proxy.server import ClientExchange


class Observer:
    """Of one worker: the request log, spans, or both."""

    def __init__(self, log: RequestLogWriter | None = None, spans: SpanWriter | None = None) -> None:
        self.log, self.spans = log, spans
        self._body_bytes = None if log is None else log.body_bytes

    async def through(self, journey: Journey, carry: Callable[[Journey], Awaitable[None]]) -> None:
        """Carry a request, and put down what became of it, whatever happens."""
        record = self.begin(journey)
        try:
            await carry(journey)
        finally:
            self.end(record)

    def begin(self, journey: Journey) -> RequestRecord:
        """Look at a request from now until `end`."""
        record = self.record(journey.asked, journey.caller, journey.route.name, journey.request, journey.began_s)
        if self.spans is not None:
            record.trace = self.spans.begin(journey.exchange.headers)
        self.watch(journey, record)
        return record

    def record(self, asked: GatewayRequest, caller: Caller, route: str, request: str, began_s: float) -> RequestRecord:
        """Of a request whose answer nothing tells it: `watch`, or its carrier does."""
        return RequestRecord(
            asked.surface, request=request, caller=caller, route=route, asked=asked, began_s=began_s,
            body_bytes=self._body_bytes,
        )  # fmt: skip

    def watch(self, journey: Journey, record: RequestRecord) -> None:
        """What the client is answered from now on."""
        journey.record = record
        journey.exchange = _WatchedExchange(journey.exchange, record)

    def turned_away(
        self, exchange: ClientExchange, surface: Surface, caller: Caller | None, reply: GatewayReply, began_s: float
    ) -> None:
        """A request that the gateway did not let in. Its body is not kept: its owner is unknown."""
        record = RequestRecord(
            surface, request=None, caller=caller, route=None, asked=None, began_s=began_s, body_bytes=None
        )
        if self.spans is not None:
            record.trace = self.spans.begin(exchange.headers)
        record.reply, record.status = reply, reply.status
        self.end(record)

    def close(self) -> None:
        """Hand on what waits; takes seconds where the receiver does not answer."""
        for one in (self.log, self.spans):
            if one is not None:
                one.close()

    def end(self, record: RequestRecord) -> None:
        """Put down what became of a request."""
        record.latency_s = monotonic() - record.began_s
        asked = record.asked
        if asked is not None and self._body_bytes is None:  # the bodies need not wait in memory
            said = {name: asked.said[name] for name in PARAMETERS if name in asked.said}
            record.asked = asked._replace(body=b"", said=said)
        if self.log is not None:
            self.log.put(record)
        if self.spans is not None:
            self.spans.put(record)


class _WatchedExchange(ExchangeLayer):
    """Tells a record which status the client was answered, and what."""

    __slots__ = ("_record",)

    def __init__(self, inner: ClientExchange, record: RequestRecord) -> None:
        super().__init__(inner)
        self._record = record

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        self._record.status = status
        self._record.answered(body)
        super().answer(status, head, body, close=close)

    def begin(self, status: int, head: bytes) -> None:
        self._record.status = status
        super().begin(status, head)

    async def piece(self, data: bytes) -> None:
        self._record.answered(data)
        await super().piece(data)

    def put(self, data: bytes) -> asyncio.Future[None] | None:
        self._record.answered(data)
        return self.inner.put(data)

    def end(self, last: bytes = b"", *, whole: bool = True) -> None:
        self._record.answered(last)
        super().end(last, whole=whole)
