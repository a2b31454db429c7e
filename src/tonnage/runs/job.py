"""What a runner rendered: the command that starts the workers, complete and readable, and nothing started yet; and the
same command for several machines, in the words of torchrun's agent.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from tonnage.errors import InputError
from tonnage.runs.spec import RunnerName
from tonnage.values import dataclass

SCHEMA: Final = "tonnage/job@1"
# How threads wait for the next operation. Asleep: each operation then wakes them, which a model of small operations
# feels; spinning takes ten times as long where two programs share the cores. Devices are measured under the same rule.
WAITING_THREADS: Final = ("OMP_WAIT_POLICY", "PASSIVE")
SignalTo = Literal["command", "children", "nobody"]
ALONE: Final = ("--standalone", "--nnodes", "1")  # as a run of one machine has it
PER_NODE: Final = "--nproc-per-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file the command needs; its path starts at the run's folder."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One command with its surroundings. A secret is named here; its value comes from the submitter's environment."""

    runner: RunnerName
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()  # set for the command, over what it inherits
    secrets: tuple[str, ...] = ()  # names of variables it inherits and that are never written down
    files: tuple[JobFile, ...] = ()
    processes: int = 1
    signal_to: SignalTo = "command"  # which processes get SIGTERM; "nobody": none, the workers read the stop file
    schema: Literal["tonnage/job@1"] = SCHEMA

    @property
    def command_line(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.argv)


def alone_script(job: Job, *, folder: str, spec: str) -> str:
    """A shell script that makes the run's folder with this specification and does the work: without a supervisor, so
    without restarts, limits and measurements. The journal has its beginning and its end, by the command's exit code."""
    place, name = shlex.quote(folder), PurePosixPath(folder).name
    submitted = {"kind": "submitted", "name": name, "runner": job.runner, "processes": job.processes}
    return "".join(
        [
            "#!/bin/sh\n# The work alone, without a supervisor: no restarts, no limits. `tonnage run` has them.\n",
            "set -e\numask 077\n",
            *(f": ${{{name}:?is not set: it is taken from your environment}}\n" for name in job.secrets),
            f"mkdir -p {place}/checkpoints {place}/exits\n",
            f"cat > {place}/spec.json <<'END_OF_SPEC'\n{spec.rstrip()}\nEND_OF_SPEC\n",
            f"export TONNAGE_EXITS={place}/exits\n",
            *(f"mkdir -p {place}/{shlex.quote(str(PurePosixPath(file.path).parent))}\n"
              f"cat > {place}/{shlex.quote(file.path)} <<'END_OF_FILE'\n{file.text.rstrip()}\nEND_OF_FILE\n"
              for file in job.files),
            *(f"export {name}={shlex.quote(value)}\n" for name, value in job.env),
            _SAY.replace("PLACE", place),
            f"say '{json.dumps(submitted)[1:-1]}, \"alone_pid\": '$$', \"host\": \"'$(uname -n)'\"'\n",
            f"{job.command_line} &\n",
            _WAIT,
        ]
    )  # fmt: skip


_SAY: Final = """say() {
  printf '{"at": "%s", "who": "script", %s}\\n' "$(date -u +%Y-%m-%dT%H:%M:%S+00:00)" "$1" >> PLACE/journal.jsonl
}
"""
_WAIT: Final = """work=$!
trap 'kill -TERM $work' TERM INT HUP
set +e
wait $work; code=$?
while kill -0 $work 2>/dev/null; do wait $work; code=$?; done
case $code in
  0) say '"kind": "succeeded"' ;;
  75|76) say '"kind": "stopped"' ;;
  *) say '"kind": "failed", "message": "the command ended with exit code '$code'"' ;;
esac
exit $code
"""


@cache
def _adapter() -> TypeAdapter[Job]:
    return TypeAdapter(Job)


def dump_job(job: Job) -> str:
    """The job as JSON, the same bytes for the same value."""
    return _adapter().dump_json(job, indent=2).decode() + "\n"


def load_job(text: str, *, where: str) -> Job:
    """A job read back; InputError names the key of what cannot be used."""
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first: Any = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: {key}: {first['msg']}", hint="start a new run from its workload file") from error


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
