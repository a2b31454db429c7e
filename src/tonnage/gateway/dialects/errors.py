"""Errors in the words of a surface: the gateway's own, and those of an upstream that speaks another dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tonnage.gateway.dialects.usage import Surface

_ANTHROPIC: Final = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
    504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
_OPENAI: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "invalid_request_error", 429: "rate_limit_error",
}  # fmt: skip
_BEDROCK: Final = {408: 504, 424: 502}  # the model took too long, the model failed: no fault of the client's
_STATUS_OF: Final = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "timeout_error": 504,
    "overloaded_error": 503, "insufficient_quota": 429, "rate_limit_exceeded": 429,
    "validationException": 400, "throttlingException": 429, "serviceUnavailableException": 503,
    "modelTimeoutException": 504,
}  # fmt: skip


def error_body(surface: Surface, status: int, kind: str | None, message: str, **more: Any) -> dict[str, Any]:
    """An error in the surface's shape. `kind` None: what the surface calls this status."""
    if surface == "messages":
        called = kind or _ANTHROPIC.get(status, "api_error")
        return {"type": "error", "error": {"type": called, "message": message, **more}}
    called = kind or _OPENAI.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": called, "param": None, "code": kind, **more}}


def translated_error(surface: Surface, status: int, body: bytes) -> tuple[int, dict[str, Any]]:
    """Status and body for the client, from an upstream's own."""
    status = _BEDROCK.get(status, 529 if status == 503 and surface == "messages" else status)
    if status == 529 and surface != "messages":
        status = 503
    return status, error_body(surface, status, None, upstream_message(body) or f"the upstream answered {status}")


def status_of(kind: str) -> int:
    """The HTTP status of an error that came inside a stream, by its name; 502 for one that is not known."""
    return _STATUS_OF.get(kind, 502)


def upstream_message(body: bytes) -> str | None:
    """The message of an error body of any dialect; the text itself where it is no JSON."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace").strip()[:2000] or None
    inner = said.get("error", said) if isinstance(said, Mapping) else said
    if isinstance(inner, str):
        return inner
    if not isinstance(inner, Mapping):
        return None
    found = inner.get("message", inner.get("Message"))
    return found if isinstance(found, str) else None
