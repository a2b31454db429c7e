"""Requests that another deployment is asked too: its answer goes nowhere, and is compared with the client's.

It begins when the client has its answer, with a hold of its own. It takes nothing of the caller's budgets and limits:
only those of the whole and of the deployment hold for it.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.conduct_entries import ShadowEntry
from tonnage.gateway.file.described import Caller
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.observing.spoken import spoken_text
from tonnage.gateway.proxy.attempt import Attempt
from tonnage.gateway.proxy.layers import ExchangeLayer
from tonnage.gateway.proxy.server import ClientExchange

if TYPE_CHECKING:
    from tonnage.gateway.proxy.journey import Journey

MOST_BYTES: Final = 1 << 20  # of an answer that is compared
CALLER: Final = Caller(name="(shadow)", team="(shadow)", project="(shadow)", routes=None, expires=None)


class Shadow:
    """Of one route in one worker."""

    def __init__(self, entry: ShadowEntry, measures: GatewayMeasures, random: Random) -> None:
        self.entry, self._measures, self._random = entry, measures, random
        self._tasks: set[asyncio.Task[None]] = set()

    async def beside(self, journey: Journey) -> None:
        """Carry a request; one that is drawn is asked of the other deployment too."""
        asked = journey.asked
        if asked.media is not None or asked.unbounded is not None or self._random.random() * 100 >= self.entry.percent:
            await journey.run()  # what an upstream stores or runs by itself is not to happen twice
            return
        heard = _HeardExchange(journey.exchange, to_client=True)
        journey.exchange = heard
        await journey.run()
        if len(self._tasks) >= self.entry.at_once:
            self._count(journey, "skipped")
            return
        task = asyncio.ensure_future(self._ask(journey, heard))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, journey: Journey, heard: _HeardExchange) -> None:
        view = copy(journey)
        view.room = view.cache = view.record = view.ticket = None
        view.full, view.caller, view.sent = [], CALLER, True
        view.route = replace(journey.route, name=f"{journey.route.name}:shadow")
        view.exchange = other = _HeardExchange(heard.inner, to_client=False)
        attempt = Attempt(view, view.route, journey.running.gateway.deployments[self.entry.deployment])
        reply, _ = await attempt.run()
        if reply is not None:
            other.status = reply.status
        self._count(journey, _compared(journey.asked.surface, heard, other))

    def _count(self, journey: Journey, met: str) -> None:
        self._measures.count("tonnage_gateway_shadow_total", (("route", journey.route.name), ("met", met)))


class _HeardExchange(ExchangeLayer):
    """What was answered; `to_client`: it goes on, too."""

    __slots__ = ("_size", "pieces", "status", "streamed", "to_client", "whole")

    def __init__(self, inner: ClientExchange, *, to_client: bool) -> None:
        super().__init__(inner)
        self.to_client, self.begun = to_client, False
        self.status, self.streamed, self.whole = 0, False, False
        self.pieces: list[bytes] = []
        self._size = 0

    @property
    def gone(self) -> bool:
        return self.to_client and self.inner.gone

    def abort(self) -> None:
        if self.to_client:
            self.inner.abort()

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        self.begun = self.whole = True
        self.status = status
        self._hear(body)
        if self.to_client:
            self.inner.answer(status, head, body, close=close)

    def begin(self, status: int, head: bytes) -> None:
        self.begun = self.streamed = True
        self.status = status
        if self.to_client:
            self.inner.begin(status, head)

    async def piece(self, data: bytes) -> None:
        self._hear(data)
        if self.to_client:
            await self.inner.piece(data)

    def end(self, last: bytes = b"", *, whole: bool = True) -> None:
        self._hear(last)
        self.whole = whole
        if self.to_client:
            self.inner.end(last, whole=whole)

    def text(self, surface: Surface) -> str | None:
        """What it says; None: it is too long to compare."""
        if self._size > MOST_BYTES:
            return None
        said = b"".join(self.pieces)
        return spoken_text(surface, said) if self.streamed else _words(said)

    @property
    def good(self) -> bool:
        return self.status == 200 and self.whole

    def _hear(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MOST_BYTES:
            self.pieces.append(data)
        else:
            self.pieces.clear()


def _compared(surface: Surface, heard: _HeardExchange, other: _HeardExchange) -> str:
    if not (heard.good and other.good):
        return "both-failed" if not (heard.good or other.good) else "shadow-failed" if heard.good else "base-failed"
    text, another = heard.text(surface), other.text(surface)
    if text is None or another is None:
        return "too-long"
    return "same" if text == another else "different"


def _words(body: bytes) -> str:
    """The messages of a whole answer, or its vectors: what it says, without ids, times and counts."""
    try:
        said: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")
    if not isinstance(said, dict):
        return ""
    spoken = [said.get(name) for name in ("content", "data", "output")]
    for choice in said.get("choices") or ():
        if isinstance(choice, dict):
            spoken += [choice.get("message"), choice.get("text")]
    return orjson.dumps(_without_ids(spoken)).decode()


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(inner) for key, inner in value.items() if not key.endswith("id")}
    return [_without_ids(one) for one in value] if isinstance(value, list) else value
