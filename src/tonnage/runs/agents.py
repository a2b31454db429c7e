"""The words of torchrun's agent in a job's command, and the same work over several machines. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tonnage.errors import InputError
from tonnage.runs.job import Job

ALONE: Final = ("--standalone", "--nnodes", "1")  # as a run of one machine has it
PER_NODE: Final = "--nproc-per-node"


def words_alone(job: Job) -> int:
    """Where the words of one machine begin in a job's command. InputError of a runner that has none."""
    found = next((at for at in range(len(job.argv)) if job.argv[at : at + len(ALONE)] == ALONE), None)
    if found is None:
        said = f"the runner '{job.runner}' works on one machine, and the place gives a run several"
        raise InputError(said, hint="`--runner torchrun`, or `nodes = 1`")
    return found


def across_by_environment(job: Job, *, nodes: int) -> Job:
    """The same workers shared out over several machines, whose agents read from PET_* variables where they meet.

    Workers are asked to save by a file of the folder that the machines share. InputError where the processes cannot be
    shared out evenly.
    """
    at, words = words_alone(job), list(job.argv)
    if job.processes % nodes:
        said = f"{job.processes} processes cannot be shared out evenly over {nodes} machines"
        raise InputError(said, hint=f"--processes {nodes * max(1, job.processes // nodes)}")
    words[words.index(PER_NODE) + 1] = str(job.processes // nodes)
    return replace(job, argv=(*words[:at], *words[at + len(ALONE) :]), signal_to="nobody")


def meeting_variables(meeting: str, *, at: int, nodes: int, name: str) -> dict[str, str]:
    """Where torchrun's agents meet, in its own variables; none for one machine.

    >>> meeting_variables("gpu1:29500", at=1, nodes=2, name="a-1")["PET_RDZV_ENDPOINT"]
    'gpu1:29500'
    """
    if nodes == 1:
        return {}
    return {
        "PET_NNODES": str(nodes), "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": meeting, "PET_RDZV_ID": name,
        "PET_RDZV_CONF": f"is_host={int(at == 0)}",
    }  # fmt: skip
