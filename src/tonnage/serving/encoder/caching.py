"""Answers kept by all that they depend on: the model's bytes, the task, the text, how it is cut, whose they are."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Protocol

from tonnage.errors import InputError, MissingExtra

KEPT_S: Final = 24 * 3600  # in Redis
URL_VARIABLE: Final = "TONNAGE_SERVE_CACHE_URL"  # for a URL with a password: no file and no command holds it
PREFIX: Final = b"tonnage:answer:"
Kept = tuple[Any, int]  # an answer, and the tokens of its text


class AnswerCache(Protocol):
    """Kept answers by key; None: not kept, or no longer."""

    async def read(self, keys: Sequence[bytes]) -> list[Kept | None]: ...

    async def keep(self, answers: Sequence[tuple[bytes, Kept]]) -> None: ...


def key_of(version: str, tenant: bytes, parts: Sequence[bytes], *, cut: bool) -> bytes:
    """The digest under which an answer is kept. Each part comes with its length: no two run into one another.

    `version` is of the model's bytes and task; `tenant` the key that the request carried; `parts` what was asked.
    """
    made = hashlib.blake2b(digest_size=20)
    for part in (version.encode(), tenant, b"cut" if cut else b"whole", *parts):
        made.update(len(part).to_bytes(8, "little") + part)
    return made.digest()


class MemoryCache:
    """The answers used last, in this process."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()

    async def read(self, keys: Sequence[bytes]) -> list[Kept | None]:
        found = [self._kept.get(key) for key in keys]
        for key, kept in zip(keys, found, strict=True):
            if kept is not None:
                self._kept.move_to_end(key)
        return found

    async def keep(self, answers: Sequence[tuple[bytes, Kept]]) -> None:
        self._kept.update(answers)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)


class RedisCache:
    """Kept in Redis for a day, shared by replicas. A Redis that does not answer is no cache, not an error."""

    def __init__(self, url: str) -> None:
        try:
            library: Any = importlib.import_module("redis.asyncio")
            orjson: Any = importlib.import_module("orjson")
        except ImportError as error:
            raise MissingExtra("a cache in Redis", "redis") from error
        try:
            self._client = library.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0)
        except ValueError as error:
            raise InputError("the cache's URL cannot be used", hint="redis://HOST:PORT/0") from error
        self._errors = importlib.import_module("redis").RedisError
        self._load, self._orjson = orjson.loads, orjson
        self.failures = 0

    async def read(self, keys: Sequence[bytes]) -> list[Kept | None]:
        try:
            found = await self._client.mget([PREFIX + key for key in keys])
        except self._errors:
            self.failures += 1
            return [None] * len(keys)
        return [None if one is None else tuple(self._load(one)) for one in found]

    async def keep(self, answers: Sequence[tuple[bytes, Kept]]) -> None:
        write = self._orjson.OPT_SERIALIZE_NUMPY
        pipe = self._client.pipeline(transaction=False)
        for key, kept in answers:
            pipe.set(PREFIX + key, self._orjson.dumps(kept, option=write), ex=KEPT_S)
        try:
            await pipe.execute()
        except self._errors:
            self.failures += 1


def open_cache(items: int, url: str | None) -> AnswerCache | None:
    """As the service says: in Redis, in this process, or none."""
    url = os.environ.get(URL_VARIABLE) or url
    if url is not None:
        return RedisCache(url)
    return MemoryCache(items) if items else None
