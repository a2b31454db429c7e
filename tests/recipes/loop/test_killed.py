"""A run that is killed goes on as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.journal import EventKind

PROGRAM = Path(__file__).with_name("killing.py")
INTERVAL = 5  # steps between checkpoints


def lost_steps(run: Any) -> list[int]:
    return [event.fields["lost_steps"] for event in run.events(EventKind.RESUMED)]


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_leave_the_loss_curve_as_it_was(make_run: Callable[..., Any], kills: int) -> None:
    """Killed at random points by SIGKILL, and by SIGTERM, dropout on: each step's loss has the bits of a run that was
    left alone, and what a kill costs is at most the interval and the checkpoint that was being written."""
    runs = whole, killed, ended = [make_run(name) for name in ("whole", "killed", "ended")]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(kills), *(str(run.folder.path) for run in runs)],
        capture_output=True, text=True, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    printed = [line.split() for line in done.stdout.splitlines() if line.startswith("ended ")]
    codes = [[int(code) for code in words[1:]] for words in printed]
    assert codes[:2] == [[0], [-9] * kills + [0]], done.stderr
    assert set(codes[2][:-1]) <= {75, -15}, done.stderr  # -15: it came before the handler was set
    assert [len(codes[2]), codes[2][-1]] == [kills + 1, 0], done.stderr

    assert sorted(whole.curve()) == list(range(1, 61))
    assert killed.curve() == whole.curve()
    assert ended.curve() == whole.curve()
    assert max(lost_steps(killed)) <= 2 * INTERVAL
    assert set(lost_steps(ended)) <= {0}
    assert whole.result()["metrics"] == killed.result()["metrics"] == ended.result()["metrics"]
