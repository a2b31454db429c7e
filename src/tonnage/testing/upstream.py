"""A small inference service for tests: speaks the protocols that services speak, and misbehaves as configured.

    with PretendedUpstream(delay_s=0.01) as upstream:
        tonnage.bench_serve(upstream.url, ...)

A word in a request's text says what happens to it: `status-500`, `once-503` (the first time only), `hang`, `rubbish`,
`cut` (the connection closes in the middle). `python -m tonnage.testing.upstream --port 8000` serves until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import threading
from collections import Counter
from typing import Any, Final, Self

import httptools

_MARK: Final = re.compile(rb"\b(status-(\d{3})|once-(\d{3})|hang|rubbish|cut)\b")
_REASONS: Final = {200: b"OK", 429: b"Too Many Requests"}


class PretendedUpstream:
    """`slots` requests are answered at a time, each for `delay_s`; with `most_per_s` those above it get 429, and wait
    `retry_after_s`. `seen` counts requests by idempotency key (else by body)."""

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        slots: int = 10_000,
        most_per_s: float | None = None,
        retry_after_s: float = 1.0,
        port: int = 0,
        key: str | None = None,
    ) -> None:
        self.delay_s, self.slots, self.most_per_s, self.retry_after_s = delay_s, slots, most_per_s, retry_after_s
        self.port, self.key = port, key
        self.seen: Counter[bytes] = Counter()
        self.answered: Counter[bytes] = Counter()
        self.most_tokens: int | None = None  # of a text; longer ones get 413
        self.reported_tokens = [0, 0]  # tokens in and out, in the usage of whole answers
        self.info: dict[str, Any] | None = None  # what `/info` states; None: it has no such page
        self.most_at_once = 0
        self.at_once = 0
        self._second: tuple[int, int] = (0, 0)
        self._once: set[bytes] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def listen(self) -> asyncio.Server:
        """Listen in the running loop; `port` is known then."""
        self.places = asyncio.Semaphore(self.slots)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Client(self, loop), "127.0.0.1", self.port, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def refuses(self, now_s: float) -> bool:
        """Whether this request is over the limit of its second."""
        if self.most_per_s is None:
            return False
        second, count = self._second
        self._second = (int(now_s), count + 1 if second == int(now_s) else 1)
        return self._second[1] > self.most_per_s

    def tell(self, read: int, written: int) -> None:
        """Count the usage of an answer that was written whole."""
        self.reported_tokens[0] += read
        self.reported_tokens[1] += written

    def first_time(self, body: bytes) -> bool:
        known = body in self._once
        self._once.add(body)
        return not known

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(self.listen())
        started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))


class _Client(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, upstream: PretendedUpstream, loop: asyncio.AbstractEventLoop) -> None:
        self._upstream, self._loop = upstream, loop
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._headers, self._pieces = url, {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        body, upstream = b"".join(self._pieces), self._upstream
        if upstream.key is not None and self._headers.get(b"authorization") != f"Bearer {upstream.key}".encode():
            self._send(401, b'{"error":{"message":"wrong key"}}')
            return
        if self._path.endswith(b"/models"):
            self._send(200, b'{"data":[{"id":"tiny"}]}')
            return
        if self._path.endswith(b"/info"):
            self._send(404 if upstream.info is None else 200, json.dumps(upstream.info).encode())
            return
        name = self._headers.get(b"idempotency-key", body)
        upstream.seen[name] += 1
        if upstream.refuses(self._loop.time()):
            self._send(429, b'{"error":{"message":"slow down"}}', retry_after_s=upstream.retry_after_s)
        elif not self._misbehaves(body):
            self._task = self._loop.create_task(self._answer(self._path, body, name))

    def _misbehaves(self, body: bytes) -> bool:
        found = _MARK.search(body)
        if found is None:
            return False
        word = found[1]
        if word.startswith(b"once-"):
            if not self._upstream.first_time(body):
                return False
            self._send(int(found[3]), b'{"error":{"message":"once"}}', retry_after_s=0.01)
        elif word.startswith(b"status-"):
            self._send(int(found[2]), b'{"error":{"message":"as asked"}}')
        elif word == b"rubbish":
            self._send(200, b"<html>no JSON</html>")
        elif word == b"cut":
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            self._transport.close()
        return True

    async def _answer(self, path: bytes, body: bytes, name: bytes) -> None:
        upstream, asked = self._upstream, json.loads(body)
        if upstream.most_tokens is not None and _tokens(asked) > upstream.most_tokens:
            self._send(413, b'{"error":{"message":"too long"}}')
            return
        async with upstream.places:
            upstream.at_once += 1
            upstream.most_at_once = max(upstream.most_at_once, upstream.at_once)
            try:
                if asked.get("stream"):
                    await self._stream(asked)
                else:
                    if upstream.delay_s:
                        await asyncio.sleep(upstream.delay_s)
                    content = _content(path, asked)
                    self._send(200, json.dumps(content).encode())
                    if isinstance(content, dict) and "usage" in content:
                        upstream.tell(content["usage"]["prompt_tokens"], content["usage"]["completion_tokens"])
            finally:
                upstream.at_once -= 1
        upstream.answered[name] += 1

    async def _stream(self, asked: dict[str, Any]) -> None:
        """`delay_s` before the first token, a tenth of it before each other."""
        count = int(asked.get("max_tokens") or 4)
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for number in range(count):
            await asyncio.sleep(self._upstream.delay_s / (10.0 if number else 1.0))
            choice = {
                "text": "w",
                "delta": {"content": "w"},
                "finish_reason": "length" if number == count - 1 else None,
            }
            self._event({"choices": [choice]})
        self._event({"choices": [], "usage": {"prompt_tokens": _tokens(asked), "completion_tokens": count}})
        self._upstream.tell(_tokens(asked), count)
        self._chunk(b"data: [DONE]\n\n")
        self._transport.write(b"0\r\n\r\n")

    def _event(self, found: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(found).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, status: int, body: bytes, *, retry_after_s: float | None = None) -> None:
        wait = b"" if retry_after_s is None else b"Retry-After: %d\r\n" % round(retry_after_s)
        self._transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, _REASONS.get(status, b"-"), wait, len(body), body)
        )


def _tokens(asked: dict[str, Any]) -> int:
    """Three, and two a word."""
    said = asked.get("messages") or asked.get("prompt") or asked.get("input") or asked.get("inputs") or ""
    text = said[-1].get("content", "") if isinstance(said, list) and isinstance(said[-1], dict) else str(said)
    return 3 + 2 * len(text.split())


def _content(path: bytes, asked: dict[str, Any]) -> Any:
    usage = {"prompt_tokens": _tokens(asked), "completion_tokens": 4, "total_tokens": _tokens(asked) + 4}
    if path.endswith(b"/embeddings"):
        return {"object": "list", "data": [{"index": 0, "embedding": [0.5, 0.25]}], "usage": usage}
    if path.endswith(b"/infer"):
        return {"outputs": [{"name": "label", "shape": [1], "datatype": "BYTES", "data": ["yes"]}]}
    if path.endswith(b"/embed"):
        return [[0.5, 0.25]]
    if path.endswith(b"/rerank"):
        return [{"index": 0, "score": 0.5}]
    if path.endswith((b"/predict", b"/classify")):
        return [{"label": "yes", "score": 0.5}]
    return {"choices": [{"index": 0, "text": "w w w w", "message": {"role": "assistant", "content": "w w w w"},
                         "finish_reason": "stop"}], "usage": usage}  # fmt: skip


async def _serve(port: int, delay_s: float) -> None:
    async with await PretendedUpstream(port=port, delay_s=delay_s).listen() as server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--delay-s", type=float, default=0.0)
    given = parser.parse_args()
    try:
        import uvloop

        uvloop.run(_serve(given.port, given.delay_s))
    except ImportError:
        asyncio.run(_serve(given.port, given.delay_s))
