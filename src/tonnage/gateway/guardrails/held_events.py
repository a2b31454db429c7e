"""Events of a stream that are held back until what they say can be judged: a sentence, or all of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.guardrails.detectors import DetectedText, marker
from tonnage.gateway.guardrails.texts import StreamEvent, TextSlot

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
