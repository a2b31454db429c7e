"""Answers kept in Redis, for all workers and hosts that serve the same deployments.

Redis that is away, slow or says something else is a miss: requests go on to the deployments, and each is counted. After
a failure it is left alone for a second, so that requests do not wait for it one after the other.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson

from tonnage.encryption.data_keys import DataKeys
from tonnage.errors import DataError, InputError, MissingExtra
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.measures import GatewayMeasures
from tonnage.http.urls import without_secrets

PREFIX: Final = b"tonnage:gateway:"
WAIT_S: Final = 0.1  # for a look
PUT_WAIT_S: Final = 5.0
ALONE_S: Final = 1.0
MOST_PUTS: Final = 1000  # on their way to Redis


class SharedAnswer(NamedTuple):
    """An answer as Redis has it, and how long it is kept yet."""

    status: int
    content_type: bytes
    body: bytes
    usd_pico: int
    deployment: str
    left_s: float


class SharedCache:
    """Of one worker, in its event loop. `url`: redis://, rediss:// or unix://."""

    def __init__(self, url: str, measures: GatewayMeasures, keys: DataKeys | None = None) -> None:
        """`keys`: answers are encrypted with these. Raises MissingExtra, InputError; nothing is connected yet."""
        self._keys = keys
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise MissingExtra("a cache in Redis", "redis") from error
        try:
            self._redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0))
        except ValueError as error:
            message = f"redis: {without_secrets(url)} is not a Redis address"
            raise InputError(message, hint="redis://HOST:6379/0, rediss:// or unix://") from error
        names = ("hit", "miss", "away", "unreadable", "kept", "not-kept")
        self._counts = {name: measures.cell("tonnage_gateway_shared_cache_total", (("met", name),)) for name in names}
        self._alone_until_s = 0.0
        self._puts: set[asyncio.Task[None]] = set()

    async def get(self, place: bytes) -> SharedAnswer | None:
        """None also where Redis does not say in time."""
        if monotonic() < self._alone_until_s:
            self._counts["away"][0] += 1
            return None
        try:
            async with asyncio.timeout(WAIT_S), self._redis.pipeline(transaction=False) as asked:
                asked.get(place)
                asked.pttl(place)
                found, left_ms = await asked.execute()
        except Exception:  # of a client library: whatever it is, the cache has nothing
            self._failed("away")
            return None
        made = None if found is None or left_ms <= 0 else self._read(found, place, left_ms / 1000.0)
        self._counts["miss" if found is None else "unreadable" if made is None else "hit"][0] += 1
        return made

    def put(self, place: bytes, answer: SharedAnswer) -> None:
        """Keep an answer, without waiting for it to be written."""
        if monotonic() < self._alone_until_s or len(self._puts) >= MOST_PUTS:
            self._counts["not-kept"][0] += 1
            return
        task = asyncio.ensure_future(self._put(place, answer))
        self._puts.add(task)
        task.add_done_callback(self._puts.discard)

    async def close(self) -> None:
        """Answers that are on their way are kept."""
        await asyncio.gather(*tuple(self._puts))
        await self._redis.aclose()

    async def _put(self, place: bytes, answer: SharedAnswer) -> None:
        try:
            async with asyncio.timeout(PUT_WAIT_S):
                content = _written(answer)
                sealed = content if self._keys is None else self._keys.seal(content, place)
                await self._redis.set(place, sealed, px=max(int(answer.left_s * 1000), 1))
        except Exception:  # as above
            self._failed("not-kept")
        else:
            self._counts["kept"][0] += 1

    def _read(self, found: bytes, place: bytes, left_s: float) -> SharedAnswer | None:
        """None for what this gateway has no key of, too: an answer in the clear where it encrypts is not its own."""
        if self._keys is None:
            return _read(found, left_s)
        try:
            return _read(self._keys.open(found, place), left_s)
        except DataError:
            return None

    def _failed(self, what: str) -> None:
        self._counts[what][0] += 1
        self._alone_until_s = monotonic() + ALONE_S


def shared_prefix(gateway: Gateway, route: str) -> bytes:
    """Before the keys of a route's answers: of this route, with these deployments at these addresses.

    Another gateway that calls another upstream by the same name has answers of its own.
    """
    places = sorted((name, one.endpoint.url, one.model, one.dialect) for name, one in gateway.deployments.items())
    return PREFIX + blake2b(orjson.dumps([route, places]), digest_size=12).hexdigest().encode() + b":"


def _written(answer: SharedAnswer) -> bytes:
    head = orjson.dumps([answer.status, answer.content_type.decode("latin-1"), answer.usd_pico, answer.deployment])
    return head + b"\n" + answer.body


def _read(found: bytes, left_s: float) -> SharedAnswer | None:
    """None for what no gateway has written."""
    head, line_end, body = found.partition(b"\n")
    try:
        said: Any = orjson.loads(head)
    except orjson.JSONDecodeError:
        return None
    match said:
        case [int(status), str(kind), int(usd_pico), str(deployment)] if line_end:
            return SharedAnswer(status, kind.encode("latin-1", "replace"), body, usd_pico, deployment, left_s)
    return None
