"""What workers on several machines may spend together."""

from __future__ import annotations

from tonnage.batches.allowance import BatchAllowance


def allowance(most_usd: float | None = None, deadline_s: float | None = None, now: float = 0.0) -> BatchAllowance:
    return BatchAllowance(most_usd=most_usd, spent_usd=0.0, deadline_s=deadline_s, clock=lambda: now)


def test_without_limits_all_is_admitted() -> None:
    """Until one worker says stop: then nothing more is."""
    shared = allowance()
    assert [shared.admit(part, 100) for part in (0, 1)] == [(100, None), (100, None)]
    assert shared.at_once() == 200
    shared.stop("upstream", "gone")
    shared.stop("interrupted", "later")
    assert shared.admit(2, 100) == (0, None)
    assert shared.ended() == ("upstream", "gone")


def test_a_limit_is_kept_whatever_is_on_its_way() -> None:
    """One row first, which tells the price; then as many as all together can pay, and the end once nothing is out."""
    shared = allowance(most_usd=1.0)
    assert shared.admit(0, 100)[0] == 1
    assert shared.admit(1, 100)[0] is None
    shared.report(0, 1, 0.01)
    assert shared.admit(0, 99)[0] == 99
    assert shared.admit(1, 100)[0] is None  # 0.01 spent, 0.99 on its way
    shared.report(0, 99, 0.79)
    assert shared.admit(1, 100)[0] == 25  # 0.008 each
    shared.report(1, 25, 0.2)
    assert shared.admit(1, 75)[0] == 0
    assert shared.ended()[0] == "cost"


def test_a_part_that_is_asked_again_is_counted_once() -> None:
    """Its worker was killed."""
    shared = allowance()
    shared.admit(0, 100)
    shared.admit(0, 100)
    assert shared.at_once() == 100


def test_a_deadline_ends_all() -> None:
    """What is left of it is told to each."""
    now = [0.0]
    shared = BatchAllowance(most_usd=None, spent_usd=0.0, deadline_s=10.0, clock=lambda: now[0])
    now[0] = 4.0
    assert shared.admit(0, 5) == (5, 6.0)
    now[0] = 10.0
    assert shared.admit(1, 5)[0] == 0
    assert shared.ended()[0] == "deadline"
