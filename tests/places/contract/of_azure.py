"""Trials of Azure's places: virtual machines and Azure ML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.azure.jobs import AzureMLJobs
from tonnage.places.azure.place import AzureMLPlace, AzurePlace
from tonnage.places.azure.scale_sets import AzureScaleSets
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import Executor
from tonnage.runs import RunFolder
from tonnage.testing.azure import machine_learning
from tonnage.testing.azure.cloud import IDENTITY, SUBSCRIPTION, FakeAzure
from tonnage.testing.places import PlaceTrial
from tonnage.testing.slurm import free_ports

AZURE_TERMS: dict[str, Any] = {
    "kind": "azure", "subscription": SUBSCRIPTION, "resource_group": "ml", "region": "eastus", "cores": 1,
    "memory_gib": 1, "bucket": "az://runs@account.blob.core.windows.net/tonnage", "instance_type": "Standard_D2s_v5",
    "boot_image": "canonical:ubuntu:server:latest", "identity": IDENTITY, "subnet": "net/runs", "spot": True,
    "ssh_public_key": "ssh-ed25519 AAAA", "grace_s": 8, "time_limit_minutes": 240, "exchange_s": 0.3,
    "python": sys.executable, "image": "registry.example/tonnage@sha256:" + "0" * 64,
}  # fmt: skip


def azure_trial(home: Path, service: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """Azure's machines and Blob Storage; machines are processes of this one."""

    def place(**more: Any) -> BucketRuns:
        terms = AzurePlace(**AZURE_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="azure", name="vm", place=terms, cloud=AzureScaleSets(name="vm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        return sum(one.body["tags"]["tonnage-run"] == folder.path.name for one in service.machines.values())

    def out_of_reach() -> Executor:
        monkeypatch.setenv("TONNAGE_AZURE_MANAGEMENT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)


AZUREML_TERMS: dict[str, Any] = {
    "kind": "azureml", "subscription": SUBSCRIPTION, "resource_group": "ml", "region": "eastus", "workspace": "team",
    "compute": "gpus", "cores": 1, "memory_gib": 1, "bucket": "az://runs@account.blob.core.windows.net/tonnage",
    "instance_type": "Standard_NC24ads_A100_v4", "identity": machine_learning.CLIENT_ID, "spot": True, "grace_s": 8,
    "time_limit_minutes": 240, "exchange_s": 0.3, "python": sys.executable, "image": AZURE_TERMS["image"],
}  # fmt: skip


def azureml_trial(home: Path, service: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """Azure ML's command jobs and Blob Storage; nodes are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = AzureMLPlace(**AZUREML_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="azureml", name="ml", place=terms, cloud=AzureMLJobs(name="ml", place=terms, **more))

    def live(folder: RunFolder) -> list[str]:
        return [name for name, one in service.ml.jobs.items() if one.status not in machine_learning.ENDS
                and one.body["properties"]["tags"]["tonnage-run"] == folder.path.name]  # fmt: skip

    def out_of_reach() -> Executor:
        monkeypatch.setenv("TONNAGE_AZURE_MANAGEMENT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(
        executor=place(), home=home / "here", alive=lambda folder: len(live(folder)),
        preempt=lambda folder: service.ml.preempt(live(folder)[0]), out_of_reach=out_of_reach,
    )  # fmt: skip
