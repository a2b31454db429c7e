"""Requests that a client may send again: the first one runs, a repeat gets its answer.

A request with a key is carried to its end also when its client has left, so that a repeat finds its answer. What is
kept goes into the store before the client has the end of it, so that no answer that was seen whole is computed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from time import time
from typing import Any, Final, TypeVar

from tonnage.encryption.data_keys import DataKeys, is_sealed
from tonnage.errors import DataError
from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.conduct_entries import IdempotencyEntry
from tonnage.gateway.idempotency.store import Claim, IdempotencyStore, KeyLookup, ReplayableAnswer
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.proxy.layers import ExchangeLayer
from tonnage.gateway.proxy.replies import GatewayReply, send_reply
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.http.connection import Headers

T = TypeVar("T")
HEADER: Final = b"idempotency-key"
LONGEST_KEY_BYTES: Final = 255
AGAIN_S: Final = 1.0  # between tries to bring an answer into a store that failed
TRIES: Final = 60
_NOT_REPEATED: Final = frozenset((408, 409, 425, 429))  # another try may be answered otherwise
_OF_A_DEPLOYMENT: Final = b"x-tonnage-deployment: "
_COST: Final = b"x-tonnage-cost-usd: "


def _parts(answer: ReplayableAnswer) -> tuple[tuple[bytes, bytes], ...]:
    return (b"head", answer.head), (b"body", answer.body)


def _context(claim: Claim, part: bytes) -> bytes:
    """What a kept part is authenticated with: whose key it is of, which, and which part of the answer."""
    return b"\0".join((b"idempotency", claim.owner.encode(), claim.name.encode(), part))


def _in_the_clear(found: KeyLookup, answer: ReplayableAnswer, claim: Claim, keys: DataKeys | None) -> KeyLookup:
    """The kept answer opened; one that cannot be opened is not repeated, and not computed a second time."""
    if not is_sealed(answer.head):
        return found
    if keys is None:
        return KeyLookup("not-kept")
    try:
        head, body = (keys.open(part, _context(claim, name)) for name, part in _parts(answer))
    except DataError:
        return KeyLookup("not-kept")
    return KeyLookup("kept", answer._replace(head=head, body=body))


def idempotency_key(headers: Headers) -> bytes | None:
    """The key of a request; None: it has none."""
    for name, value in headers:
        if name == HEADER:
            return value
    return None


class Repeats:
    """Of one worker. Its connection to the store is made when the first key comes."""

    def __init__(
        self, book: SpendBook, measures: GatewayMeasures, keys: Callable[[], DataKeys | None] = lambda: None
    ) -> None:
        """`keys`: those that answers are encrypted with now; None: they are kept as they are."""
        self.book, self.measures, self._keys = book, measures, keys
        self._store: IdempotencyStore | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gateway-idempotency")
        self._tasks: set[asyncio.Task[None]] = set()

    async def carry(
        self, exchange: ClientExchange, key: bytes, owner: str, surface: Surface, entry: IdempotencyEntry,
        serve: Callable[[ClientExchange], Awaitable[None]],
    ) -> None:  # fmt: skip
        """Answer a request with a key: by `serve` the first time, from the store after that."""
        if not 1 <= len(key) <= LONGEST_KEY_BYTES:
            said = f"`Idempotency-Key` has 1 to {LONGEST_KEY_BYTES} bytes"
            send_reply(exchange, GatewayReply(status=400, kind="invalid_request_error", message=said), surface)
            return
        claim = Claim(owner, _hash(key), self.book.worker, time())
        request = _hash(exchange.path.encode("latin-1"), exchange.body)
        try:
            found = await self._in_thread(self._opened, lambda store: store.claim(claim, request, entry.ttl))
        except AccountsError as error:
            said = f"the store of idempotency keys takes nothing now: {error}"
            reply = GatewayReply(status=503, kind="accounts_unavailable", message=said, retry_after_s=1.0)
            send_reply(exchange, reply, surface)
            return
        if found.answer is not None:
            found = _in_the_clear(found, found.answer, claim, self._keys())
        self.measures.count("tonnage_gateway_idempotency_total", (("met", found.met),))
        if found.met == "claimed":
            layer = _ClaimedExchange(exchange, self, claim, entry)
            try:
                await serve(layer)
            except BaseException:
                self.settle(claim, None, released=True)
                raise
        elif found.answer is not None:
            await _repeat(exchange, found.answer)
        else:
            send_reply(exchange, _REPLIES[found.met], surface)

    def settle(
        self, claim: Claim, answer: ReplayableAnswer | None, *, released: bool = False, until_s: float = 0.0,
        then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Bring what became of a claim into the store, then do `then`: at the latest when the store has failed once."""
        task = asyncio.ensure_future(self._settle(claim, answer, released, until_s, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def forget(self) -> None:
        """Each hour: answers whose time is over leave the store. Raises AccountsError."""
        if self._store is not None:
            await self._in_thread(self._opened, lambda store: store.forget(time()))

    async def close(self) -> None:
        """What is not in the store yet is given one more try: the claims of a worker that has ended are free."""
        for one in tuple(self._tasks):
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._store is not None:
            await self._in_thread(lambda: self._store, lambda store: store.close())
        self._thread.shutdown()

    async def _settle(
        self,
        claim: Claim,
        answer: ReplayableAnswer | None,
        released: bool,
        until_s: float,
        then: Callable[[], None] | None,
    ) -> None:
        keys = self._keys()
        if answer is not None and keys is not None:
            head, body = (keys.seal(part, _context(claim, name)) for name, part in _parts(answer))
            answer = answer._replace(head=head, body=body)

        def write(store: IdempotencyStore) -> None:
            if released:
                store.release(claim)
            else:
                store.keep(claim, answer, until_s)

        for _ in range(TRIES):
            try:
                await self._in_thread(self._opened, write)
            except AccountsError:
                self.measures.count("tonnage_gateway_idempotency_total", (("met", "store-failed"),))
            else:
                break
            finally:
                if then is not None:
                    then()
                    then = None
            await asyncio.sleep(AGAIN_S)

    def _opened(self) -> IdempotencyStore:
        """In the store's thread."""
        if self._store is None:
            store = IdempotencyStore(self.book.accounts.url, durable=self.book.durable)
            store.open()
            self._store = store
        return self._store

    async def _in_thread(self, store: Callable[[], Any], function: Callable[[IdempotencyStore], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(store()))


class _ClaimedExchange(ExchangeLayer):
    """The first request with a key: its answer is recorded as it passes. It is never «gone»: its client may come
    again for the answer."""

    __slots__ = ("_claim", "_entry", "_head", "_pieces", "_repeats", "_size", "_status")

    def __init__(self, inner: ClientExchange, repeats: Repeats, claim: Claim, entry: IdempotencyEntry) -> None:
        super().__init__(inner)
        self._repeats, self._claim, self._entry = repeats, claim, entry
        self._status, self._head, self._size = 0, b"", 0
        self._pieces: list[bytes] = []

    @property
    def gone(self) -> bool:
        return False

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        self.begun = True
        again = status >= 500 or status in _NOT_REPEATED or _OF_A_DEPLOYMENT not in head
        self._size = len(body)
        self._settle(
            ReplayableAnswer(status, head, body, streamed=False), released=again,
            then=lambda: self.inner.answer(status, head, body, close=close),
        )  # fmt: skip

    def begin(self, status: int, head: bytes) -> None:
        super().begin(status, head)
        self._status, self._head = status, head

    async def piece(self, data: bytes) -> None:
        self._record(data)
        await self.inner.piece(data)

    def end(self, last: bytes = b"", *, whole: bool = True) -> None:
        self._record(last)
        answer = ReplayableAnswer(self._status, self._head, b"".join(self._pieces), streamed=True)
        self._settle(answer, released=not whole, then=lambda: self.inner.end(last, whole=whole))

    def _record(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._most_bytes:
            self._pieces.append(data)
        else:
            self._pieces.clear()

    @property
    def _most_bytes(self) -> float:
        return self._entry.largest_mb * 1e6

    def _settle(self, answer: ReplayableAnswer, *, released: bool, then: Callable[[], None]) -> None:
        kept = answer if self._size <= self._most_bytes else None
        self._repeats.settle(self._claim, kept, released=released, until_s=time() + self._entry.ttl, then=then)


_REPLIES: Final = {
    "in-flight": GatewayReply(
        status=409, kind="idempotency_key_in_use", retry_after_s=1.0,
        message="the first request with this Idempotency-Key is under way; ask again for its answer",
    ),
    "another-body": GatewayReply(
        status=422, kind="idempotency_key_reused",
        message="this Idempotency-Key stands for a request with another body or path; take a new key",
    ),
    "not-kept": GatewayReply(
        status=409, kind="idempotency_answer_not_kept",
        message="the request with this Idempotency-Key was answered by more than the gateway keeps "
        "(`idempotency.largest_mb`); it is not computed again under the same key",
    ),
}  # fmt: skip


async def _repeat(exchange: ClientExchange, answer: ReplayableAnswer) -> None:
    """The same again, at no cost."""
    lines = [line for line in answer.head.splitlines(keepends=True) if not line.startswith(_COST)]
    head = b"".join([*lines, _COST, b"0\r\nidempotent-replayed: true\r\n"])
    if not answer.streamed:
        exchange.answer(answer.status, head, answer.body)
        return
    exchange.begin(answer.status, head)
    await exchange.piece(answer.body)
    exchange.end()


def _hash(*parts: bytes) -> str:
    made = blake2b(digest_size=20)
    for one in parts:
        made.update(b"%d:" % len(one))
        made.update(one)
    return made.hexdigest()
