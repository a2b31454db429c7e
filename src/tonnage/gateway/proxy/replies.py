"""Answers that the gateway gives itself, in the words that the client's own library understands."""

from __future__ import annotations

from datetime import UTC
from math import ceil
from typing import Any, Final

import orjson

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.holds import AllowanceExceeded
from tonnage.gateway.money.rates import usd_text
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.values import dataclass

JSON: Final = b"content-type: application/json\r\n"
_ANTHROPIC: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    409: "invalid_request_error", 413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error",
    503: "overloaded_error", 529: "overloaded_error",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReply:
    """A whole answer of the gateway's own. `more` is beside the message: until when, how much is left.
    `head`: header lines, each with its line end."""

    status: int
    kind: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    more: tuple[tuple[str, Any], ...] = ()
    head: bytes = b""

    def body(self, surface: Surface | None) -> bytes:
        if surface == "messages":
            kind = _ANTHROPIC.get(self.status, "api_error")
            return orjson.dumps({"type": "error", "error": {"type": kind, "message": self.message, **dict(self.more)}})
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.kind, **dict(self.more)}
        return orjson.dumps({"error": error})

    def event(self, surface: Surface) -> bytes:
        """The same inside a stream that has begun."""
        name = b"event: error\n" if surface in ("messages", "responses") else b""
        return name + b"data: " + self.body(surface) + b"\n\n"


def send_reply(
    exchange: ClientExchange, reply: GatewayReply, surface: Surface | None, head: bytes = b"", *, close: bool = False
) -> None:
    if reply.retry_after_s is not None:
        head += b"retry-after: %d\r\n" % max(1, ceil(reply.retry_after_s))
    exchange.answer(reply.status, JSON + reply.head + head, reply.body(surface), close=close)


def refusal(refused: AllowanceExceeded, now_s: float) -> GatewayReply:
    """429 with the allowance, what is left of it and until when."""
    allowance = refused.allowance
    wait_s = None if refused.until is None else max(refused.until.timestamp() - now_s, 1.0)
    if allowance.unit == "at-once":
        return limit_reached(allowance)
    until = "" if refused.until is None else f" until {refused.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    message = f"{_sentence(allowance.words)} has {_amount(allowance, refused.has)} left{until}; " \
              f"this request may take {_amount(allowance, refused.need)}"  # fmt: skip
    return GatewayReply(
        status=429, kind="insufficient_quota" if allowance.unit == "usd" else "rate_limit_exceeded", message=message,
        retry_after_s=wait_s,
        more=(("limit", allowance.id), ("until", None if refused.until is None else refused.until.isoformat())),
    )  # fmt: skip


def limit_reached(allowance: Allowance) -> GatewayReply:
    """429 of a limit of requests at a time."""
    message, more = f"{_sentence(allowance.words)} is reached", (("limit", allowance.id),)
    return GatewayReply(status=429, kind="rate_limit_exceeded", message=message, retry_after_s=1.0, more=more)


def _amount(allowance: Allowance, amount: int) -> str:
    return f"{usd_text(amount)} USD" if allowance.unit == "usd" else f"{amount} {allowance.unit}"


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]
