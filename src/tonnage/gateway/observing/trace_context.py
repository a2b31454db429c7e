"""The trace that a request belongs to, as its headers say it. Source: W3C Trace Context, `traceparent`."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from tonnage.http.connection import Headers

HEADER: Final = b"traceparent"
_PARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class TraceContext:
    """`parent_id`: the client's span, 0: it has none; `span_id`: the request's own; `attempts`: those of its attempts,
    by the identity of the attempt."""

    __slots__ = ("_random", "attempts", "parent_id", "span_id", "trace_id")

    def __init__(self, trace_id: int, parent_id: int, random: Random) -> None:
        self.trace_id, self.parent_id, self._random = trace_id, parent_id, random
        self.span_id = _some(random, 64)
        self.attempts: dict[int, int] = {}

    def attempt(self, identity: int) -> int:
        """The span of an attempt; a new one where it has none yet."""
        return self.attempts.setdefault(identity, _some(self._random, 64))

    def passed_on(self, identity: int, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers of an attempt, with its own span as the parent of what the upstream does."""
        made = b"00-%032x-%016x-01" % (self.trace_id, self.attempt(identity))
        return [*(pair for pair in headers if pair[0] != HEADER), (HEADER, made)]


def begin_trace(headers: Headers, share: float, random: Random) -> TraceContext | None:
    """The client's trace where it is recorded, else one of our own for this share of requests; None: not recorded.

    A `traceparent` that cannot be read is none.
    """
    for name, value in headers:
        if name == HEADER and (found := _PARENT.fullmatch(value.strip())) is not None:
            trace_id, parent_id, flags = (int(found[index], 16) for index in (1, 2, 3))
            if trace_id and parent_id and value[:2] != b"ff":
                return TraceContext(trace_id, parent_id, random) if flags & 1 else None
    if share < 1.0 and random.random() >= share:
        return None
    return TraceContext(_some(random, 128), 0, random)


def _some(random: Random, bits: int) -> int:
    return random.getrandbits(bits) or 1
