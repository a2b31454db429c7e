"""What Slurm's commands answer, as values. Pure: text in, values out.

The formats asked for are those that `squeue -o`, `sinfo -o` and `scontrol -o` have kept over all versions since 14;
`--json` needs a plugin that not every cluster builds, and in 22.05 its `squeue` ignores every filter.
"""

from __future__ import annotations

import re
from typing import Final

from tonnage.places.states import JobView, Phase
from tonnage.values import dataclass

# slurm.schedmd.com/squeue.html, «JOB STATE CODES»
PHASES: Final = {
    "PENDING": Phase.QUEUED,
    "REQUEUED": Phase.QUEUED,
    "REQUEUE_FED": Phase.QUEUED,
    "REQUEUE_HOLD": Phase.QUEUED,
    "SPECIAL_EXIT": Phase.QUEUED,
    "RESV_DEL_HOLD": Phase.QUEUED,
    "CONFIGURING": Phase.PROVISIONING,
    "RUNNING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "STAGE_OUT": Phase.ENDING,
    "COMPLETING": Phase.ENDING,
    "SUSPENDED": Phase.QUEUED,
    "STOPPED": Phase.QUEUED,
    "CANCELLED": Phase.CANCELLED,
    "COMPLETED": Phase.ENDED,
    "FAILED": Phase.ENDED,
    "TIMEOUT": Phase.ENDED,
    "NODE_FAIL": Phase.ENDED,
    "BOOT_FAIL": Phase.ENDED,
    "DEADLINE": Phase.ENDED,
    "OUT_OF_MEMORY": Phase.ENDED,
    "PREEMPTED": Phase.ENDED,
    "REVOKED": Phase.ENDED,
}
QUEUE_FORMAT: Final = "%A|%T|%r|%N|%k"
PARTITION_FORMAT: Final = "%P|%a|%l|%D|%c|%m|%G"
LIVE: Final = frozenset({Phase.QUEUED, Phase.PROVISIONING, Phase.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedSlurmJob:
    """A job of ours as `squeue` lists it."""

    view: JobView
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Like nodes of a partition, as `sinfo` lists them."""

    partition: str
    default: bool
    up: bool
    limit_minutes: float | None  # None: no limit
    nodes: int
    cores: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...]  # (type, count); the type is empty where the cluster has none


def parse_queue(text: str) -> tuple[TaggedSlurmJob, ...]:
    """Lines of `squeue -h -o QUEUE_FORMAT`; a reason or comment may hold the separator itself.

    >>> [job] = parse_queue("7|PENDING|Resources||tonnage:a:b:c\\n")
    >>> job.view.phase.value, job.view.reason, job.comment
    ('queued', 'Resources', 'tonnage:a:b:c')
    """
    rows = [line.split("|", 4) for line in text.splitlines() if line.count("|") >= 4]
    return tuple(
        TaggedSlurmJob(view=_view(job, word, reason, nodes, None), comment=comment)
        for job, word, reason, nodes, comment in rows
    )


def parse_job(text: str) -> JobView | None:
    """One line of `scontrol show job -o`; None where it is not one.

    >>> parse_job("JobId=7 JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 NodeList=gpu1").phase.value
    'ended'
    """
    found = dict(re.findall(r"(?:^|\s)(JobId|JobState|Reason|NodeList|ExitCode)=(\S*)", text))
    if "JobId" not in found or "JobState" not in found:
        return None
    nodes = found.get("NodeList", "")
    code, _, number = found.get("ExitCode", "").partition(":")
    exit_code = 128 + int(number) if number.isdigit() and int(number) else int(code) if code.isdigit() else None
    return _view(
        found["JobId"], found["JobState"], found.get("Reason", ""), "" if nodes == "(null)" else nodes, exit_code
    )


def parse_partitions(text: str) -> tuple[NodeGroup, ...]:
    """Lines of `sinfo -h -e -o PARTITION_FORMAT`.

    >>> parse_partitions("batch*|up|1:00:00|2|8|64000|gpu:h100:8(S:0-1)")[0].gpus
    (('h100', 8),)
    """
    return tuple(_group(line.split("|", 6)) for line in text.splitlines() if line.count("|") >= 6)


def minutes_of(text: str) -> float | None:
    """A time of Slurm in minutes: `30:00`, `1:00:00`, `2-12:00:00`; None for `infinite`.

    >>> minutes_of("1:00:00"), minutes_of("2-12:00:00"), minutes_of("30:00"), minutes_of("infinite")
    (60.0, 3600.0, 30.0, None)
    """
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return (int(days) * 24 * 60 if dash else 0) + seconds / 60


def _view(job: str, word: str, reason: str, nodes: str, exit_code: int | None) -> JobView:
    """A state of a version to come counts as running: it is nobody's end."""
    known = PHASES.get(word.split("+")[0], Phase.RUNNING)
    said = "" if reason in {"None", "(null)"} else reason
    return JobView(phase=known, job_id=job, word=word, reason=said, nodes=nodes, exit_code=exit_code)


def _group(row: list[str]) -> NodeGroup:
    name, up, limit, nodes, cores, memory, gres = row
    return NodeGroup(
        partition=name.rstrip("*"),
        default=name.endswith("*"),
        up=up == "up",
        limit_minutes=minutes_of(limit),
        nodes=int(nodes),
        cores=int(cores.rstrip("+")),
        memory_mib=int(memory.rstrip("+")),
        gpus=tuple((kind or "", int(count)) for kind, count in re.findall(r"gpu:(?:([A-Za-z][^:,(]*):)?(\d+)", gres)),
    )
