"""Answers that are kept: exact, of a tenant, and only where the same answer is meant to come again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import orjson

from tonnage.gateway.file.described import Caller
from tonnage.gateway.proxy.asked import GatewayRequest
from tonnage.gateway.shared_cache import SharedAnswer, SharedCache
from tonnage.http.connection import Headers
from tonnage.values import dataclass

LARGEST_BYTES: Final = 4 << 20  # of an answer
MOST_BYTES: Final = 256 << 20  # of all, in a worker
_NOT_OF_THE_ANSWER: Final = ("user", "metadata", "safety_identifier", "store")  # say who asks, not what


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
