"""Answers of keyed requests: kept for a week, one a key, whoever of several servers is first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from tonnage.store.answers import KEPT_FOR, AnswerStore, AskedOnce

ASKED = AskedOnce(caller="ann", address="/api/v1/runs/x/stop", key="one")


def test_an_answer_is_found_by_another_opening(url: str) -> None:
    """With whether the body was the same; of another caller, address or key nothing is known."""
    first = AnswerStore(url)
    assert first.begin(ASKED, "{}") is None
    begun = first.begin(ASKED, "{}")
    assert begun is not None
    assert begun.document is None
    first.finish(ASKED, "done")
    first.close()
    second = AnswerStore(url)
    found, other = second.begin(ASKED, "{}"), second.begin(ASKED, "[]")
    assert found is not None
    assert other is not None
    assert (found.document, found.same_body, other.same_body) == ("done", True, False)
    for caller, address, key in (("bob", ASKED.address, "one"), ("ann", "/other", "one"), ("ann", ASKED.address, "2")):
        assert second.begin(AskedOnce(caller=caller, address=address, key=key), "{}") is None
    second.forget(ASKED)
    assert second.begin(ASKED, "{}") is None
    second.close()


def test_an_old_answer_is_forgotten(url: str) -> None:
    """A key of more than a week ago is a new one."""
    now = [datetime(2026, 1, 2, tzinfo=UTC)]
    store = AnswerStore(url, clock=lambda: now[0])
    assert store.begin(ASKED, "{}") is None
    now[0] += KEPT_FOR
    assert store.begin(ASKED, "{}") is not None
    now[0] += timedelta(seconds=1)
    assert store.begin(ASKED, "{}") is None
    store.close()


def test_one_of_many_is_first(url: str) -> None:
    """Eight at once over four openings: one is told to go on."""
    stores = [AnswerStore(url) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: stores[place % 4].begin(ASKED, "{}"), range(8)))
    assert sum(one is None for one in found) == 1
    for one in stores:
        one.close()
