"""Answers of a moment ago: many who look at the same list at once are answered from one reading of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache
from threading import Lock
from time import monotonic
from typing import Final

from tonnage.reports.plain import dump_json
from tonnage.web.asked import Shown

SHARED_S: Final = 1.0  # pages ask again every 3 s
UNCHANGED_S: Final = 3.0  # ages in an answer grow without a change of a file
MOST_KEPT: Final = 1024


class _Kept:
    __slots__ = ("at_s", "lock", "shown", "stamp")

    def __init__(self) -> None:
        self.lock = Lock()
        self.shown: Shown | None = None
        self.at_s = 0.0
        self.stamp: Hashable = None


class RecentAnswers:
    """What was shown in the last second, by what was asked and by whose projects it is of."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Shown], stamp: Hashable = None) -> Shown:
        """What is kept of the key, else what `make` gives; who asks while it is made waits for it. With a stamp (of the
        files that it is read from, before they are read) it is kept for `UNCHANGED_S` while the stamp is the same."""
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        with kept.lock:
            keep_s = UNCHANGED_S if stamp is not None else SHARED_S
            if kept.shown is None or kept.stamp != stamp or self._clock() - kept.at_s >= keep_s:
                kept.shown, kept.at_s, kept.stamp = _once(make()), self._clock(), stamp
            return kept.shown

    def forget(self) -> None:
        """Something was done: what is kept may no longer be so."""
        with self._lock:
            self._kept.clear()


def _once(shown: Shown) -> Shown:
    """The same, its page, document and rows made once each."""
    report = shown.report
    made = replace(report, page=cache(report.page), document=cache(report.document), rows=cache(report.rows))
    kept = replace(shown, report=made, document_text=cache(lambda: dump_json(made.document())))
    return replace(kept, page_html=cache(kept.html))
