"""Real training over two machines of a pretended cloud that share no folder: one is taken away, and the run goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from tonnage.runs import RunFolder
from tonnage.testing.machines import FakeMachine

LONGEST_S: Final = 600.0
FILE: Final = "sequence-classification.tonnage.yaml"


def wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < until, "it did not come so far in time"
        time.sleep(0.5)


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def train_and_take(desk: Any, starter: Path, take: Callable[[], None], *, epochs: int = 25) -> RunFolder:
    """A run at the place `two`, whose second machine `take` takes away: lost, saved, resumed, with the losses of one
    that nothing disturbs. The folder of the first."""
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(starter))
    file = starter / FILE
    file.write_text(file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", f"epochs: {epochs}"))
    words = ["--runner", "torchrun", "--processes", "2", "-d", "-y"]

    def status(name: str) -> RunFolder:
        desk.tonnage("ps", "-a")
        found: RunFolder = desk.folder(name)
        return found

    desk.tonnage("run", str(file), "--on", "two", "--name", "taken", *words)
    wait(lambda: status("taken").state().step > 4)
    take()
    folder = status("taken")
    assert folder.state().state.value == "lost"
    at = folder.state().checkpoint_step
    assert at is not None
    assert at == folder.state().step
    desk.tonnage("resume", "taken", "-d")
    wait(lambda: status("taken").state().state.ended and status("taken").state().attempt > 1)
    assert folder.state().state.value == "succeeded", folder.log_file.read_text()[-2000:]
    assert folder.state().lost_steps == 0
    desk.tonnage("run", str(file), "--on", "two", "--name", "plain", *words)
    wait(lambda: status("plain").state().state.ended)
    assert losses(folder) == losses(desk.folder("plain"))
    return folder


def is_second(machine: FakeMachine | None) -> bool:
    """The one whose workers have a folder of a further machine."""
    assert machine is not None
    below = psutil.Process(machine.process.pid).children(recursive=True)
    return any("-machine-1" in " ".join(one.cmdline()) for one in below)
