"""Obstacles to runs in a queue of AWS Batch, asked of the account before a cent is spent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.places.aws.calls import AWSAccount, AwsError
from tonnage.places.aws.ec2_checks import instance_type_of, quota_of
from tonnage.places.aws.place import MULTI_NODE_SOURCE, BatchPlace
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.contract import PlaceFinding

SERVICE: Final = "batch"
TASKS: Final = "ecs-tasks.amazonaws.com"  # takes a job's role
OPTIMAL: Final = frozenset({"optimal", "default_x86_64", "default_arm64"})  # Batch chooses among families
AGENT_FRACTION: Final = 0.05  # of an instance's memory, that its system and Amazon ECS's agent may keep


def questions_of(account: AWSAccount, place: BatchPlace) -> Iterator[PlaceFinding]:
    """Credentials first: without them nothing else can be asked."""
    against = list(account.identity())
    yield from against
    if against:
        return
    yield from _queue(account, place)
    yield from account.role(place.role, TASKS)
    yield from _size_and_quota(account, place)
    yield from account.image(place.image)
    yield from account.secret(place.secret)


def _queue(account: AWSAccount, place: BatchPlace) -> Iterator[PlaceFinding]:
    """Whether the queue is there and takes jobs; then its compute environments."""
    try:
        found = account.call(SERVICE, "DescribeJobQueues", {"jobQueues": [place.queue]})["jobQueues"]
    except AwsError as error:
        yield unasked(f"the job queue {place.queue}", error)
        return
    if not found:
        words = "--priority 1 --compute-environment-order order=1,computeEnvironment=ENVIRONMENT"
        made = f"`aws batch create-job-queue --job-queue-name {place.queue} {words} --region {place.region}`"
        yield refused(f"there is no job queue {place.queue} in {place.region}", made)
        return
    queue = found[0]
    if queue["state"] != "ENABLED":
        yield refused(f"the job queue {place.queue} is {queue['state']}",
                      f"`aws batch update-job-queue --job-queue {place.queue} --state ENABLED`")  # fmt: skip
    if queue.get("schedulingPolicyArn") and place.share is None:
        yield refused(f"the job queue {place.queue} has a scheduling policy: each job names its share",
                      f'places.{account.place}.share = "IDENTIFIER"')  # fmt: skip
    order = sorted(queue["computeEnvironmentOrder"], key=lambda one: int(one["order"]))
    names = [str(one["computeEnvironment"]) for one in order]
    try:
        asked = {"computeEnvironments": names}
        environments = account.call(SERVICE, "DescribeComputeEnvironments", asked)["computeEnvironments"]
    except AwsError as error:
        yield unasked(f"the compute environments of {place.queue}", error)
        return
    for one in environments:
        yield from _environment(account, place, one)


def _environment(account: AWSAccount, place: BatchPlace, environment: dict[str, Any]) -> Iterator[PlaceFinding]:
    name, resources = str(environment["computeEnvironmentName"]), environment.get("computeResources") or {}
    update = f"`aws batch update-compute-environment --compute-environment {name}"
    if environment.get("state") != "ENABLED":
        yield refused(f"the compute environment {name} is {environment.get('state')}", f"{update} --state ENABLED`")
    if environment.get("status") == "INVALID":
        yield refused(f"the compute environment {name} is INVALID: {environment.get('statusReason')}",
                      f"`aws batch describe-compute-environments --compute-environments {name}`")  # fmt: skip
    if environment.get("type") == "UNMANAGED":
        if place.nodes > 1:
            yield refused(f"the compute environment {name} is UNMANAGED, which takes no multi-node jobs "
                          f"({MULTI_NODE_SOURCE})", "a queue whose compute environment is MANAGED")  # fmt: skip
        return
    yield from _market(account, place, name, str(resources.get("type") or ""))
    yield from _types(account, place, name, [str(one) for one in resources.get("instanceTypes") or ()])
    needed, most = place.cores * place.nodes, int(resources.get("maxvCpus") or 0)
    if most < needed:
        yield refused(f"the compute environment {name} has {most} vCPUs at most, a run needs {needed}",
                      f"{update} --compute-resources maxvCpus={needed}`")  # fmt: skip
    least = int(resources.get("minvCpus") or 0)
    if least:
        yield PlaceFinding(
            kind="doubtful", message=f"{name} keeps {least} vCPUs, which are billed while nothing runs",
            hint=f"{update} --compute-resources minvCpus=0`",
        )  # fmt: skip
    if place.nodes > 1 and not resources.get("placementGroup"):
        group = f"`aws ec2 create-placement-group --group-name tonnage-{account.place} --strategy cluster`"
        yield PlaceFinding(
            kind="doubtful", message=f"{name} has no placement group: the nodes of a run may be far from each other",
            hint=f"{group}, and {update} --compute-resources placementGroup=tonnage-{account.place}`",
        )  # fmt: skip


def _market(account: AWSAccount, place: BatchPlace, name: str, kind: str) -> Iterator[PlaceFinding]:
    """How the environment buys: as spot, on demand, or not on EC2 at all."""
    if kind.startswith("FARGATE"):
        yield refused(f"the compute environment {name} is of {kind}, which has no GPUs and no instance types",
                      "a queue whose compute environment is of EC2 or SPOT")  # fmt: skip
    elif kind == "SPOT" and place.nodes > 1:
        said = f"the compute environment {name} is of SPOT, which takes no multi-node jobs ({MULTI_NODE_SOURCE})"
        yield refused(said, "a queue whose compute environment is of EC2, or nodes = 1")
    elif kind in {"SPOT", "EC2"} and (kind == "SPOT") is not place.spot:
        yield refused(f"the compute environment {name} is of {kind}",
                      f"places.{account.place}.spot = {str(kind == 'SPOT').lower()}")  # fmt: skip


def _types(account: AWSAccount, place: BatchPlace, name: str, types: list[str]) -> Iterator[PlaceFinding]:
    family = place.instance_type.partition(".")[0]
    if types == [place.instance_type]:
        return
    if place.instance_type not in types and family not in types and not OPTIMAL & set(types):
        yield refused(f"the compute environment {name} starts {', '.join(types)}, no {place.instance_type}",
                      f'places.{account.place}.instance_type = "{types[0] if types else "TYPE"}"')  # fmt: skip
    elif place.nodes == 1:  # a job of several nodes names its type
        yield PlaceFinding(
            kind="doubtful", hint=f"a compute environment of {place.instance_type} alone",
            message=f"{name} may start another type than {place.instance_type} ({', '.join(types)}), at another price",
        )  # fmt: skip


def _size_and_quota(account: AWSAccount, place: BatchPlace) -> Iterator[PlaceFinding]:
    kind, missing = instance_type_of(account, place.instance_type, place.region)
    yield from missing
    if not kind:
        return
    vcpus, memory_gib = int(kind["VCpuInfo"]["DefaultVCpus"]), kind["MemoryInfo"]["SizeInMiB"] / 1024
    gpus = sum(int(one.get("Count") or 0) for one in (kind.get("GpuInfo") or {}).get("Gpus") or ())
    free_gib = memory_gib * (1 - AGENT_FRACTION)
    if place.cores > vcpus or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(f"{place.instance_type} has {vcpus} vCPUs, {memory_gib:g} GiB and {gpus} GPUs",
                      f"places.{account.place}.cores = {vcpus}, memory_gib = {free_gib:g}, gpus = {gpus}")  # fmt: skip
    elif place.memory_gib > free_gib:
        yield PlaceFinding(
            kind="doubtful", hint=f"places.{account.place}.memory_gib = {free_gib:g}",
            message=f"of the {memory_gib:g} GiB of {place.instance_type} its system keeps some: a job that asks for "
            f"{place.memory_gib:g} may stay RUNNABLE forever",
        )  # fmt: skip
    yield from account.quota("ec2", float(vcpus * place.nodes), named=quota_of(place.instance_type, spot=place.spot))
