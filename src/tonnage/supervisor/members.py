"""Several machines of one run that meet in its bucket: which number each has, and where the others reach it."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.places.bucket.layout import Keys
from tonnage.places.bucket.objects import Objects
from tonnage.values import dataclass

RESOURCES: Final = Path("/opt/ml/input/config/resourceconfig.json")  # SageMaker's, on each machine of a job
MACHINE_NUMBER: Final = "TONNAGE_MACHINE_NUMBER"  # variable: said by a driver of ours that starts all machines
ANYWHERE: Final = ("192.0.2.1", 9)  # RFC 5737: no packet is sent, the system only chooses the way to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This machine among those of its start."""

    number: int  # 0: the first
    machines: int
    address: str  # of this machine, for the others
    identity: str

    @property
    def first(self) -> bool:
        return self.number == 0


def own_address() -> str:
    """This machine's address in its first network, by which the others reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(ANYWHERE)
        return str(asked.getsockname()[0])


def told_by_the_cloud(environ: Mapping[str, str], resources: Path = RESOURCES) -> tuple[int, str] | None:
    """(number, own address) where a managed service says which machine this is; None where none does.

    SageMaker: `hosts` and `current_host` of resourceconfig.json, which its toolkit shows as SM_HOSTS and
    SM_CURRENT_HOST; Vertex AI: CLUSTER_SPEC; Azure ML: NODE_RANK of its PyTorch launcher; AWS Batch: the node's index;
    Ray: our own driver.

    >>> told_by_the_cloud({"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-2"})
    (1, 'algo-2')
    >>> told_by_the_cloud({"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a-0:2222"], "workerpool1": ["b-0:2222"]},'
    ...                                    '"task": {"type": "workerpool1", "index": 0}}'})
    (1, 'b-0')
    """
    if "SM_HOSTS" in environ or resources.is_file():
        if "SM_HOSTS" in environ:
            hosts, mine = json.loads(environ["SM_HOSTS"]), environ["SM_CURRENT_HOST"]
        else:
            told_here = json.loads(resources.read_text(encoding="utf-8"))
            hosts, mine = told_here["hosts"], str(told_here["current_host"])
        return sorted(hosts, key=_by_number).index(mine), mine
    if spec := environ.get("CLUSTER_SPEC"):
        told: dict[str, Any] = json.loads(spec)
        pools: dict[str, list[str]] = told["cluster"]
        order = [(pool, index) for pool in sorted(pools) for index in range(len(pools[pool]))]
        pool, index = str(told["task"]["type"]), int(told["task"]["index"])
        return order.index((pool, index)), pools[pool][index].partition(":")[0]
    if MACHINE_NUMBER in environ:
        return int(environ[MACHINE_NUMBER]), own_address()
    if "AZUREML_RUN_ID" in environ and "NODE_RANK" in environ:
        return int(environ["NODE_RANK"]), own_address()
    if "AWS_BATCH_JOB_NODE_INDEX" in environ:
        return int(environ["AWS_BATCH_JOB_NODE_INDEX"]), own_address()
    return None


def _by_number(host: str) -> tuple[int, str]:
    """algo-2 before algo-10."""
    return len(host), host


def join(objects: Objects, keys: Keys, machines: int) -> Member | None:
    """This machine's place among those of its start: as its cloud says, else the first that is free in the bucket.

    None where all places are taken.
    """
    identity, told = uuid.uuid4().hex, told_by_the_cloud(os.environ)
    if told is not None:
        return Member(number=told[0], machines=machines, address=told[1], identity=identity)
    member = Member(number=0, machines=machines, address=own_address(), identity=identity)
    for number in range(machines):
        key, word = keys.member(number), member_word(member)
        if objects.write_if(key, word, None):
            return Member(number=number, machines=machines, address=member.address, identity=identity)
        found = objects.read(key)  # of a write whose answer was lost
        if found is not None and json.loads(found.content)["identity"] == identity:
            return Member(number=number, machines=machines, address=member.address, identity=identity)
    return None


def member_word(member: Member, **more: Any) -> bytes:
    return json.dumps({"identity": member.identity, "address": member.address, **more}).encode()


def free_port() -> int:
    """One that nobody has; machines of a run reach each other at every port."""
    with socket.socket() as asked:
        asked.bind(("", 0))
        return int(asked.getsockname()[1])


def meeting_env(endpoint: str, member: Member) -> dict[str, str]:
    """torchrun's own variables for where its agents meet, and which machine this is; the first holds the store."""
    address, _, port = endpoint.rpartition(":")
    return {
        "PET_NNODES": str(member.machines), "PET_NODE_RANK": str(member.number), "PET_RDZV_BACKEND": "static",
        "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port,
    }  # fmt: skip
