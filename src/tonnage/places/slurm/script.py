"""The batch script of a run. Pure.

A job that ends with exit code 0 is COMPLETED and Slurm never starts it again, whatever signal it had: so a run that was
saved because its machine goes requeues itself and stays until it is killed.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tonnage.places.file import SlurmPlace
from tonnage.runs.states import WorkerExit

SAVE_MARGIN_S: Final = 5  # of the grace, for the script itself and what it starts
LOG: Final = "place.log"
SCRIPT: Final = "place.sh"


def batch_script(place: SlurmPlace, folder: Path, *, name: str, tag: str, token: str) -> str:
    """The whole script: what is asked of Slurm, a fence against older submissions, the supervisor, the requeue."""
    head = "".join(f"#SBATCH {option}\n" for option in options(place, folder, name=name, tag=tag))
    body = _BODY.format(
        run=shlex.quote(str(folder)),
        token=token,
        setup="".join(f"{line}\n" for line in place.setup),
        python=shlex.quote(place.python or sys.executable),
        notice_s=max(1, place.grace_s - SAVE_MARGIN_S),
        preempted=WorkerExit.PREEMPTED,
    )
    return f"#!/bin/sh\n{head}{body}"


def options(place: SlurmPlace, folder: Path, *, name: str, tag: str) -> Iterator[str]:
    """What follows `#SBATCH`, one option a line."""
    yield f"--job-name=tonnage-{name}"
    yield f"--comment={tag}"
    yield f"--output={_quoted(str(folder / LOG))}"
    yield "--open-mode=append"
    yield "--requeue"
    for key in ("partition", "account", "qos", "constraint", "reservation"):
        value = getattr(place, key)
        if value is not None:
            yield f"--{key}={_quoted(value)}"
    yield f"--nodes={place.nodes}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={place.cores}"
    yield f"--mem={math.ceil(place.memory_gib * 1024)}M"
    if place.gpus:
        yield f"--gres={gres(place)}"
    yield f"--time={place.time_limit_minutes}"
    yield f"--signal=B:USR1@{place.grace_s}"


def gres(place: SlurmPlace) -> str:
    """The GPUs of one node, as Slurm counts them.

    >>> gres(SlurmPlace(kind="slurm", cores=1, memory_gib=1, time_limit_minutes=1, gpus=8, gpu="h100"))
    'gpu:h100:8'
    """
    return ":".join(filter(None, ("gpu", place.gpu, str(place.gpus))))


def _quoted(value: str) -> str:
    """As sbatch reads a `#SBATCH` line: quotes only where there is a blank."""
    return f'"{value}"' if " " in value else value


_BODY: Final = """
run={run}
# A job of an older submission, or of a run that was removed, touches nothing.
if ! grep -qs '"token": "{token}"' "$run/place.json"; then
  echo "tonnage: this job ({token}) is not the newest submission of $run"
  exit 0
fi
{setup}cd "$run" || exit 1
{python} -m tonnage.supervisor --as-job --notice-s {notice_s} "$run" &
work=$!
# Slurm's signal comes before the time limit and before a preemption: the supervisor saves and ends.
trap 'kill -TERM $work 2>/dev/null' USR1 TERM
wait $work; code=$?
while kill -0 $work 2>/dev/null; do wait $work; code=$?; done
if [ $code -eq {preempted} ]; then
  trap '' USR1
  trap - TERM
  case "$(scontrol show job -o "$SLURM_JOB_ID")" in
    *JobState=COMPLETING*) exit $code ;;  # Slurm ends it already: it was cancelled, or its time is over
  esac
  scontrol requeue "$SLURM_JOB_ID" || exit $code
  exec sleep 3600  # until Slurm ends it
fi
exit $code
"""
