"""What the rounds of a cross-validation share: leaving a family out changes few of the cases and fits."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T")
MOST: Final = 100_000  # results held; the oldest go first


class Same:
    """A key that only this very object equals. It holds the object, so that no other takes its place in memory."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


class Memo:
    """Results of pure functions by all that they depend on: values, and objects wrapped in `Same`."""

    def __init__(self, most: int = MOST) -> None:
        self._held: dict[tuple[Hashable, ...], Any] = {}
        self._most = most

    def recall(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """What `make` gave for an equal key, or gives now.

        >>> memo = Memo()
        >>> memo.recall(("square", 3), lambda: 9), memo.recall(("square", 3), lambda: 0)
        (9, 9)
        """
        if key in self._held:
            found: T = self._held[key]
            return found
        made = make()
        if len(self._held) >= self._most:
            del self._held[next(iter(self._held))]
        self._held[key] = made
        return made


MEMO: Final = Memo()
