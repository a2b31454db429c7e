"""Real training over two instances of a pretended Compute Engine: a notice to one, a resume, equal losses, two logs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.places.two_machines import is_second, train_and_take, wait

from tonnage.testing.google.cloud import ACCOUNT, FakeGoogle

pytestmark = pytest.mark.slow
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


def test_two_machines_train_are_taken_and_go_on(
    tmp_path: Path, google: FakeGoogle, desk_at: Callable[..., Any]
) -> None:
    """Spot takes the second: the run is saved on the first, all end; `resume` has the undisturbed losses."""
    google.spot_grace_s = 30.0
    place = f'{PLACE}python = "{sys.executable}"\nmount = "{tmp_path / "there"}"\n'
    desk = desk_at(tmp_path / "home", place)
    taken: list[str] = []

    def take() -> None:
        assert len(google.instances) == 2
        [second] = [name for name, one in google.instances.items() if is_second(one.machine)]
        google.interrupt(second)
        taken.append(second)
        wait(lambda: all(one.status == "TERMINATED" for one in google.instances.values()))

    folder = train_and_take(desk, tmp_path / "st", take, epochs=40)
    assert taken[0] not in google.instances
    assert (folder.path / "log-machine-2.txt").exists()
    desk.tonnage("places", "collect", "taken")
    desk.tonnage("places", "collect", "plain")
    wait(lambda: google.instances == {})
