"""An answer on its way to the client, checked before it goes on: whole, or by sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import orjson

from tonnage.gateway.guardrails.detectors import DetectedText
from tonnage.gateway.guardrails.held_events import HeldEvents
from tonnage.gateway.guardrails.texts import text_slots
from tonnage.gateway.proxy.layers import ExchangeLayer
from tonnage.gateway.proxy.replies import GatewayReply, send_reply
from tonnage.gateway.proxy.server import ClientExchange

if TYPE_CHECKING:
    from tonnage.gateway.guardrails.guard import RouteGuard
    from tonnage.gateway.proxy.journey import Journey

_STREAM: Final = b"text/event-stream"
_TEXT: Final = b"content-type: text/"
_OURS: Final = b"x-tonnage-"


class Blocked(Exception):
    """A rule refuses: `reply` says so."""

    def __init__(self, reply: GatewayReply) -> None:
        super().__init__(reply.message)
        self.reply = reply


class CheckedExchange(ExchangeLayer):
    """After a refusal the rest of an answer is read and goes nowhere: its tokens are paid for, and counted."""

    __slots__ = ("_blocked", "_guard", "_head", "_held", "_journey", "_sent", "_status", "_task")

    def __init__(self, inner: ClientExchange, guard: RouteGuard, journey: Journey) -> None:
        super().__init__(inner)
        self._guard, self._journey = guard, journey
        self._held = HeldEvents(journey.asked.surface, whole=guard.holds_whole)
        self._status, self._head = 0, b""
        self._sent = self._blocked = False
        self._task: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        return not self._blocked and self.inner.gone

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        self.begun = True
        if status != 200:
            self.inner.answer(status, head, body, close=close)
        elif _STREAM in head:  # a stream that was kept
            self._status, self._head = status, head
            self._held.add(body)
            self._then(self._end(b"", whole=True))
        else:
            self._then(self._answer(status, head, body))

    def begin(self, status: int, head: bytes) -> None:
        self.begun = True
        self._status, self._head = status, head

    async def piece(self, data: bytes) -> None:
        if self._blocked:
            return
        self._held.add(data)
        try:
            await self._release()
        except Blocked as blocked:
            self._refuse(blocked.reply)

    def end(self, last: bytes = b"", *, whole: bool = True) -> None:
        if not self._blocked:
            self._then(self._end(last, whole=whole))

    async def finished(self) -> None:
        """Wait until what was answered has been checked."""
        if self._task is not None:
            await self._task

    # inside

    def _then(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.ensure_future(self._safely(work))

    async def _safely(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Blocked as blocked:
            self._refuse(blocked.reply)
        except BaseException:  # a fault of ours: what was not checked does not go on
            self.inner.abort()
            raise

    async def _answer(self, status: int, head: bytes, body: bytes) -> None:
        self._head = head
        try:
            said = orjson.loads(body)
        except orjson.JSONDecodeError:  # a transcript, or a sound, which has no text
            said = [body.decode("utf-8", "replace")] if _TEXT in head else None
        slots = text_slots(said)
        before = [one.text for one in slots]
        after = await self._guard.check("output", before, self._journey)
        if before != after:
            for slot, new in zip(slots, after, strict=True):
                slot.put(new)
            body = said[0].encode() if isinstance(said, list) else orjson.dumps(said)
        self.inner.answer(status, head, body)

    async def _end(self, last: bytes, *, whole: bool) -> None:
        self._held.add(last)
        self._held.finish()
        await self._release()
        if not self._sent:  # nothing came before the end
            self.inner.begin(self._status, self._head)
        self.inner.end(whole=whole)

    async def _release(self) -> None:
        """What can be judged goes on. Raises Blocked."""
        if not self._held.ready:
            return
        passages = self._held.passages()
        changed = False

        def redact(found: list[list[DetectedText]]) -> None:
            nonlocal changed
            for passage, findings in zip(passages, found, strict=False):  # a classifier speaks of all of them
                changed = passage.redact(findings) or changed

        if passages:
            seen = [len(one.context) for one in passages]
            texts = lambda: [one.text for one in passages]  # noqa: E731
            await self._guard.look("output", texts, redact, self._journey, seen=seen)
        data = self._held.take(changed=changed)
        if not self._sent:
            self._sent = True
            self.inner.begin(self._status, self._head)
        if data:
            await self.inner.piece(data)

    def _refuse(self, reply: GatewayReply) -> None:
        self._blocked = True
        if self._journey.record is not None:
            self._journey.record.reply = reply
        if self._sent:
            self.inner.end(reply.event(self._journey.asked.surface), whole=False)
            return
        lines = [line for line in self._head.splitlines(keepends=True) if line.startswith(_OURS)]
        send_reply(self.inner, reply, self._journey.asked.surface, b"".join(lines))
