"""Real training over two instances of a pretended EC2 that share no folder: a notice to one, a resume, equal losses."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import boto3
import psutil

from tonnage.runs import RunFolder
from tonnage.testing.aws.ec2 import FakeEC2
from tonnage.testing.machines import FakeMachine

pytestmark = pytest.mark.slow
LONGEST_S = 240.0
FILE = "sequence-classification.tonnage.yaml"
PLACE = """[places.two]
kind = "ec2"
nodes = 2
efa = false
region = "us-east-1"
bucket = "s3://runs/tonnage"
image = "registry.example/tonnage@sha256:{digest}"
instance_type = "m5.large"
ami = "{ami}"
instance_profile = "tonnage-run"
subnets = ["{subnet}"]
security_groups = ["{group}"]
spot = true
cores = 1
memory_gib = 2
time_limit_minutes = 30
grace_s = 20
exchange_s = 0.5
python = "{python}"
mount = "{mount}"
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
    tmp_path: Path,
    aws: str,
    ec2: FakeEC2,
    aws_network: dict[str, str],
    desk_at: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second machine has a notice: the run is saved on the first, all end; `resume` has the undisturbed losses."""
    monkeypatch.setattr(ec2, "notice_s", 25.0)
    place = PLACE.format(
        digest="0" * 64, ami=aws_network["ami"], subnet=aws_network["subnet"], group=aws_network["group"],
        python=sys.executable, mount=tmp_path / "there",
    )  # fmt: skip
    itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": aws_network["group"]}]}
    boto3.client("ec2", endpoint_url=aws).authorize_security_group_ingress(
        GroupId=aws_network["group"], IpPermissions=[itself]
    )

    def take() -> None:
        assert len(ec2.instances) == 2
        [second] = [name for name, one in ec2.instances.items() if is_second(one.machine)]
        ec2.interrupt(second)
        wait(lambda: all(one.state == "terminated" for one in ec2.instances.values()))

    train_and_take(desk_at(tmp_path / "home", place), tmp_path / "st", take)


def train_and_take(desk: Any, starter: Path, take: Callable[[], None]) -> None:
    """A run at the place `two`, whose second machine `take` takes away: lost, saved, resumed, with equal losses."""
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(starter))
    file = starter / FILE
    file.write_text(file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 25"))
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


def is_second(machine: FakeMachine | None) -> bool:
    """The one whose workers have a folder of a further machine."""
    assert machine is not None
    below = psutil.Process(machine.process.pid).children(recursive=True)
    return any("-machine-1" in " ".join(one.cmdline()) for one in below)
