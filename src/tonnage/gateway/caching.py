"""Answers that are kept: exact, of a tenant, and only where the same answer is meant to come again; in a worker, or in
Redis for all workers and hosts that serve the same deployments.

Redis that is away, slow or says something else is a miss: requests go on to the deployments, and each is counted. After
a failure it is left alone for a second, so that requests do not wait for it one after the other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson

from tonnage.encryption.data_keys import DataKeys
from tonnage.errors import DataError, InputError, MissingExtra
from tonnage.gateway.file.described import Caller, Gateway
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.proxy.asked import GatewayRequest
from tonnage.http.connection import Headers
from tonnage.http.urls import without_secrets
from tonnage.values import dataclass

LARGEST_BYTES: Final = 4 << 20  # of an answer
MOST_BYTES: Final = 256 << 20  # of all, in a worker
_NOT_OF_THE_ANSWER: Final = ("user", "metadata", "safety_identifier", "store")  # say who asks, not what
PREFIX: Final = b"tonnage:gateway:"
WAIT_S: Final = 0.1  # for a look
PUT_WAIT_S: Final = 5.0
ALONE_S: Final = 1.0
MOST_PUTS: Final = 1000  # on their way to Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """A whole answer as it went to the client, a stream as its events; what it cost, and where it came from."""

    status: int
    content_type: bytes
    body: bytes
    usd_pico: int
    deployment: str
    until_s: float


def cache_key(
    asked: GatewayRequest, caller: Caller, targets: tuple[tuple[str, str], ...], regions: frozenset[str],
    headers: Headers,
) -> bytes | None:  # fmt: skip
    """The whole body in a canonical order, the path, the team, and every deployment that could have answered.

    `targets`: (deployment, its name of the model), by the rule that holds for the request; `regions`: where they must
    compute; `headers`: those that reach the upstream. A field that the gateway does not know is part of the body too.
    None: a body that JSON cannot write again.
    """
    said = {name: value for name, value in asked.said.items() if name not in _NOT_OF_THE_ANSWER}
    passed = sorted((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    named = [asked.surface, caller.team, caller.project, targets, sorted(regions), passed, said]
    try:
        text = orjson.dumps(named, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    return blake2b(text, digest_size=20).digest()


class RouteCache:
    """The answers of one route in one worker, the one used longest ago leaving first; `shared`: where those of all
    workers are, under keys that begin with `prefix`."""

    def __init__(
        self, most_items: int, ttl_s: float, now: Callable[[], float], shared: SharedCache | None = None,
        prefix: bytes = b"",
    ) -> None:  # fmt: skip
        self.most_items, self.ttl_s, self._now = most_items, ttl_s, now
        self.shared, self._prefix = shared, prefix
        self._kept: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> CachedAnswer | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found.until_s <= self._now():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found

    async def get_shared(self, key: bytes) -> CachedAnswer | None:
        """What another worker has kept; from now on it is kept here too."""
        found = None if self.shared is None else await self.shared.get(self._prefix + key)
        if found is None:
            return None
        status, content_type, body, usd_pico, deployment, left_s = found
        self._keep(key, CachedAnswer(
            status=status, content_type=content_type, body=body, usd_pico=usd_pico, deployment=deployment,
            until_s=self._now() + min(left_s, self.ttl_s),
        ))  # fmt: skip
        return self._kept.get(key)

    def put(self, key: bytes, *, status: int, content_type: bytes, body: bytes, usd_pico: int, deployment: str) -> None:
        if len(body) > LARGEST_BYTES:
            return
        if self.shared is not None:
            answer = SharedAnswer(status, content_type, body, usd_pico, deployment, self.ttl_s)
            self.shared.put(self._prefix + key, answer)
        self._keep(key, CachedAnswer(
            status=status, content_type=content_type, body=body, usd_pico=usd_pico, deployment=deployment,
            until_s=self._now() + self.ttl_s,
        ))  # fmt: skip

    def _keep(self, key: bytes, answer: CachedAnswer) -> None:
        if key in self._kept:
            self._drop(key)
        self._kept[key] = answer
        self._bytes += len(answer.body)
        while len(self._kept) > self.most_items or self._bytes > MOST_BYTES:
            self._drop(next(iter(self._kept)))

    def __len__(self) -> int:
        return len(self._kept)

    def _drop(self, key: bytes) -> None:
        self._bytes -= len(self._kept.pop(key).body)


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
