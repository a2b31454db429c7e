"""A route's kept answers, found by what a question means: a deployment makes embeddings, the nearest one decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tonnage.gateway.caching import CachedAnswer, RouteCache
from tonnage.gateway.file.conduct_entries import SemanticEntry
from tonnage.gateway.file.described import Caller
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN
from tonnage.gateway.proxy.side_request import SideRequest, SideRequests
from tonnage.gateway.semantic.embeddings import Vectors, embeddings_body, read_embeddings
from tonnage.gateway.semantic.index import QuestionIndex
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
