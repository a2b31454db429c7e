"""A run over several machines: torchrun's agents meet at the first one and give out the ranks; and the machines that a
cloud gives for it as one job, in one view. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from tonnage.errors import InputError
from tonnage.places.states import JobView, Phase
from tonnage.runs.job import Job, across_by_environment
from tonnage.runs.spec import RunSpec
from tonnage.workload.file.fields import StrictModel

MOST_NODES: Final = 1000  # of an EC2 fleet's least capacity, and of Google's bulk insert
SILENT_S: Final = 30.0
SILENT_EXCHANGES: Final = 6
LEAST_EXCHANGES: Final = 2  # a machine says a word in each
JOINT: Final = ","  # between the machines' ids in a job's
SLOWEST: Final = (Phase.QUEUED, Phase.PROVISIONING, Phase.RUNNING, Phase.ENDING)


class SeveralMachines(StrictModel):
    """Terms of clouds that start all machines of a run at once, or none."""

    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1  # machines of one run; several: the runner `torchrun`
    shared_mount: bool = False  # `mount` is one file system of all machines, which `setup` mounts
    silent_after_s: Annotated[float, Field(ge=5, le=3600)] | None = (
        None  # a machine without a word for so long is lost; None: 30, or six exchanges where these are more
    )

    @model_validator(mode="after")
    def _words_come_in_time(self) -> Self:
        exchange_s = getattr(self, "exchange_s", 0.0)
        least_s = LEAST_EXCHANGES * exchange_s
        if self.silent_after_s is not None and self.silent_after_s < least_s:
            said = f"silent_after_s = {self.silent_after_s:g} is less than {LEAST_EXCHANGES} times exchange_s"
            raise ValueError(f"{said}: one late word would end the run; give it {least_s:g} or more")
        return self

    @property
    def machines(self) -> int:
        return self.nodes


def silence_s(asked: float | None, exchange_s: float) -> float:
    """After how many seconds without a word a machine of several counts as lost.

    >>> silence_s(None, 5.0), silence_s(None, 10.0), silence_s(120.0, 5.0)
    (30.0, 60.0, 120.0)
    """
    return max(SILENT_S, SILENT_EXCHANGES * exchange_s) if asked is None else asked


def ranked(job: Job, *, nodes: int) -> Job:
    """The same workers over machines that share no folder: the first machine has rank 0, which alone saves.

    c10d gives ranks by address; torchrun's static rendezvous gives them by the number that each machine says in PET_*
    variables. It starts no worker again by itself: the supervisor starts all. InputError where the runner is one of a
    single machine, or the processes cannot be shared out evenly.
    """
    shared = across_by_environment(job, nodes=nodes)
    words = list(shared.argv)
    words[words.index("--max-restarts") + 1] = "0"
    env = dict(shared.env) | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}  # one store for agents and workers of a start
    return replace(shared, argv=tuple(words), env=tuple(env.items()))


def refuse_parts(spec: RunSpec, *, place: str) -> None:
    """InputError for a run whose checkpoints have a part on each machine, where the machines share no folder."""
    if spec.training.sharding != "ddp":
        raise InputError(
            f"checkpoints of `sharding: {spec.training.sharding}` have a part on each machine, which share no folder",
            hint=f"places.{place}.shared_mount = true with a file system that `setup` mounts, or `sharding: ddp`",
        )


def joint_view(views: Sequence[JobView]) -> JobView:
    """Several machines as one job: it works while one of them does, and is where the slowest is.

    Why one has ended before the others is kept: that is why the job ends.

    >>> taken = JobView(phase=Phase.ENDED, job_id="i-2", word="terminated", reason="Spot took it")
    >>> joint_view([JobView(phase=Phase.RUNNING, job_id="i-1", word="running"), taken]).reason
    'i-2: Spot took it'
    """
    if len(views) == 1:
        return views[0]
    live = [one for one in views if one.phase in SLOWEST]
    over = [one for one in views if one.phase not in SLOWEST]
    shown = min(live, key=lambda one: SLOWEST.index(one.phase)) if live else _ended_as(over)
    reasoned = sorted((one for one in over if one.reason), key=lambda one: one.phase is not Phase.ENDED)
    first = reasoned[0] if reasoned else over[0] if over else shown
    said = first.reason or ("no longer listed" if first.phase is Phase.GONE else "")
    reason = f"{first.job_id}: {said}" if said and over else shown.reason
    return JobView(
        phase=shown.phase, job_id=JOINT.join(str(one.job_id) for one in views), word=shown.word, reason=reason
    )  # fmt: skip


def _ended_as(over: Sequence[JobView]) -> JobView:
    """Of machines that have all ended: the end that says most."""
    order = (Phase.ENDED, Phase.CANCELLED, Phase.GONE)
    return min(over, key=lambda one: order.index(one.phase))
