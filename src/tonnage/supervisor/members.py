"""Several machines of one run that meet in its bucket: which is the first, where it is, and who of them still works.

The first looks after the run as the machine of a run of one does. The others run the same workers beside it: they learn
from the bucket where the first is, end with it, and tell it when their machine is taken away. Where one of them is
lost, the first ends the attempt, and all machines end; what goes on does so from the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.files import make_private_folder, write_whole
from tonnage.places.bucket.layout import SENT, Keys, input_key
from tonnage.places.bucket.objects import Objects
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import load_job
from tonnage.runs.spec import load_spec
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.notices import Notice, NoticeWatch
from tonnage.supervisor.processes import PR_SET_PDEATHSIG, become_subreaper, kill_below, set_process_attribute
from tonnage.values import dataclass

SILENT_S: Final = 30.0  # a machine that has not renewed its word for so long is lost, or six exchanges
SILENT_EXCHANGES: Final = 6
END_S: Final = 10.0  # for workers whose first machine has ended
LOOK_S: Final = 0.5
RESOURCES: Final = Path("/opt/ml/input/config/resourceconfig.json")  # SageMaker's, on each machine of a job
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
    SM_CURRENT_HOST; Vertex AI: CLUSTER_SPEC.

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
        key, word = keys.member(number), _word(member)
        if objects.write_if(key, word, None):
            return Member(number=number, machines=machines, address=member.address, identity=identity)
        found = objects.read(key)  # of a write whose answer was lost
        if found is not None and json.loads(found.content)["identity"] == identity:
            return Member(number=number, machines=machines, address=member.address, identity=identity)
    return None


def _word(member: Member, **more: Any) -> bytes:
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


def silent_after_s(every_s: float) -> float:
    """Without a word for so long a machine is lost."""
    return max(SILENT_S, SILENT_EXCHANGES * every_s)


class Gathering:
    """The first machine's side: says where it is, and looks whether the others still work."""

    def __init__(self, objects: Objects, keys: Keys, member: Member, *, every_s: float) -> None:
        self._objects, self._keys, self._member = objects, keys, member
        self.endpoint = f"{member.address}:{free_port()}"
        self._silent_s, self._seen = silent_after_s(every_s), set[int]()
        self.lost = ""  # which machine is, and why; empty while all work

    def look(self, attempt: int) -> None:
        """Renew the word. Where another machine is lost, or will be: say so, and have the run saved and ended."""
        told = _word(self._member, endpoint=self.endpoint, attempt=attempt, over=None)
        self._objects.write(self._keys.meeting, told)
        if self.lost:
            return
        self.lost = next(filter(None, (self._fault(number) for number in range(1, self._member.machines))), "")
        if self.lost:
            sys.stderr.write(f"tonnage: {self.lost}; the attempt ends\n")
            os.kill(os.getpid(), signal.SIGTERM)

    def over(self, code: int) -> None:
        """The others end."""
        self._objects.write(self._keys.meeting, _word(self._member, endpoint=self.endpoint, attempt=0, over=code))

    def _fault(self, number: int) -> str:
        found = self._objects.read(self._keys.member(number))
        if found is None:
            return ""
        named = f"machine {number + 1} of {self._member.machines}"
        if json.loads(found.content).get("leaves"):
            return f"{named} is taken away"
        if found.age_s <= self._silent_s:
            self._seen.add(number)
        elif number in self._seen:
            return f"{named} has been silent for {found.age_s:.0f} s"
        return ""


