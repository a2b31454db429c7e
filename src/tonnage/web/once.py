"""Requests with an Idempotency-Key are done once, also where two ask at once or the server restarts."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import Lock
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.store.answers import AnswerStore, AskedOnce, EarlierAnswer
from tonnage.web.access import Denied

MOST_LOCKS: Final = 1_000


class OnceOnly:
    """`url`: of the database that keeps the answers; opened with the first key."""

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, Lock()
        self._store: AnswerStore | None = None
        self._locks: OrderedDict[AskedOnce, Lock] = OrderedDict()

    def answer(self, asked: AskedOnce, body: Mapping[str, Any], do: Callable[[], str]) -> str:
        """The document that `do` gives, or gave to an earlier request of the key.

        Raises Denied: 422 where the key came with another body, 409 where the earlier one is under way or how it ended
        is not known; and what `do` raises: its key is free again then.
        """
        text = json.dumps(body, sort_keys=True)
        with self._turn(asked):
            store = self._opened()
            earlier = store.begin(asked, text)
            if earlier is not None:
                return _given(earlier)
            try:
                document = do()
            except TonnageError:
                store.forget(asked)
                raise
            store.finish(asked, document)
            return document

    def _turn(self, asked: AskedOnce) -> Lock:
        with self._lock:
            found = self._locks.setdefault(asked, Lock())
            self._locks.move_to_end(asked)
            for one in list(self._locks)[:-MOST_LOCKS]:
                if not self._locks[one].locked():
                    del self._locks[one]
            return found

    def _opened(self) -> AnswerStore:
        with self._lock:
            if self._store is None:
                self._store = AnswerStore(self._url)
            return self._store


def _given(earlier: EarlierAnswer) -> str:
    if not earlier.same_body:
        raise Denied(HTTPStatus.UNPROCESSABLE_ENTITY, "this Idempotency-Key came with another body",
                     hint="a new key for a new request")  # fmt: skip
    if earlier.document is None:
        at = earlier.begun_at.isoformat(timespec="seconds")
        raise Denied(HTTPStatus.CONFLICT, f"a request of this key was begun at {at}, and its answer is not known",
                     hint="look at the run, then ask with a new key where it was not done")  # fmt: skip
    return earlier.document
