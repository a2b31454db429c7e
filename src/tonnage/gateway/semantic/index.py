"""Questions that were answered, by their vectors: which kept answer is to the question that is nearest."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np

from tonnage.gateway.semantic.embeddings import Vectors

GROWTH: Final = 16  # rows that a table begins with; twice as many each time it is full


class SimilarAnswer(NamedTuple):
    """The key of a kept answer, and the cosine of both questions."""

    key: bytes
    similarity: float


class _Table:
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
        self._tables: dict[tuple[object, ...], _Table] = {}
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
            table = self._tables[group] = _Table(len(vector))
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
