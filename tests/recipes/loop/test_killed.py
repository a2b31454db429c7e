"""A run that is killed goes on as if nothing had happened."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tonnage.runs.journal import EventKind


def kill_and_compare(make_run: Callable[..., Any], number: signal.Signals, *, kills: int) -> None:
    whole, killed = make_run("whole"), make_run("killed")
    assert whole.start("SIGKILL", "0", "0", script="killing.py").stdout.split() == ["0"]
    ended = killed.start(number.name, "1", str(kills), script="killing.py")
    *codes, last = map(int, ended.stdout.split())
    assert len(codes) == kills, ended.stderr
    assert set(codes) <= ({-9} if number is signal.SIGKILL else {75, -15})  # -15: it came before the handler was set
    assert last == 0, ended.stderr
    assert whole.curve() == killed.curve()
    assert sorted(killed.curve()) == list(range(1, 61))
    lost = [event.fields["lost_steps"] for event in killed.events(EventKind.RESUMED)]
    assert max(lost) <= (5 + 4 if number is signal.SIGKILL else 0)  # an interval, and one whose save was cut short
    assert whole.result()["metrics"] == killed.result()["metrics"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_three_kills_leave_the_loss_curve_as_it_was(make_run: Callable[..., Any], number: signal.Signals) -> None:
    """Killed at three random points, dropout on: every step's loss has the same bits as without a kill."""
    kill_and_compare(make_run, number, kills=3)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_twenty_kills_leave_the_loss_curve_as_it_was(make_run: Callable[..., Any], number: signal.Signals) -> None:
    """The same, killed at twenty random points."""
    kill_and_compare(make_run, number, kills=20)
