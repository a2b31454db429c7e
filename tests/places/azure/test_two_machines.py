"""Real training over two machines of a pretended scale set that share no folder: one is evicted, a resume follows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.places.two_machines import is_second, train_and_take, wait

from tonnage.testing.azure.cloud import IDENTITY, SUBSCRIPTION, FakeAzure

pytestmark = pytest.mark.slow
PLACE = """[places.two]
kind = "azure"
nodes = 2
subscription = "{subscription}"
resource_group = "ml"
region = "eastus"
bucket = "az://runs@account.blob.core.windows.net/tonnage"
image = "registry.example/tonnage@sha256:{digest}"
instance_type = "Standard_D2s_v5"
boot_image = "canonical:ubuntu:server:latest"
identity = "{identity}"
subnet = "net/runs"
ssh_public_key = "ssh-ed25519 AAAA"
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


def test_two_machines_train_one_is_evicted_and_they_go_on(
    tmp_path: Path, azure: FakeAzure, desk_at: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second machine has a Preempt event: the run is saved on the first, both end; `resume` has equal losses."""
    monkeypatch.setattr(azure, "notice_s", 25.0)
    place = PLACE.format(
        subscription=SUBSCRIPTION, digest="0" * 64, identity=IDENTITY, python=sys.executable, mount=tmp_path / "there"
    )

    def take() -> None:
        assert len(azure.machines) == 2
        [second] = [name for name, one in azure.machines.items() if is_second(one.machine)]
        azure.evict(second)
        wait(lambda: all(one.power != "running" for one in azure.machines.values()))

    train_and_take(desk_at(tmp_path / "home", place), tmp_path / "st", take)
