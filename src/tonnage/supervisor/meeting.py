"""Several machines of one run that meet in its bucket: which number each has, where the others reach it, whether all
work.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.layout import Keys
from tonnage.places.bucket.objects import Objects
from tonnage.runs.states import WorkerExit
from tonnage.values import dataclass

JOIN_S: Final = 540.0  # from the first machine's start: torchrun itself waits 600 s for the others, and names none
LOOK_S: Final = 0.5
RESOURCES: Final = Path("/opt/ml/input/config/resourceconfig.json")  # SageMaker's, on each machine of a job
MACHINE_NUMBER: Final = "TONNAGE_MACHINE_NUMBER"  # variable: said by a driver of ours that starts all machines
ANYWHERE: Final = ("192.0.2.1", 9)  # RFC 5737: no packet is sent, the system only chooses the way to it


class Gathering:
    """The first machine's side: says where it is, and looks whether the others still work."""

    def __init__(
        self, objects: Objects, keys: Keys, member: Member, *, silent_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._objects, self._keys, self._member = objects, keys, member
        self.endpoint = f"{member.address}:{free_port()}"
        self._silent_s, self._clock = silent_s, clock
        self._since, self._seen = clock(), {0: member.address}  # numbers of those that have come
        self.lost = ""  # which machine is, and why; empty while all work

    def look(self, attempt: int) -> None:
        """Renew the word. Where another machine is lost, or will be: say so, and have the run saved and ended."""
        word = member_word(self._member, endpoint=self.endpoint, attempt=attempt, over=None)
        self._objects.write(self._keys.meeting, word)
        if self.lost:
            return
        self.lost = next(filter(None, (self._fault(number) for number in range(1, self._member.machines))), "")
        if self.lost:
            sys.stderr.write(f"tonnage: {self.lost}; the attempt ends\n")
            os.kill(os.getpid(), signal.SIGTERM)

    def over(self, code: int) -> None:
        """The others end."""
        self._objects.write(self._keys.meeting, member_word(self._member, endpoint=self.endpoint, attempt=0, over=code))

    def _fault(self, number: int) -> str:
        found = self._objects.read(self._keys.member(number))
        named = f"machine {number + 1} of {self._member.machines}"
        if found is None:
            return self._absent(named) if self._clock() - self._since > JOIN_S else ""
        word = json.loads(found.content)
        if word.get("leaves"):
            return f"{named} is taken away"
        if found.age_s <= self._silent_s:
            self._seen[number] = str(word["address"])
        elif number in self._seen:
            return f"{named} has been silent for {found.age_s:.0f} s"
        return ""

    def _absent(self, named: str) -> str:
        there = ", ".join(self._seen[number] for number in sorted(self._seen))
        return f"{named} has not come in {JOIN_S / 60:.0f} minutes (those that have: {there}); its console says why"


class Beside:
    """A further machine's side: what it does while its workers run, until the first one ends."""

    def __init__(
        self, objects: Objects, keys: Keys, member: Member, *, every_s: float, silent_s: float, token: str,
        notice_s: float,
        bring: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._objects, self._keys, self._member = objects, keys, member
        self._every_s, self._token, self._silent_s = every_s, token, silent_s
        self._notice_s, self._bring, self._clock = notice_s, bring, clock  # `bring`: what else goes to the bucket
        self._next, self._gone_at, self._first, self._attempt = 0.0, math.inf, "", 0
        self.code: int | None = None  # with which this machine ends; None while it works

    def leave(self) -> None:
        """This machine is taken away: the first learns it at once, and ends all; without it this one ends in time."""
        leaves_s = self._notice_s + 2 * self._every_s  # the first learns of it by then, and has its whole time to save
        self._gone_at, self._next = min(self._gone_at, self._clock() + leaves_s), 0.0

    def meet(self) -> str:
        """Where torchrun meets in the first machine's next start of the workers; empty where it is over before."""
        while self.code is None:
            try:
                endpoint = self._newer_start()
            except TonnageError as error:
                sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")
                endpoint = ""
            if endpoint:
                return endpoint
            self.flush(waiting=not self._first)
            time.sleep(LOOK_S)
        return ""

    def _newer_start(self) -> str:
        """Where the first machine's workers meet, of a start that this machine has not taken part in; else empty."""
        found = self._objects.read(self._keys.meeting)
        word: dict[str, Any] = {} if found is None else json.loads(found.content)
        lately = found is not None and found.age_s <= self._silent_s and word["over"] is None
        newer = word.get("identity") != self._first or word.get("attempt", 0) > self._attempt
        if not (lately and newer and word["attempt"]):
            return ""
        self._first, self._attempt = word["identity"], word["attempt"]
        return str(word["endpoint"])

    def flush(self, *, waiting: bool = False) -> None:
        """One exchange, where it is time for one: this machine's word, and whether the first still works."""
        if self.code is None and self._clock() >= self._gone_at:
            sys.stderr.write("tonnage: this machine is taken away, and the first has not ended the run in time\n")
            self.code = int(WorkerExit.PREEMPTED)
        if self._clock() < self._next or self.code is not None:
            return
        self._next = self._clock() + self._every_s
        leaves = self._gone_at < math.inf
        try:
            self._objects.write(self._keys.member(self._member.number), member_word(self._member, leaves=leaves))
            self.code = self._superseded() if waiting else self._superseded() or self._ended()
            self._bring()
        except TonnageError as error:
            sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")

    def _superseded(self) -> int | None:
        found = self._objects.read(self._keys.lease)
        lease: dict[str, Any] = {} if found is None else json.loads(found.content)
        ours = lease.get("token") == self._token and lease.get("epoch", 0) <= self._keys.epoch
        return None if ours else int(WorkerExit.PREEMPTED)

    def _ended(self) -> int | None:
        found = self._objects.read(self._keys.meeting)
        if found is None or found.age_s > self._silent_s:
            sys.stderr.write("tonnage: the first machine is lost\n")
            return int(WorkerExit.PREEMPTED)
        word = json.loads(found.content)
        if word["identity"] != self._first:  # another start of the same job
            return int(WorkerExit.PREEMPTED)
        return None if word["over"] is None else int(word["over"])


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


def membership_from_cloud(environ: Mapping[str, str], resources: Path = RESOURCES) -> tuple[int, str] | None:
    """(number, own address) where a managed service says which machine this is; None where none does.

    SageMaker: `hosts` and `current_host` of resourceconfig.json, which its toolkit shows as SM_HOSTS and
    SM_CURRENT_HOST; Vertex AI: CLUSTER_SPEC; Azure ML: NODE_RANK of its PyTorch launcher; AWS Batch: the node's index;
    Ray: our own driver.

    >>> membership_from_cloud({"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-2"})
    (1, 'algo-2')
    >>> membership_from_cloud({"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a-0:2222"], "workerpool1": ["b-0:2222"]},'
    ...                                    '"task": {"type": "workerpool1", "index": 0}}'})
    (1, 'b-0')
    """
    if "SM_HOSTS" in environ or resources.is_file():
        if "SM_HOSTS" in environ:
            hosts, mine = json.loads(environ["SM_HOSTS"]), environ["SM_CURRENT_HOST"]
        else:
            hosts_file = json.loads(resources.read_text(encoding="utf-8"))
            hosts, mine = hosts_file["hosts"], str(hosts_file["current_host"])
        return sorted(hosts, key=_by_number).index(mine), mine
    if spec := environ.get("CLUSTER_SPEC"):
        cluster: dict[str, Any] = json.loads(spec)
        pools: dict[str, list[str]] = cluster["cluster"]
        order = [(pool, index) for pool in sorted(pools) for index in range(len(pools[pool]))]
        pool, index = str(cluster["task"]["type"]), int(cluster["task"]["index"])
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
    identity, membership = uuid.uuid4().hex, membership_from_cloud(os.environ)
    if membership is not None:
        return Member(number=membership[0], machines=machines, address=membership[1], identity=identity)
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
