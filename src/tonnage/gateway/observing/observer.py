"""Who looks at requests beside their way. Without one, a request costs a comparison with None."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.described import Caller
from tonnage.gateway.observing.record import RequestRecord
from tonnage.gateway.observing.request_log import RequestLog
from tonnage.gateway.proxy.journey import Journey
from tonnage.gateway.proxy.replies import Reply
from tonnage.gateway.proxy.server import ClientExchange


class Observer:
    """Of one worker."""

    def __init__(self, log: RequestLog) -> None:
        self.log = log

    async def through(self, journey: Journey, carry: Callable[[Journey], Awaitable[None]]) -> None:
        """Carry a request, and put down what became of it, whatever happens."""
        exchange, body_bytes = journey.exchange, self.log.body_bytes
        record = RequestRecord(
            journey.asked.surface, request=journey.request, caller=journey.caller, route=journey.route.name,
            asked=journey.asked, began_s=journey.began_s, body_bytes=body_bytes,
        )  # fmt: skip
        journey.record = record
        if body_bytes is not None:
            exchange.tee = record.answered
        try:
            await carry(journey)
        finally:
            self._end(record, exchange)

    def turned_away(
        self, exchange: ClientExchange, surface: Surface, caller: Caller | None, reply: Reply, began_s: float
    ) -> None:
        """A request that the door did not let in. Its body is not kept: nobody knows whose it is."""
        record = RequestRecord(
            surface, request=None, caller=caller, route=None, asked=None, began_s=began_s, body_bytes=None
        )
        record.reply = reply
        self._end(record, exchange)

    def close(self) -> None:
        self.log.close()

    def _end(self, record: RequestRecord, exchange: ClientExchange) -> None:
        record.status, record.latency_s = exchange.status, monotonic() - record.began_s
        self.log.put(record)
