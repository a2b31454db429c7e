"""A run on a GPU that is killed, or stopped, goes on as if nothing had been: the same losses, step for step."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tonnage.runs.journal import EventKind

if TYPE_CHECKING:
    from .conftest import Home

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
STEPS = 400


def file_of(home: Home, device: str, precision: str) -> Path:
    """A language model with dropout, attention step by step: nothing in it adds in an order that differs."""
    run: dict[str, Any] = {"device": device, "max_steps": STEPS, "log_every": 1, "checkpoint": {"every_steps": 20}}
    return home.starter(
        "causal-lm", data={"epochs": 100}, train={"precision": precision, "attention": "eager"}, run=run
    )


def at_step(home: Home, name: str, step: int) -> bool:
    file = home.folder(name).metrics_file
    return file.exists() and f'"step": {step},' in file.read_text()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_killed(home: Home, device: str, precision: str) -> None:
    """SIGKILL to the worker in the middle: it is started again from its checkpoint, scaler and randomness with it."""
    if device == "cpu" and precision == "fp16":
        pytest.skip("needs a GPU")
    file = file_of(home, device, precision)
    home.run(file, "whole")
    home.tonnage("run", str(file), "--name", "killed", "-y", "--detach")
    home.wait_for("killed", lambda: at_step(home, "killed", 50))
    (worker,) = home.workers("killed")
    worker.send_signal(signal.SIGKILL)
    home.wait_for("killed", home.folder("killed").result_file.exists)
    assert len(home.events("killed", EventKind.STARTED)) == 2
    resumed = [event.fields["step"] for event in home.events("killed", EventKind.RESUMED)]
    assert resumed[-1] >= 20
    assert home.losses("killed") == home.losses("whole")


def test_stopped_and_resumed(home: Home, device: str) -> None:
    """`tonnage stop` saves a checkpoint that verifies; `tonnage resume` goes on from it to the same losses."""
    file = file_of(home, device, "bf16" if device == "cuda" else "fp32")
    home.run(file, "whole")
    home.tonnage("run", str(file), "--name", "stopped", "-y", "--detach")
    home.wait_for("stopped", lambda: at_step(home, "stopped", 30))
    home.tonnage("stop", "stopped")
    home.wait_for("stopped", lambda: home.shown("stopped")["state"] == "stopped")
    state = home.folder("stopped").state()
    assert state.checkpoint_step == state.step > 0
    home.tonnage("resume", "stopped")
    assert home.losses("stopped") == home.losses("whole")
