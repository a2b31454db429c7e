"""A proxy between a client and a service here that answers instead of it, or loses its answers: whatever the service.

with between("http://127.0.0.1:8080") as proxy:
    proxy.before.append(first(2, HTTPAnswer(status=503)))    # the first two requests are answered so
    proxy.after.append(first(1, HTTPAnswer(status=502)))     # one is carried out, and its answer is lost
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import quote, urlencode

from tonnage.testing.http_service import Asked, Fault, HTTPAnswer, running, server_of

OF_ONE_WAY: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
LONGEST_S: Final = 60.0


class Proxy:
    """A running one; `asked` has every request."""

    def __init__(self, target: str) -> None:
        import httpx

        self._target = target.rstrip("/")
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self._client = httpx.Client(timeout=LONGEST_S, trust_env=False)
        self.http = server_of(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the service answers to the same request."""
        headers = {name: value for name, value in asked.headers.items() if name not in OF_ONE_WAY}
        address = f"{self._target}{quote(asked.path)}" + (f"?{urlencode(asked.query)}" if asked.query else "")
        found = self._client.request(asked.method, address, headers=headers, content=asked.content)
        returned = {name: value for name, value in found.headers.items() if name.lower() not in OF_ONE_WAY}
        return HTTPAnswer(status=found.status_code, content=found.content, headers=returned)

    def tick(self) -> None:
        """Nothing happens by itself."""

    def close(self) -> None:
        """Nothing is left open."""
        self._client.close()


def between(target: str) -> AbstractContextManager[Proxy]:
    """A proxy before the service at this address, which has no path of its own."""
    return running(Proxy(target))


def first(number: int, answer: HTTPAnswer, *, of: Callable[[Asked], bool] = lambda _: True) -> Fault:
    """The first so many requests, of those that are meant, are answered so."""
    left = [number]

    def fault(asked: Asked) -> HTTPAnswer | None:
        if not left[0] or not of(asked):
            return None
        left[0] -= 1
        return answer

    return fault
