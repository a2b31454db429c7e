"""A Ray cluster as a place: one job for each submission, whose driver on the head holds the run's part of a node; a
bucket that client and nodes share; commands beside a run.

The job's id is the submission's: Ray takes each once. Ray says RUNNING while the driver waits for a node, so the driver
says in its own log, which is short, how far it is.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.ray.dashboard import TRIES, RayDashboard, RayRefused, RayUnreachable
from tonnage.places.ray.place import RayPlace
from tonnage.places.ray.questions import against
from tonnage.places.record import read_record
from tonnage.places.ssh.shipping import own_code
from tonnage.places.states import DRIVER_PHASES, JobView, Phase
from tonnage.places.terms import merged
from tonnage.runs.folder import RunFolder
from tonnage.values import dataclass

SERVICE: Final = "ray"
SUBMIT: Final = "jobs"  # POST /api/jobs/
DRIVER: Final = "tonnage.supervisor.ray"
CODE: Final = "CODE"  # in what is shown before: its hash is known when it is sent
PACKAGE: Final = "_ray_pkg_{}.zip"
SAID: Final = "tonnage-state "  # begins the lines by which the driver says how far it is
ENDED: Final = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
END_WAIT_S: Final = 30.0
OUTPUT: Final = "tonnage-output\n"  # of the command, after what Ray itself prints


@dataclass(frozen=True, kw_only=True)
class RayJobs:
    """One place of the kind `ray`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        DeclaredGap(
            verb="check", reason="whether the nodes reach the bucket, and have what the run needs, shows when it starts"
        ),
    )
    name: str
    place: RayPlace
    tries: int = TRIES

    @property
    def notices(self) -> tuple[str, ...]:
        return () if self.place.notices is None else (self.place.notices,)

    @cached_property
    def dashboard(self) -> RayDashboard:
        return RayDashboard(self.name, self.place, tries=self.tries)

    def requests(self, work: Work) -> tuple[Request, ...]:
        body = merged(submitted(self.place, work), self.place.patch.get(SUBMIT, {}))
        return (Request(service=SERVICE, operation=SUBMIT, body=body),)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """A job of this id that is there already is this submission's, or another's and refused."""
        [request] = requests
        code = own_code()
        package = PACKAGE.format(code.digest[:16])
        self.dashboard.keep_package(package, code.content)
        body = json.loads(json.dumps(request.body).replace(PACKAGE.format(CODE), package))
        job_id = str(body["submission_id"])
        try:
            self.dashboard.json("POST", "/api/jobs/", body)
        except (RayRefused, RayUnreachable) as error:
            there = self._described(job_id)
            if there is None:
                raise
            if (there.get("metadata") or {}).get("tonnage-token") != token:
                message = f"a job {job_id} is at {self.name} already and is not this run's"
                raise TonnageError(message, hint="--name NAME gives the run another") from error
        return job_id

    def find(self, token: str) -> str | None:
        return next((one.job_id for one in self._jobs("tonnage-token", token)), None)

    def view(self, job_id: str) -> JobView:
        found = self._described(job_id)
        if found is None:
            return JobView(phase=Phase.GONE, job_id=job_id)
        return view_of(found, said_in(self._log(job_id)))

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the id has the token
        """Stopped, and removed from the cluster's list, where it would stay for good."""
        until = time.monotonic() + END_WAIT_S
        while (found := self._described(job_id)) is not None and found["status"] not in ENDED:
            self.dashboard.json("POST", f"/api/jobs/{job_id}/stop")
            if time.monotonic() > until:
                raise TonnageError(f"{job_id} does not end at {self.name}", hint=f"`ray job stop {job_id}`")
            time.sleep(0.2)
        if found is not None:
            self.dashboard.json("DELETE", f"/api/jobs/{job_id}")

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        return [one for one in self._jobs("tonnage-home", home) if one.view.word not in ENDED]

    def questions(self) -> Iterator[PlaceFinding]:
        yield from against(self.name, self.place, self.dashboard)

    def output(self, command: str, job_id: str) -> tuple[int | None, str]:
        """Run a command on the head as a job of its own; exit code and what it printed. The job is removed."""
        body: Body = {"submission_id": job_id, "entrypoint": command, "entrypoint_num_cpus": 0}
        code = own_code()
        package = PACKAGE.format(code.digest[:16])
        self.dashboard.keep_package(package, code.content)
        body["runtime_env"] = {"working_dir": f"gcs://{package}"}
        self.dashboard.json("POST", "/api/jobs/", body)
        try:
            while (found := self.dashboard.json("GET", f"/api/jobs/{job_id}"))["status"] not in ENDED:
                time.sleep(0.2)
            return found.get("driver_exit_code"), self._log(job_id)
        finally:
            self.end(job_id, "")

    def _described(self, job_id: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.dashboard.found(f"/api/jobs/{job_id}")
        return found

    def _log(self, job_id: str) -> str:
        """What the job has printed; empty where it has just gone."""
        return str((self.dashboard.found(f"/api/jobs/{job_id}/logs") or {}).get("logs", ""))

    def _jobs(self, key: str, value: str) -> list[TaggedCloudJob]:
        found = []
        for job in self.dashboard.json("GET", "/api/jobs/"):
            metadata = job.get("metadata") or {}
            if metadata.get(key) == value and job.get("submission_id"):
                tag = str(metadata.get("tonnage", ""))
                found.append(TaggedCloudJob(job_id=str(job["submission_id"]), tag=tag, view=view_of(job, {})))
        return found


def submitted(place: RayPlace, work: Work) -> Body:
    """The whole request of a submission. Secrets are named alone: everybody who sees the dashboard sees it."""
    words = (
        place.python, "-m", DRIVER, "--token", work.token, "--home", work.home, "--bundle",
        json.dumps(place.bundle, sort_keys=True), "--limit-s", str(place.time_limit_minutes * 60),
        "--notice-s", str(place.grace_s), *(("--nodes", str(place.nodes)) if place.nodes > 1 else ()), "--",
        *work.command,
    )  # fmt: skip
    return {
        "submission_id": work.name,
        "entrypoint": shlex.join(words),
        "entrypoint_num_cpus": 0,
        "metadata": dict(work.tags),
        "runtime_env": {"working_dir": f"gcs://{PACKAGE.format(CODE)}", "env_vars": dict(work.env)},
    }


def said_in(log: str) -> dict[str, Any]:
    """The driver's newest word; empty where it has said none.

    >>> said_in('Connecting...\\ntonnage-state {"phase": "queued"}\\ntonnage-state {"pha')["phase"]
    'queued'
    """
    lines = [line for line in log.split("\n")[:-1] if line.startswith(SAID)]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(SAID)) if lines else {}
    return found


