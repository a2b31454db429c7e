"""The part of a run on a Spark cluster that is a task of its barrier stage: the first looks after the run, the others
start torchrun's agents beside it.

Executors have this package as an archive; the work gets it unpacked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
import threading
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tonnage
from tonnage.files import make_private_folder
from tonnage.runs.job import meeting_variables
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.node import NodeWork
from tonnage.values import dataclass

BESIDE: Final = "tonnage.supervisor.spark_beside"
SEEN_S: Final = 20.0  # within which a file of a shared folder is seen by the other machines


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTerms:
    """What all tasks of a run know."""

    nodes: int
    mount: str  # the folder of runs
    resource: str  # as Spark calls the GPUs; empty: there are none
    run: str  # the run's folder
    token: str
    notice_s: float  # to save in


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a task gives: the exit code of its work and the last that it said."""

    code: int
    said: str


def in_task(
    _: Iterator[Any], *, words: Sequence[str], terms: TaskTerms, epoch: int, longest_s: float
) -> Iterator[Outcome]:
    """One task; the first one's outcome is that of the start."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    at = context.partitionId()
    make_private_folder(Path(terms.mount))
    meeting, fault = _meet(context, terms, epoch) if terms.nodes > 1 else ("", "")
    if fault:
        yield Outcome(code=WorkerExit.BAD_INPUT, said=fault)
        return
    more = {**_gpus(context, terms.resource), **meeting_variables(meeting, at=at, nodes=terms.nodes,
                                                                  name=f"{terms.token}-{epoch}")}  # fmt: skip
    node = NodeWork(code=unpacked(Path(terms.mount) / "code"), more=more)
    over = over_mark(terms.run, terms.token, epoch)
    if at:
        beside = (sys.executable, "-m", BESIDE, "--run", terms.run, "--token", terms.token, "--epoch", str(epoch),
                  "--over", str(over))  # fmt: skip
        code, said = node.work(beside)
        yield Outcome(code=code, said=said)
        return
    limit = threading.Timer(longest_s, node.end)
    limit.daemon = True
    limit.start()
    try:
        code, said = node.work(words)
    finally:
        limit.cancel()
        if terms.nodes > 1:
            over.touch()
    yield Outcome(code=code, said=said)


def over_mark(run: str, token: str, epoch: int) -> Path:
    """The file by which the first task tells the others that the start is over."""
    path = Path(run)
    return path.with_name(f".{path.name}-{token}-{epoch}.over")


def _meet(context: Any, terms: TaskTerms, epoch: int) -> tuple[str, str]:
    """Host and port of the first task; and what prevents the work, the same for all tasks.

    The first one leaves a file in the folder of runs, which the others have to see.
    """
    first = context.partitionId() == 0
    mark = Path(terms.mount) / f".seen-{terms.token}-{epoch}"
    if first:
        mark.write_text(f"{epoch}\n", encoding="utf-8")
    port = context.allGather(str(_free_port()) if first else "")[0]
    host = context.getTaskInfos()[0].address.rpartition(":")[0]
    seen = context.allGather(str(int(_is_seen(mark))))
    if first:
        mark.unlink(missing_ok=True)
    if "0" in seen:
        blind = seen.count("0")
        return "", f"the folder {terms.mount} is not shared: {blind} of {terms.nodes} executors do not see the first's"
    return f"{host}:{port}", ""


def _is_seen(mark: Path) -> bool:
    until = time.monotonic() + SEEN_S
    while not mark.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def _gpus(context: Any, resource: str) -> dict[str, str]:
    """The devices that Spark has given to this task, and no others."""
    if not resource:
        return {}
    found: Mapping[str, Any] = context.resources()
    return {"CUDA_VISIBLE_DEVICES": ",".join(found[resource].addresses)}


def unpacked(folder: Path) -> Path:
    """This package as files: where it came as an archive, once for each content in a folder of its own."""
    archive = Path(tonnage.__file__).parents[1]
    if archive.is_dir():
        return archive
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    goal = folder / digest
    if not goal.is_dir():
        draft = folder / f".{digest}-{uuid.uuid4().hex[:8]}"
        make_private_folder(draft)
        with zipfile.ZipFile(archive) as content:
            content.extractall(draft)
        try:
            os.rename(draft, goal)
        except OSError:  # another task of this machine was first
            shutil.rmtree(draft)
    return goal
