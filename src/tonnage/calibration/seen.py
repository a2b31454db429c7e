"""Which ids a file has shown already, in eight bytes each."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

_RECENT: Final = 65_536


class SeenIds:
    """A growing set of texts that keeps a 64-bit digest of each: two ids of a million collide with odds of 1 in 10⁷."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def add(self, text: str) -> bool:
        """Remember `text`; True when it was there before.

        >>> seen = SeenIds()
        >>> seen.add("t1"), seen.add("t2"), seen.add("t1")
        (False, False, True)
        """
        digest = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
        if digest in self._recent or self._holds(digest):
            return True
        self._recent.add(digest)
        if len(self._recent) >= _RECENT:
            fresh = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
            self._sorted = np.union1d(self._sorted, fresh)
            self._recent.clear()
        return False

    def _holds(self, digest: int) -> bool:
        place = int(self._sorted.searchsorted(np.uint64(digest)))
        return place < len(self._sorted) and int(self._sorted[place]) == digest
