"""The head of a client's request, and how one that has come before is recognised without being parsed again.

A client's library sends the same lines with each request of a connection; only `content-length` differs.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tonnage.http.connection import Headers

MOST_TRIES: Final = 4  # heads of a connection that are remembered in vain, before none is any more
_MOST_DIGITS: Final = 9
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})(?=\r\n)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"


class RequestHead:
    """`keep`: another request may follow; `old`: of HTTP/1.0. `known`: what the handler found in it,
    which another request with the same lines need not find out again."""

    __slots__ = ("headers", "keep", "known", "method", "old", "path", "query")

    def __init__(self, method: bytes, url: bytes, headers: Headers, *, keep: bool, old: bool) -> None:
        self.method, self.headers, self.keep, self.old = method, headers, keep, old
        path, _, self.query = url.partition(b"?")
        self.path = path.decode("latin-1")
        self.known: Any = None


class LastHead:
    """Of one connection."""

    __slots__ = ("_after", "_before", "_head", "_tries")

    def __init__(self) -> None:
        self._before = self._after = b""  # the digits of its content-length
        self._head: RequestHead | None = None
        self._tries = MOST_TRIES

    def matched(self, data: bytes, most_bytes: int) -> tuple[RequestHead, bytes] | None:
        """Head and body of a request that is all of `data` and whose head is the last one but for its content-length.

        What was parsed once parses to the same again: lines that frame the body otherwise are never remembered.
        """
        head, before = self._head, self._before
        if head is None or not data.startswith(before):
            return None
        digits = data.find(b"\r", len(before), len(before) + _MOST_DIGITS + 1)
        length = data[len(before) : digits]
        if digits < 0 or not length.isdigit() or not data.startswith(self._after, digits):
            return None
        body = data[digits + len(self._after) :]
        size = int(length)
        if len(body) != size or size > most_bytes:
            return None
        self._tries = MOST_TRIES
        return head, body

    def remember(self, head: RequestHead, data: bytes, body_bytes: int) -> None:
        """A request that was parsed, where it is all of `data`."""
        self._head = None
        if not self._tries:
            return
        self._tries -= 1
        end = data.find(_END) + len(_END)
        if end < len(_END) or len(data) - end != body_bytes or not head.keep:
            return
        found = list(_LENGTH.finditer(data, 0, end))
        if len(found) != 1 or any(name in (b"transfer-encoding", b"expect", b"upgrade") for name, _ in head.headers):
            return
        self._before, self._after, self._head = data[: found[0].start(1)], data[found[0].end(1) : end], head
