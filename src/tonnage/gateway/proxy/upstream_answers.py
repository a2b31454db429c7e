"""What an upstream's answer says beside its body, and a body read to its end."""

from __future__ import annotations

from typing import Final

import orjson

from tonnage.http.connection import Connection, UpstreamFault
from tonnage.http.retries import retry_after_s

LARGEST_ANSWER_BYTES: Final = 64 << 20
LONGEST_REST_S: Final = 300.0  # of a Retry-After
_LIMITS: Final = ("rate_limit", "throttl", "insufficient_quota", "overloaded", "too_many_requests")


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
