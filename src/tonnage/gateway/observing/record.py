"""What became of a request, gathered while it is under way: a few references, which another thread puts into words; and
the trace that it belongs to, as its headers say it (W3C Trace Context, `traceparent`).
"""

from __future__ import annotations

import re
from random import Random
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.described import ANYBODY, Caller, Deployment
from tonnage.gateway.money.holds import AttemptOutcome
from tonnage.http.connection import Headers

if TYPE_CHECKING:
    from tonnage.gateway.proxy.asked import GatewayRequest
    from tonnage.gateway.proxy.replies import GatewayReply
    from tonnage.gateway.routing.classes import RequestClasses
SLACK_BYTES: Final = 8 << 10  # read beyond what is kept of a body, so that a cut leaves no half of a secret unseen
RECORD_BYTES: Final = 1024  # of a line without bodies
HEADER: Final = b"traceparent"
_PARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class RecordedAttempt(NamedTuple):
    """What became of an attempt, and when (`monotonic`) it ended. `identity`: of the attempt while it was under way."""

    deployment: Deployment
    outcome: AttemptOutcome
    ended_s: float
    identity: int


class RequestRecord:
    """One request. `attempts` in their order; `trace`: where its spans are recorded; `cache`: what it met there, None:
    its route has none; `reply`: what the gateway itself answered; `status` 0: its client left before an answer."""

    __slots__ = (
        "answer", "asked", "at_s", "attempts", "began_s", "cache", "caller", "classes", "guard", "latency_s", "reply",
        "request", "room", "route", "status", "surface", "trace",
    )  # fmt: skip

    def __init__(
        self, surface: Surface, *, request: str | None, caller: Caller | None, route: str | None,
        asked: GatewayRequest | None, began_s: float, body_bytes: int | None,
    ) -> None:  # fmt: skip
        self.surface, self.request, self.caller, self.route = surface, request, caller or ANYBODY, route
        self.asked, self.began_s, self.at_s = asked, began_s, time() - (monotonic() - began_s)
        self.attempts: list[RecordedAttempt] = []
        self.trace: TraceContext | None = None
        self.cache: str | None = None
        self.guard: str | None = None
        self.classes: RequestClasses | None = None
        self.reply: GatewayReply | None = None
        self.status, self.latency_s = 0, 0.0
        self.answer: list[bytes] = []
        self.room = 0 if body_bytes is None else body_bytes + SLACK_BYTES  # for what is kept of the answer

    def attempt(self, identity: int, deployment: Deployment, outcome: AttemptOutcome) -> None:
        """What became of an attempt."""
        self.attempts.append(RecordedAttempt(deployment, outcome, monotonic(), identity))

    def passed_on(self, identity: int, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers of an attempt, with its own place in the trace where there is one."""
        return headers if self.trace is None else self.trace.passed_on(identity, headers)

    def answered(self, piece: bytes) -> None:
        """A piece of the answer, on its way to the client."""
        if self.room > 0:
            self.answer.append(piece[: self.room])
            self.room -= len(piece)

    @property
    def size(self) -> int:
        """About how many bytes it keeps in memory."""
        asked = 0 if self.asked is None else len(self.asked.body)
        return RECORD_BYTES + asked + sum(map(len, self.answer))

    def document(self, sample: float) -> dict[str, Any]:
        """Its line of the log, bodies apart. `sample`: the share of such requests that are kept."""
        attempts = [_attempt(one.deployment.name, one.outcome) for one in self.attempts]
        last = attempts[-1] if attempts else {}
        return {
            "at_s": round(self.at_s, 6), "request": self.request, "key": self.caller.name, "team": self.caller.team,
            "project": self.caller.project, "surface": self.surface, "route": self.route,
            "stream": self.asked is not None and self.asked.stream, "status": self.status,
            "refused": None if self.reply is None else self.reply.kind,
            "limit": None if self.reply is None else dict(self.reply.more).get("limit"),
            "cache": self.cache, "guard": self.guard, **_classes(self.classes), "deployment": last.get("deployment"),
            "first_byte_s": last.get("first_byte_s"), "latency_s": round(self.latency_s, 6),
            "input_tokens": last.get("input_tokens"), "output_tokens": last.get("output_tokens"),
            "cached_tokens": last.get("cached_tokens"),
            "usd_pico": sum(one["usd_pico"] for one in attempts),
            "estimated": any(one["estimated"] for one in attempts), "attempts": attempts, "sample": sample,
        }  # fmt: skip


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


def _classes(found: RequestClasses | None) -> dict[str, Any]:
    """Only of routes whose rules ask for them: what the text itself is stays out."""
    if found is None:
        return {}
    labels = {name: sorted(labels) for name, labels in found.labels.items()}
    return {"language": found.language, "words": sorted(found.words), "labels": labels}


def _attempt(deployment: str, found: AttemptOutcome) -> dict[str, Any]:
    first = found.first_byte_s
    return {
        "deployment": deployment, "outcome": found.outcome, "status": found.status,
        "first_byte_s": None if first is None else round(first, 6), "latency_s": round(found.latency_s, 6),
        "input_tokens": found.input_tokens, "output_tokens": found.output_tokens,
        "cached_tokens": found.cached_tokens, "usd_pico": found.amounts.usd_pico, "estimated": found.estimated,
    }  # fmt: skip


def _some(random: Random, bits: int) -> int:
    return random.getrandbits(bits) or 1
