"""An upstream's answer on its way to the client: what it says beside its body, a body read to its end, what goes on of
each piece of a stream, and what that came to at its end.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import orjson

from tonnage.gateway.caching import LARGEST_BYTES
from tonnage.http.connection import Connection, UpstreamFault
from tonnage.http.retries import retry_after_s

if TYPE_CHECKING:
    from tonnage.gateway.proxy.attempt import Attempt, AttemptResult
LARGEST_ANSWER_BYTES: Final = 64 << 20
LONGEST_REST_S: Final = 300.0  # of a Retry-After
_LIMITS: Final = ("rate_limit", "throttl", "insufficient_quota", "overloaded", "too_many_requests")


class Streaming:
    """Of one attempt. Before the first piece has gone to the client another attempt can be made; after it a fault ends
    the stream. `over`: nothing more is read."""

    __slots__ = (
        "_after_s", "_answer", "_attempt", "_exchange", "_gone_s", "_kept", "_kind", "_output_limit", "_sent_error",
        "_size", "fault", "over", "tap",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, answer: Connection, output_limit: int | None) -> None:
        journey = attempt.journey
        self._attempt, self._answer, self._output_limit = attempt, answer, output_limit
        self._exchange = journey.exchange
        self._after_s = journey.running.gateway.after_disconnect_s
        self.tap = attempt.passage.tap(attempt.asked)
        self._kind = attempt.passage.kind or content_type(answer)
        self._kept: list[bytes] | None = [] if journey.cache is not None else None
        self._size = 0
        self._gone_s: float | None = None
        self._sent_error = False  # the client has the error event already, in its own dialect's words
        self.fault: UpstreamFault | None = None
        self.over = False

    def passed(self, piece: bytes) -> bytes:
        """What goes to the client of a piece; the head of the answer goes before the first one."""
        exchange, tap = self._exchange, self.tap
        passed = tap.feed(piece)
        if tap.failed is not None:  # nothing more can be read: the upstream need not go on writing
            self._answer.abort()
            self.fault, self._sent_error, self.over = UpstreamFault(tap.failed), exchange.begun, True
            return passed if exchange.begun and self._gone_s is None else b""
        if self._gone_s is not None or exchange.gone:
            self._drained()
            return b""
        if passed:
            if not exchange.begun:
                exchange.begin(200, b"cache-control: no-cache\r\n" + self._attempt.head(self._kind, self._output_limit))
            if self._kept is not None:
                self._kept.append(passed)
                self._size += len(passed)
                if self._size > LARGEST_BYTES:
                    self._kept = None
        return passed

    def _drained(self) -> None:
        """The client has left: its answer is read on for a while, for the count at its end."""
        if self._gone_s is None:
            self._gone_s = monotonic()
            self._attempt.journey.running.count_gone()
        if monotonic() - self._gone_s > self._after_s:
            self._answer.abort()
            self.over = True

    def end(self) -> AttemptResult:
        """Settle it and end the client's stream, once the answer has ended, by `fault` or well."""
        attempt, exchange, tap, fault = self._attempt, self._exchange, self.tap, self.fault
        whole = fault is None and tap.finished
        if not (whole or exchange.begun or exchange.gone):
            attempt.settlement.fault("cut", billed=True)
            return attempt.no_answer(fault or UpstreamFault("its answer ended before it was complete")), True
        ended = "failed" if tap.ended_failed else "ok"
        outcome = "client-gone" if self._gone_s is not None else ended if whole else "cut"
        usd_pico = attempt.settlement.done(tap.usage, written_tokens=tap.events, outcome=outcome)
        attempt.settlement.meter.answered(200)
        rest = tap.rest
        if outcome == "ok" and self._kept is not None and tap.usage is not None:
            attempt.keep(self._kind, b"".join([*self._kept, rest]), usd_pico)
        if whole:
            exchange.end(rest)
        else:
            broken = attempt.no_answer(fault or UpstreamFault("its answer ended before it was complete"))
            exchange.end(rest if self._sent_error else rest + broken.event(attempt.asked.surface), whole=False)
        return None, False


async def whole_body(answer: Connection) -> bytes:
    """The whole body. Raises UpstreamFault; one that is too large is a fault too."""
    first = await answer.read()
    if first is None:
        return b""
    pieces, size = [first], len(first)
    while (piece := await answer.read()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER_BYTES:
            answer.abort()
            raise UpstreamFault(f"the answer is over {LARGEST_ANSWER_BYTES >> 20} MiB")
    return first if len(pieces) == 1 else b"".join(pieces)


def content_type(answer: Connection) -> bytes:
    for name, value in answer.headers:
        if name == b"content-type":
            return value
    return b"application/json"


def asked_rest_s(answer: Connection) -> float | None:
    """What a busy deployment asks for, at most LONGEST_REST_S; None: it does not say."""
    for name, value in answer.headers:
        if name == b"retry-after-ms" and value.isdigit():
            return min(float(value) / 1000.0, LONGEST_REST_S)
        if name == b"retry-after" and (found := retry_after_s(value.decode("latin-1"))) is not None:
            return min(found, LONGEST_REST_S)
    return None


def says_limit(answer: Connection, body: bytes) -> bool:
    """Whether a bad request is a limit by its code or type. Its message may repeat what the client wrote: not read."""
    said = [value.decode("latin-1") for name, value in answer.headers if name == b"x-amzn-errortype"]
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    error = found.get("error", found) if isinstance(found, dict) else None
    if isinstance(error, dict):
        said += [value for name in ("code", "type", "__type") if isinstance(value := error.get(name), str)]
    return any(word in one.lower() for one in said for word in _LIMITS)