class Beside:
    """A further machine's side: what it does while its workers run, until the first one ends."""

    def __init__(self, objects: Objects, keys: Keys, member: Member, *, every_s: float, token: str) -> None:
        self._objects, self._keys, self._member = objects, keys, member
        self._every_s, self._token, self._silent_s = every_s, token, silent_after_s(every_s)
        self._next, self._leaves, self._first, self._attempt = 0.0, False, "", 0
        self.code: int | None = None  # with which this machine ends; None while it works

    def leave(self) -> None:
        """This machine is taken away: the first learns it at once."""
        self._leaves, self._next = True, 0.0

    def meet(self) -> str:
        """Where torchrun meets in the first machine's next start of the workers; empty where it is over before."""
        while self.code is None:
            found = self._objects.read(self._keys.meeting)
            told: dict[str, Any] = {} if found is None else json.loads(found.content)
            lately = found is not None and found.age_s <= self._silent_s and told["over"] is None
            newer = told.get("identity") != self._first or told.get("attempt", 0) > self._attempt
            if lately and newer and told["attempt"]:
                self._first, self._attempt = told["identity"], told["attempt"]
                return str(told["endpoint"])
            self.flush(waiting=not self._first)
            time.sleep(LOOK_S)
        return ""

    def flush(self, *, waiting: bool = False) -> None:
        """One exchange, where it is time for one: this machine's word, and whether the first still works."""
        if time.monotonic() < self._next or self.code is not None:
            return
        self._next = time.monotonic() + self._every_s
        try:
            self._objects.write(self._keys.member(self._member.number), _word(self._member, leaves=self._leaves))
            self.code = self._superseded() if waiting else self._superseded() or self._ended()
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
        told = json.loads(found.content)
        if told["identity"] != self._first:  # another start of the same job
            return int(WorkerExit.PREEMPTED)
        return None if told["over"] is None else int(told["over"])


def work_beside(
    objects: Objects, keys: Keys, folder: RunFolder, member: Member, *, token: str, every_s: float, shared: bool,
) -> int:  # fmt: skip
    """The workers of a further machine, again and again until the first has ended; its exit code."""
    beside = Beside(objects, keys, member, every_s=every_s, token=token)
    signal.signal(signal.SIGTERM, lambda *_: beside.leave())  # the first machine has the run saved
    become_subreaper()
    own = folder if shared else RunFolder(folder.path.with_name(f"{folder.path.name}-machine-{member.number}"))
    first = beside.meet()
    if beside.code is None and not shared:
        lay_beside(objects, keys, own)
    spec = load_spec(_sent(objects, keys, SENT[0]).decode(), where=SENT[0])
    job = load_job(_sent(objects, keys, SENT[1]).decode(), where=SENT[1])
    words = [word.replace(str(folder.path), str(own.path)) for word in job.argv]
    exits = own.path / "exits"
    watch = _Leaving(spec.launch.notices, beside)
    while beside.code is None:
        if not shared:
            shutil.rmtree(exits, ignore_errors=True)
            make_private_folder(exits)
        _work(words, {**dict(job.env), **meeting_env(first, member), "TONNAGE_EXITS": str(exits)}, beside)
        first = beside.meet()  # the first starts its workers anew, or ends
    watch.stop()
    return beside.code


def _work(words: Sequence[str], env: Mapping[str, str], beside: Beside) -> None:
    """The workers until they end, or a while after this machine is to end."""
    agent = subprocess.Popen(
        words, env={**os.environ, **env}, preexec_fn=lambda: set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM)
    )
    until: float | None = None
    while agent.poll() is None:
        beside.flush()
        if beside.code is not None and until is None:
            until = time.monotonic() + END_S
        if until is not None and time.monotonic() > until:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(LOOK_S)
    kill_below(os.getpid())
    agent.wait()


class _Leaving(NoticeWatch):
    """Passes a cloud's notice on to the first machine."""

    def __init__(self, names: Sequence[str], beside: Beside) -> None:
        super().__init__(names, woken=threading.Event())
        self._beside = beside
        self.start()

    def add(self, notice: Notice) -> None:
        if notice.deadline_s is not None:
            self._beside.leave()


def lay_beside(objects: Objects, keys: Keys, folder: RunFolder) -> None:
    """What workers read on a machine that has the run's folder for itself: the first has the rest."""
    shutil.rmtree(folder.path, ignore_errors=True)
    make_private_folder(folder.path)
    make_private_folder(folder.checkpoints)
    for inside, digest in json.loads(_sent(objects, keys, "inputs.json")).items():
        path = folder.path / inside
        make_private_folder(path.parent)
        objects.get(input_key(digest), path)
    write_whole(folder.path / SENT[0], _sent(objects, keys, SENT[0]))
    for file in load_job(_sent(objects, keys, SENT[1]).decode(), where=SENT[1]).files:
        make_private_folder((folder.path / file.path).parent)
        write_whole(folder.path / file.path, file.text)


def _sent(objects: Objects, keys: Keys, name: str) -> bytes:
    found = objects.read(keys.sent(name))
    if found is None:
        raise TonnageError(f"{objects.url}/{keys.sent(name)} is not there", hint="submit the run again")
    return found.content
