"""SkyPilot's managed jobs: one for each submission, by the command `sky`, which has its own environment.

SkyPilot starts a job whose machine was taken again on the next that has capacity, the same task with the same token.
Sources: SkyPilot 0.14.1, `sky/utils/schemas.py` (tasks, resources), `sky/jobs/state.py` (states), `sky jobs --help`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work, refused
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.runs.states import WorkerExit
from tonnage.values import dataclass

LAUNCH: Final = "Task"
ANSWERS_S: Final = 600  # SkyPilot starts its controller at the first job
KILL_S: Final = 60  # after SIGTERM at the time limit
CLOUDS: Final = {"aws": "aws", "gcp": "gcp", "azure": "azure", "digitalocean": "do"}  # the catalog's names: SkyPilot's
PHASES: Final[Mapping[str, Phase]] = {
    "PENDING": Phase.QUEUED, "SUBMITTED": Phase.QUEUED, "STARTING": Phase.PROVISIONING, "RUNNING": Phase.RUNNING,
    "WINDING_DOWN": Phase.ENDING, "RECOVERING": Phase.QUEUED, "CANCELLING": Phase.ENDING, "SUCCEEDED": Phase.ENDED,
    "CANCELLED": Phase.CANCELLED, "FAILED": Phase.ENDED, "FAILED_SETUP": Phase.ENDED, "FAILED_PRECHECKS": Phase.ENDED,
    "FAILED_NO_RESOURCE": Phase.ENDED, "FAILED_CONTROLLER": Phase.ENDED,
}  # fmt: skip
TAG: Final = re.compile(r"TONNAGE_TAG: *['\"]?(tonnage:[^'\"\s]+)")


@dataclass(frozen=True, kw_only=True)
class SkyPilotJobs:
    """One place of the kind `skypilot`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(
            verb="check", reason="image, quota and capacity are known when SkyPilot looks for a machine: schema only"
        ),
        DeclaredGap(
            verb="submit", reason="SkyPilot knows no token: a job whose answer was lost is looked for by its name"
        ),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ("aws", "gcp", "azure")  # whichever cloud the machine is of
    name: str
    place: SkyPilotPlace
    answers_s: float = ANSWERS_S

    def requests(self, work: Work) -> tuple[Request, ...]:
        body = merged(task(self.place, work), self.place.patch.get(LAUNCH, {}))
        return (Request(service=f"sky jobs launch --name {work.name} --yes --detach-run", operation=LAUNCH, body=body),)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The job's id. One of this token that is there already is taken: names have it."""
        [request] = requests
        there = self.find(token)
        if there is not None:
            return there
        with tempfile.TemporaryDirectory(prefix="tonnage-") as folder:
            file = Path(folder) / "task.yaml"
            file.write_text(task_text(request.body), encoding="utf-8")
            self._sky("jobs", "launch", "--name", str(request.body["name"]), "--yes", "--detach-run", str(file))
        made = self.find(token)
        if made is None:
            message = "SkyPilot took the job and does not list it"
            raise TonnageError(message, hint="`sky jobs queue`, and `tonnage resume`")
        return made

    def find(self, token: str) -> str | None:
        """The newest whose name ends with the token."""
        found = [one for one in self._queue() if str(one.get("job_name") or "").endswith(token)]
        return str(max(int(one["job_id"]) for one in found)) if found else None

    def view(self, job_id: str) -> JobView:
        found = next((one for one in self._queue() if str(one.get("job_id")) == job_id), None)
        return JobView(phase=Phase.GONE, job_id=job_id) if found is None else view_of(found)

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the job's id is enough
        """Cancelled; SkyPilot ends its machine."""
        if self.view(job_id).phase not in {Phase.ENDED, Phase.CANCELLED, Phase.GONE}:
            self._sky("jobs", "cancel", "--yes", job_id)

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        found = []
        for one in self._queue("--skip-finished"):
            tag = TAG.search(str(one.get("user_yaml") or ""))
            if tag is not None and tag[1].split(":")[1] == home:
                found.append(TaggedCloudJob(job_id=str(one["job_id"]), tag=tag[1], view=view_of(one)))
        return found

    def questions(self) -> Iterator[PlaceFinding]:
        """Whether SkyPilot is there and has each of the clouds."""
        try:
            checked = self._json("check", "-o", "json")
        except TonnageError as error:
            yield refused(error.message, error.hint or "")
            return
        enabled = str(checked).lower()
        for cloud in dict.fromkeys(one.split("/")[0] for one in self.place.candidates):
            known = CLOUDS.get(cloud, cloud)
            if f"'{known}'" not in enabled:
                yield refused(f"SkyPilot has no access to {cloud}", f"`{self.place.command} check {known}`")
        yield PlaceFinding(
            kind="unchecked", message="image, quota and capacity: SkyPilot tells when it looks for a machine",
            hint=f"`skopeo inspect docker://{self.place.image}`",
        )  # fmt: skip

    def _queue(self, *more: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("jobs", "queue", "--all", "-o", "json", *more)
        return found

    def _json(self, *words: str) -> Any:
        """What a command prints, from the first bracket on: SkyPilot's own remarks may come before it."""
        text = self._sky(*words)
        begin = re.search(r"^[\[{]", text, re.MULTILINE)
        try:
            return json.loads(text[begin.start() :]) if begin else json.loads(text)
        except ValueError as error:
            raise TonnageError(f"sky {shlex.join(words)} printed no JSON: {text[:200]!r}",
                               hint="SkyPilot 0.14 or newer") from error  # fmt: skip

    def _sky(self, *words: str) -> str:
        """Standard output of a command. TonnageError with its last line where it fails or does not come back."""
        chosen = [] if self.place.workspace is None else ["--config", f"active_workspace={self.place.workspace}"]
        argv = [*shlex.split(self.place.command), *words, *(chosen if words[0] == "jobs" else [])]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=self.answers_s)
        except FileNotFoundError as error:
            hint = "an environment of its own: `pip install 'skypilot[aws,gcp]>=0.14'`, and places.NAME.command"
            raise InputError(f"there is no command {argv[0]}", hint=hint) from error
        except subprocess.TimeoutExpired as error:
            message = f"sky {words[0]} does not come back after {self.answers_s:g} s"
            raise TonnageError(message, hint="`sky api status`") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            message = f"sky {' '.join(words[:2])}: {said[-1] if said else done.returncode}"
            raise TonnageError(message, hint="`sky api info`")
        return done.stdout


