"""Real training over two instances of a pretended EC2 that share no folder: a notice to one, a resume, equal losses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import boto3
from tests.places.two_machines import is_second, train_and_take, wait

from tonnage.testing.aws.ec2 import FakeEC2

pytestmark = pytest.mark.slow
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
