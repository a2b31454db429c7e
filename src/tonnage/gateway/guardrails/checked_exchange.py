"""An answer on its way to the client, checked before it goes on: whole, or by sentences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.guardrails.detectors import DetectedText, marker
from tonnage.gateway.guardrails.texts import StreamEvent, TextSlot, text_slots
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


MOST_CHARS: Final = 16 << 10  # that are held back for the end of a sentence
LONGEST_END: Final = 32  # letters in which the end of a sentence is looked for
CONTEXT_CHARS: Final = 200  # of what has gone on, which are looked at with what follows
_END: Final = re.compile(r"""(?:[.!?…]["')\]]*\s+|\n\s*)\Z""")
_STOP: Final = re.compile(r"""[.!?…]["')\]]*\Z""")
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")
Channel = tuple[Any, ...]


class HeldText:
    """The held texts of one channel as one text; `context`: what went before them."""

    def __init__(self, slots: Sequence[TextSlot], context: str) -> None:
        self.slots, self.context = slots, context

    @property
    def text(self) -> str:
        return self.context + "".join(one.text for one in self.slots)

    def redact(self, findings: Sequence[DetectedText]) -> bool:
        """Put the kinds of findings (none overlaps another) in their places; whether any was there. What began in the
        context has gone on: the rest of it is replaced."""
        first = len(self.context)
        inside = [one._replace(begin=max(one.begin, first)) for one in findings if one.end > first]
        begin = first
        for slot in self.slots:
            end, at, pieces = begin + len(slot.text), begin, []
            for one in inside:
                if one.end <= begin or one.begin >= end:
                    continue
                pieces.append(slot.text[at - begin : max(one.begin, begin) - begin])
                if one.begin >= begin:
                    pieces.append(marker(one.kind))
                at = min(one.end, end)
            if at > begin or pieces:
                slot.put("".join([*pieces, slot.text[at - begin :]]))
            begin = end
        return bool(inside)


class HeldEvents:
    """`add` what comes; `ready` are events that may be judged and go on. `whole`: only at the end."""

    def __init__(self, surface: Surface, *, whole: bool) -> None:
        self._surface, self._whole = surface, whole
        self._rest = b""
        self.events: list[StreamEvent] = []
        self._ready = 0  # of the events
        self._chars = 0
        self._open: dict[Any, tuple[Channel, str]] = {}  # by group: the text of its unfinished sentence
        self._contexts: dict[Channel, str] = {}

    def add(self, data: bytes) -> None:
        pieces = _EVENT_END.split(self._rest + data)
        self._rest = pieces.pop()
        for one in pieces:
            self._add(StreamEvent(one + b"\n\n", self._surface))

    def finish(self) -> None:
        """Nothing more comes: all may be judged."""
        if self._rest:
            self.events.append(StreamEvent(self._rest, self._surface))
            self._rest = b""
        self._ready = len(self.events)

    @property
    def ready(self) -> bool:
        return self._ready > 0

    def passages(self) -> list[HeldText]:
        """The texts of the ready events, by channel; those of none each by itself."""
        channels: dict[Channel, list[TextSlot]] = {}
        alone = []
        for event in self.events[: self._ready]:
            for slot in event.slots:
                if slot.channel is None:
                    alone.append(HeldText([slot], ""))
                else:
                    channels.setdefault(slot.channel, []).append(slot)
        found = [HeldText(slots, self._contexts.get(channel, "")) for channel, slots in channels.items()]
        for channel, passage in zip(channels, found, strict=True):
            self._contexts[channel] = passage.text[-CONTEXT_CHARS:]
        return [*found, *alone]

    def take(self, *, changed: bool) -> bytes:
        """The ready events, which go on."""
        gone, self.events = self.events[: self._ready], self.events[self._ready :]
        self._ready = 0
        self._chars = sum(len(slot.text) for event in self.events for slot in event.slots)
        return b"".join(one.written(changed=changed and bool(one.slots)) for one in gone)

    def _add(self, event: StreamEvent) -> None:
        before = len(self.events)
        self.events.append(event)
        if self._whole:
            return
        for slot in event.slots:
            self._chars += len(slot.text)
            if slot.channel is None:
                continue
            group = slot.channel[0] if self._surface in ("chat", "completions") else None
            known, text = self._open.get(group, (slot.channel, ""))
            if known != slot.channel:
                text = ""  # another part of the answer begins: the one before is whole
            elif _STOP.search(text[-LONGEST_END:]) and slot.text[:1].isspace() and not _is_open(text):
                self._open.pop(group, None)
                if not self._open:
                    self._ready = before
                text = ""
            text += slot.text
            if _END.search(text[-LONGEST_END:]) and not _is_open(text):
                self._open.pop(group, None)
            else:
                self._open[group] = (slot.channel, text)
        if not self._open or self._chars > MOST_CHARS:
            self._ready = len(self.events)
            self._open.clear()


def _is_open(text: str) -> bool:
    """A private key that has begun and not ended: its lines are no sentences."""
    return "-----BEGIN" in text and "-----END" not in text.rpartition("-----BEGIN")[2]
