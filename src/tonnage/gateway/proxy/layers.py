"""An exchange between the request path and its client, for what looks at answers as they pass."""

from __future__ import annotations

from tonnage.gateway.proxy.server import ClientExchange


class ExchangeLayer(ClientExchange):
    """Passes everything on to `inner`. A feature that is on puts one around the exchange; the path sees no difference.

    `begun` is the layer's own: something was answered through it.
    """

    __slots__ = ("inner",)

    def __init__(self, inner: ClientExchange) -> None:
        self.inner = inner
        self.method, self.headers, self.body = inner.method, inner.headers, inner.body
        self.head, self.asked = inner.head, inner.asked
        self.path, self.query, self.begun = inner.path, inner.query, inner.begun

    @property
    def gone(self) -> bool:
        return self.inner.gone

    def abort(self) -> None:
        self.inner.abort()

    def failed(self) -> None:
        self.inner.failed()

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        self.begun = True
        self.inner.answer(status, head, body, close=close)

    def begin(self, status: int, head: bytes) -> None:
        self.begun = True
        self.inner.begin(status, head)

    async def piece(self, data: bytes) -> None:
        await self.inner.piece(data)

    def end(self, last: bytes = b"", *, whole: bool = True) -> None:
        self.inner.end(last, whole=whole)
