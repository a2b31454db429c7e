"""What the rounds of a cross-validation share: leaving a family out changes few of the cases and fits."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")
V = TypeVar("V")
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


class Reads:
    """A value that notes which of its fields are read, and what they are."""

    __slots__ = ("held", "read")

    def __init__(self, held: object) -> None:
        self.held, self.read = held, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        value = self.read[name] = getattr(self.held, name)
        if callable(value):
            raise TypeError(f"what {name}() reads would go unnoticed")
        return value


class ReadMemo(Generic[T]):
    """The last results of a function of one value, by the fields of it that the function reads.

    >>> memo: ReadMemo[int] = ReadMemo()
    >>> memo.recall(1 + 2j, lambda of: of.real), memo.recall(1 + 3j, lambda of: 0.0)
    (1.0, 1.0)
    """

    def __init__(self, most: int = 6) -> None:
        self._held: list[tuple[dict[str, Any], T]] = []
        self._most = most

    def recall(self, value: V, make: Callable[[V], T]) -> T:
        """What `make` gave for a value with the same fields, as far as it reads them, or gives now."""
        for place, (read, result) in enumerate(self._held):
            if all(getattr(value, name) == seen for name, seen in read.items()):
                if place:
                    self._held.insert(0, self._held.pop(place))
                return result
        reads = Reads(value)
        made = make(cast(V, reads))
        self._held.insert(0, (reads.read, made))
        del self._held[self._most :]
        return made


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
