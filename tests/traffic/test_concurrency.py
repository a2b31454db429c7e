"""Concurrency by feedback, against services whose throughput is known: no clock, no socket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tonnage.traffic.concurrency import ConcurrencySearch


def carried(rate_of: Callable[[int], float], seconds: float, search: ConcurrencySearch | None = None) -> float:
    """Answers in so many seconds of a service that answers `rate_of(limit)` a second."""
    search = search or ConcurrencySearch()
    now_s, answers = 0.0, 0
    while now_s < seconds:
        now_s += 1.0 / rate_of(search.limit)
        answers += 1
        search.answered(now_s)
    return answers


@pytest.mark.parametrize("slots", [1, 5, 32, 200, 900])
def test_all_places_of_a_service_are_found(slots: int) -> None:
    """Items of 20 ms in `slots` places: after ten seconds of search, 97 % of what those places can do."""

    def rate(limit: int) -> float:
        return min(limit, slots) / 0.02

    search = ConcurrencySearch()
    carried(rate, 10.0, search)
    assert carried(rate, 30.0, _moved(search)) >= 0.97 * 30.0 * slots / 0.02


def _moved(search: ConcurrencySearch) -> ConcurrencySearch:
    """The same search with its clock at nought."""
    search._begin(0.0)
    return search


def test_a_service_that_chokes_is_not_pushed() -> None:
    """Throughput falls beyond 16 at a time: the search stays near it, not at its ceiling."""
    search = ConcurrencySearch()
    carried(lambda limit: 50.0 * min(limit, 16) * min(1.0, (16 / limit) ** 0.5), 60.0, search)
    assert 8 <= search.limit <= 24


def test_refusals_give_way_once_a_window() -> None:
    """Fifty requests refused together lower the limit by three tenths, not to one; later it climbs again."""
    search = ConcurrencySearch(first=100)
    for _ in range(50):
        search.refused(1.0)
    assert search.limit == 70
    carried(lambda limit: 50.0 * limit, 60.0, search)
    assert search.limit > 70


def test_the_ceiling_holds() -> None:
    """Never above the most, never below one."""
    search = ConcurrencySearch(most=10)
    carried(lambda limit: 100.0 * limit, 20.0, search)
    assert search.limit <= 10
    for second in range(40):
        search.refused(float(second))
        search.answered(second + 0.5)
        search._begin(second + 0.6)
    assert search.limit == 1
