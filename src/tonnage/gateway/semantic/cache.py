"""A route's kept answers, found by what a question means: a deployment makes embeddings, the nearest one decides."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tonnage.gateway.caching import CachedAnswer, RouteCache
from tonnage.gateway.file.conduct_entries import SemanticEntry
from tonnage.gateway.file.described import Caller
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN
from tonnage.gateway.proxy.side_request import SideRequest, SideRequests
from tonnage.gateway.semantic.embeddings import Vectors, embeddings_body, read_embeddings
from tonnage.gateway.semantic.questions import Question, numbers_in

if TYPE_CHECKING:
    from tonnage.gateway.money.book import SpendBook
    from tonnage.gateway.proxy.running import Running

TEMPLATE_TOKENS: Final = 16  # what a model of embeddings adds around a text


class Given(NamedTuple):
    """An answer that was given to a question like this one."""

    answer: CachedAnswer
    similarity: float


class SemanticCache:
    """Of one route in one worker. `cache`: where its answers are."""

    def __init__(self, entry: SemanticEntry, running: Running, book: SpendBook, cache: RouteCache) -> None:
        self.entry, self.cache = entry, cache
        self._asking = SideRequests(entry.deployment, running, book)
        self._index = QuestionIndex(cache.most_items)

    async def find(
        self, question: Question, rest: bytes, key: bytes, *, caller: Caller, route: str, request: str
    ) -> Given | None:
        """The answer to the nearest question whose request is equal otherwise (`rest`) and has the same numbers. None:
        there is none near enough; what is answered now under `key` will be found from now on. Raises SideFailed."""
        vector = await self._vector(question.text, caller, route, request)
        group = (rest, numbers_in(question.text))
        while (near := self._index.nearest(group, vector)) is not None and near.similarity >= self.entry.at_least:
            answer = self.cache.get(near.key)
            if answer is not None:
                return Given(answer, near.similarity)
            self._index.drop(near.key)  # its answer was not kept, or has left
        self._index.add(group, vector, key)
        return None

    async def _vector(self, text: str, caller: Caller, route: str, request: str) -> Vectors:
        asked = embedding_request(self._asking.deployment.model, [text], "semantic-cache")
        found = await self._asking.ask(
            asked, lambda status, body: read_embeddings(status, body, 1), caller=caller, route=route, request=request
        )
        row: Vectors = found[0]
        return row


def embedding_request(model: str, texts: Sequence[str], outcome: str) -> SideRequest:
    """The embeddings of some texts, with the tokens they are booked and held with."""
    sizes = [len(text.encode()) for text in texts]
    return SideRequest(
        target=b"/embeddings",
        body=embeddings_body(model, texts),
        tokens=sum(size // BYTES_PER_TOKEN + 1 for size in sizes),
        most_tokens=sum(sizes) + TEMPLATE_TOKENS * len(texts),
        outcome=outcome,
    )


def semantic_caches(running: Running, book: SpendBook) -> dict[str, SemanticCache]:
    """By route, those that ask for it."""
    return {
        name: SemanticCache(route.cache.semantic, running, book, running.caches[name])
        for name, route in running.gateway.routes.items()
        if route.cache is not None and route.cache.semantic is not None
    }


GROWTH: Final = 16  # rows that a table begins with; twice as many each time it is full


class SimilarAnswer(NamedTuple):
    """The key of a kept answer, and the cosine of both questions."""

    key: bytes
    similarity: float


class _VectorTable:
    """Vectors of questions whose requests are equal otherwise, with the keys of their answers."""

    def __init__(self, dimensions: int) -> None:
        self.vectors = np.zeros((GROWTH, dimensions), dtype=np.float32)
        self.keys: list[bytes] = []

    def add(self, vector: Vectors, key: bytes) -> None:
        if len(self.keys) == len(self.vectors):
            self.vectors = np.concatenate((self.vectors, np.zeros_like(self.vectors)))
        self.vectors[len(self.keys)] = vector
        self.keys.append(key)

    def drop(self, key: bytes) -> None:
        at, last = self.keys.index(key), len(self.keys) - 1
        self.vectors[at], self.keys[at] = self.vectors[last], self.keys[last]
        self.keys.pop()


class QuestionIndex:
    """At most `most` questions, the oldest leaving first. A group is all that must be equal."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._tables: dict[tuple[object, ...], _VectorTable] = {}
        self._groups: OrderedDict[bytes, tuple[object, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._groups)

    def nearest(self, group: tuple[object, ...], vector: Vectors) -> SimilarAnswer | None:
        """None: the group has no question, or ones of another model of embeddings."""
        table = self._tables.get(group)
        if table is None or table.vectors.shape[1] != len(vector):
            return None
        cosines = table.vectors[: len(table.keys)] @ vector
        best = int(np.argmax(cosines))
        return SimilarAnswer(table.keys[best], float(cosines[best]))

    def add(self, group: tuple[object, ...], vector: Vectors, key: bytes) -> None:
        if key in self._groups:
            self.drop(key)
        table = self._tables.get(group)
        if table is None or table.vectors.shape[1] != len(vector):
            table = self._tables[group] = _VectorTable(len(vector))
        table.add(vector, key)
        self._groups[key] = group
        while len(self._groups) > self.most:
            self.drop(next(iter(self._groups)))

    def drop(self, key: bytes) -> None:
        group = self._groups.pop(key)
        table = self._tables[group]
        if key in table.keys:
            table.drop(key)
        if not table.keys:
            del self._tables[group]