def view_of(job: Mapping[str, Any], said: Mapping[str, Any]) -> JobView:
    """A job as Ray tells of it, and its driver.

    >>> view_of({"status": "RUNNING", "submission_id": "t"}, {"phase": "queued", "reason": "no node has 8 GPU"}).phase
    <Phase.QUEUED: 'queued'>
    """
    status, code = str(job["status"]), job.get("driver_exit_code")
    reason = str(said.get("reason") or "")
    if status == "PENDING":
        phase, reason = Phase.PROVISIONING, str(job.get("message") or "")
    elif status == "RUNNING":
        phase = DRIVER_PHASES.get(str(said.get("phase")), Phase.PROVISIONING)
    elif status == "STOPPED":
        phase = Phase.CANCELLED
    else:
        phase = Phase.ENDED
        reason = reason or str(job.get("message") or "").split(", last available logs")[0]
    return JobView(
        phase=phase, job_id=str(job.get("submission_id") or ""), word=status, reason=reason,
        nodes=str(said.get("node") or ""), exit_code=code if isinstance(code, int) else None,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RayRuns(BucketRuns):
    """One place of the kind `ray`."""

    @cached_property
    def ray(self) -> RayJobs:
        assert isinstance(self.cloud, RayJobs)
        return self.cloud

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        """By a job of its own that asks the run's actor: with the run's GPUs, in its folder there."""
        record = read_record(folder)
        if record is None:
            name = folder.path.name
            raise TonnageError(f"'{name}' has no job at {self.name}", hint=f"`tonnage show {name}`")
        words = (self.terms.python, "-m", DRIVER, "--exec", record.token, "--home", record.tag.split(":")[1])
        command = shlex.join((*words, "--", str(self.folder_there(folder).path), *argv))
        code, log = self.ray.output(command, f"t-exec-{uuid.uuid4().hex[:12]}")
        _, mark, said = log.partition(OUTPUT)
        if code is None or not mark:
            lines = [line for line in log.splitlines() if line.strip()]
            raise TonnageError(
                f"{self.name}: the command did not run: {lines[-1] if lines else 'nothing was said'}",
                hint=f"`tonnage show {folder.path.name}`: is it running?",
            )
        sys.stdout.write(said)
        return code
