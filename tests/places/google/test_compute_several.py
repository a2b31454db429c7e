"""Real training over two instances of a pretended Compute Engine: a notice to one, a resume, equal losses, two logs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import psutil

from tonnage.runs import RunFolder
from tonnage.testing.google.cloud import ACCOUNT, FakeGoogle

pytestmark = pytest.mark.slow
LONGEST_S = 600.0
FILE = "sequence-classification.tonnage.yaml"
PLACE = f"""[places.two]
kind = "gce"
nodes = 2
project = "my-project"
region = "us-central1"
zones = ["us-central1-a"]
bucket = "gs://runs/tonnage"
image = "registry.example/tonnage@sha256:{"0" * 64}"
instance_type = "n2-standard-2"
boot_image = "projects/ml/global/images/family/gpu"
service_account = "{ACCOUNT}"
spot = true
cores = 1
memory_gib = 2
time_limit_minutes = 30
grace_s = 20
exchange_s = 6
usd_per_hour = 3.0
"""


def wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < until, "it did not come so far in time"
        time.sleep(0.5)


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def test_two_machines_train_are_taken_and_go_on(
    tmp_path: Path, google: FakeGoogle, desk_at: Callable[..., Any]
) -> None:
    """Spot takes the second: the run is saved on the first, all end; `resume` has the undisturbed losses."""
    google.spot_grace_s = 30.0
    place = f'{PLACE}python = "{sys.executable}"\nmount = "{tmp_path / "there"}"\n'
    desk = desk_at(tmp_path / "home", place)
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(tmp_path / "st"))
    file = tmp_path / "st" / FILE
    file.write_text(file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 40"))
    words = ["--runner", "torchrun", "--processes", "2", "-d", "-y"]

    def status(name: str) -> RunFolder:
        desk.tonnage("ps", "-a")
        found: RunFolder = desk.folder(name)
        return found

    desk.tonnage("run", str(file), "--on", "two", "--name", "taken", *words)
    wait(lambda: status("taken").state().step > 4)
    assert len(google.instances) == 2
    [second] = [name for name in google.instances if is_second(google, name)]
    google.interrupt(second)
    wait(lambda: all(one.status == "TERMINATED" for one in google.instances.values()))
    folder = status("taken")
    assert folder.state().state.value == "lost"
    assert second not in google.instances
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
    assert (folder.path / "log-machine-2.txt").exists()
    desk.tonnage("places", "collect", "taken")
    desk.tonnage("places", "collect", "plain")
    wait(lambda: google.instances == {})


def is_second(google: FakeGoogle, name: str) -> bool:
    """The one whose workers have a folder of a further machine."""
    machine = google.instances[name].machine
    assert machine is not None
    below = psutil.Process(machine.process.pid).children(recursive=True)
    return any("-machine-1" in " ".join(one.cmdline()) for one in below)
