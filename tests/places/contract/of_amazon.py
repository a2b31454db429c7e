"""Trials of Amazon's places: SageMaker, EC2 and AWS Batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.aws.batch import BatchJobs
from tonnage.places.aws.ec2 import EC2
from tonnage.places.aws.place import BatchPlace, EC2Place, SageMakerPlace
from tonnage.places.aws.sagemaker import SageMaker
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import Executor
from tonnage.runs import RunFolder
from tonnage.testing.aws.batch import ENDS as BATCH_ENDS
from tonnage.testing.aws.batch import FakeBatch
from tonnage.testing.aws.ec2 import FakeEC2
from tonnage.testing.aws.sagemaker import FakeSageMaker
from tonnage.testing.places import PlaceTrial
from tonnage.testing.slurm import free_ports

SAGEMAKER = {
    "kind": "sagemaker", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 1, "memory_gib": 1,
    "image": f"123456789012.dkr.ecr.us-east-1.amazonaws.com/tonnage@sha256:{'0' * 64}", "spot": True,
    "role": "arn:aws:iam::123456789012:role/tonnage-run", "instance_type": "ml.g5.2xlarge", "python": sys.executable,
    "time_limit_minutes": 5, "grace_s": 8, "exchange_s": 0.2,
}  # fmt: skip


def sagemaker_trial(home: Path, service: FakeSageMaker, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """SageMaker's documented life cycle, S3 by moto; containers are processes of this machine."""

    def place(**more: int) -> BucketRuns:
        terms = SageMakerPlace(**SAGEMAKER, mount=str(home / "there"))
        return BucketRuns(kind="sagemaker", name="sm", place=terms, cloud=SageMaker(name="sm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        live = [name for name, job in service.jobs.items() if job.status in {"InProgress", "Stopping"}]
        return sum(f"t-{folder.path.name}-" in name for name in live)

    def preempt(folder: RunFolder) -> None:
        [name] = [name for name in service.jobs if f"t-{folder.path.name}-" in name]
        service.interrupt(name)

    def out_of_reach() -> Executor:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(
        executor=place(), home=home / "here", preempt=preempt, alive=alive, out_of_reach=out_of_reach,
    )  # fmt: skip


EC2_TERMS: dict[str, Any] = {
    "kind": "ec2", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 1, "memory_gib": 1, "spot": True,
    "image": "registry.example/tonnage@sha256:" + "0" * 64, "ami": "ami-0123456789abcdef0", "grace_s": 8,
    "instance_profile": "tonnage-run", "instance_type": "m5.large", "time_limit_minutes": 240, "exchange_s": 0.5,
    "python": sys.executable,
}  # fmt: skip


def ec2_trial(home: Path, service: FakeEC2, network: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """EC2's instant fleets and the life of an instance, the rest by moto; instances are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = EC2Place(
            **EC2_TERMS | {"ami": network["ami"]}, mount=str(home / "there"), subnets=[network["subnet"]],
            security_groups=[network["group"]],
        )  # fmt: skip
        return BucketRuns(kind="ec2", name="vm", place=terms, cloud=EC2(name="vm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        live = [one for one in service.instances.values() if one.state != "terminated"]
        return sum(one.tags["tonnage-run"] == folder.path.name for one in live)

    def out_of_reach() -> Executor:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)


BATCH_TERMS: dict[str, Any] = {
    "kind": "aws-batch", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 1, "memory_gib": 1,
    "image": SAGEMAKER["image"], "spot": True, "role": SAGEMAKER["role"], "queue": "gpus", "grace_s": 8,
    "instance_type": "m5.large", "time_limit_minutes": 240, "exchange_s": 0.3, "python": sys.executable,
}  # fmt: skip


def batch_trial(home: Path, service: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """AWS Batch's documented states, S3 by moto; containers are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = BatchPlace(**BATCH_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="aws-batch", name="jobs", place=terms, cloud=BatchJobs(name="jobs", place=terms, **more))

    def live(folder: RunFolder) -> list[str]:
        return [name for name, job in service.jobs.items()
                if job.status not in BATCH_ENDS and job.asked["tags"]["tonnage-run"] == folder.path.name]  # fmt: skip

    def out_of_reach() -> Executor:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(
        executor=place(), home=home / "here", alive=lambda folder: len(live(folder)),
        preempt=lambda folder: service.interrupt(live(folder)[0]), out_of_reach=out_of_reach,
    )  # fmt: skip