def task(place: SkyPilotPlace, work: Work) -> Body:
    """The task: machines in their order, one node, the image as its runtime, and an end after the time limit."""
    machines = [_machine(one, spot=place.spot) for one in place.candidates]
    limit_s = place.time_limit_minutes * 60
    run = f"exec timeout --signal=TERM --kill-after={KILL_S} {limit_s} {shlex.join(work.command)}"
    return {
        "name": work.name,
        "num_nodes": 1,
        "resources": {
            "ordered": machines, "image_id": f"docker:{place.image}", "disk_size": place.disk_gib,
            "labels": {key: value for key, value in work.tags.items() if ":" not in value and "/" not in value},
            "job_recovery": {
                "strategy": place.strategy, "max_restarts_on_errors": 0,
                "recover_on_exit_codes": [int(WorkerExit.PREEMPTED)],
            },
        },
        "envs": {**work.env, "TONNAGE_TAG": work.tag, "TONNAGE_TOKEN": work.token},
        "run": run + "\n",
    }  # fmt: skip


def _machine(text: str, *, spot: bool) -> Body:
    provider, region, instance_type = text.split("/")
    return {"infra": f"{CLOUDS.get(provider, provider)}/{region}", "instance_type": instance_type, "use_spot": spot}


def task_text(body: Mapping[str, Any]) -> str:
    """The task as SkyPilot's YAML file."""
    return yaml.safe_dump(dict(body), sort_keys=False, allow_unicode=True, width=1000)


def view_of(job: Mapping[str, Any]) -> JobView:
    """A job as `sky jobs queue -o json` tells of it.

    >>> view_of({"job_id": 7, "status": "RECOVERING"}).phase
    <Phase.QUEUED: 'queued'>
    """
    word = str(job.get("status") or "").rpartition(".")[2]
    reason = str(job.get("failure_reason") or job.get("details") or "")
    return JobView(
        phase=PHASES.get(word, Phase.PROVISIONING), job_id=str(job["job_id"]), word=word,
        reason=" ".join(reason.split()), nodes=str(job.get("infra") or ""),
    )  # fmt: skip
