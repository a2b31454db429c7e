"""A Spark standalone cluster as a place: one driver for each submission, on a worker, which the master starts again
where it dies; a bucket that client and workers share; runs over several executors.

The master says RUNNING while the driver waits for executors, so the driver says in the bucket how far it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.http.retries import TemporaryError
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.bucket.objects import Objects, open_objects
from tonnage.places.contract import DeclaredGap, PlaceFinding, Submission, read_tag
from tonnage.places.spark.master import ATTEMPTS, SparkMaster, class_name, starter, tag_in
from tonnage.places.spark.place import SparkPlace
from tonnage.places.spark.questions import against
from tonnage.places.ssh.shipping import own_code
from tonnage.places.states import DRIVER_PHASES, JobView, Phase
from tonnage.places.terms import merged
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, across_by_environment
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

SERVICE: Final = "spark"
SUBMIT: Final = "create"  # POST /v1/submissions/create
DRIVER: Final = "tonnage.supervisor.spark"
CODE: Final = "CODE"  # in what is shown before: its hash is known when it is sent
SCRIPT: Final = f'import runpy\n\nrunpy.run_module("{DRIVER}", run_name="__main__", alter_sys=True)\n'
ENDED: Final = frozenset({"FINISHED", "KILLED", "FAILED", "ERROR"})
END_WAIT_S: Final = 60.0
LATE_S: Final = 1.0  # after an answer that was lost: the master may still be at it
OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)  # packages that Spark needs on Java 17: what its JavaModuleOptions opens, which a master leaves out for drivers


@dataclass(frozen=True, kw_only=True)
class SparkJobs:
    """One place of the kind `spark`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        DeclaredGap(
            verb="check",
            reason="whether the workers' Python has what runs need and reaches the bucket shows when the run starts",
        ),
        DeclaredGap(verb="exec", reason="a master runs no command beside an application that works", whole=True),
    )
    name: str
    place: SparkPlace
    attempts: int = ATTEMPTS

    @property
    def notices(self) -> tuple[str, ...]:
        return () if self.place.notices is None else (self.place.notices,)

    @cached_property
    def master(self) -> SparkMaster:
        return SparkMaster(self.name, self.place, attempts=self.attempts)

    @cached_property
    def objects(self) -> Objects:
        return open_objects(self.place.bucket, region=self.place.region, endpoint=self.place.store_endpoint)

    def requests(self, work: Work) -> tuple[Request, ...]:
        body = merged(submitted(self.place, work), self.place.patch.get(SUBMIT, {}))
        return (Request(service=SERVICE, operation=SUBMIT, body=body),)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """Once: after an answer that was lost the driver is looked for by its class, which has the token."""
        [request] = requests
        code = own_code()
        body = json.loads(json.dumps(request.body).replace(f"/{CODE}/", f"/{code.digest[:16]}/"))
        self._keep(f"code/{code.digest[:16]}/tonnage.zip", code.content)
        self._keep(f"code/{code.digest[:16]}/driver.py", SCRIPT.encode())
        tag = tag_in(body["mainClass"])
        self.objects.write(starter_key(tag), starter(tag))
        try:
            return self.master.create(body)
        except TemporaryError as error:
            time.sleep(LATE_S)
            if (there := self.find(token)) is not None:
                return there
            raise TonnageError(f"{self.name}: {self.place.rest_url} does not answer: {error}",
                               hint="`tonnage resume` sends it again") from error  # fmt: skip

    def _keep(self, key: str, content: bytes) -> None:
        """Its key has its hash: what is there is the same."""
        if key not in self.objects.sizes(key):
            self.objects.write(key, content)

    def find(self, token: str) -> str | None:
        """The newest driver of a submission."""
        found = [one["id"] for one in self._drivers() if (tag := _tag(one)) is not None and tag[1] == token]
        return found[-1] if found else None

    def view(self, job_id: str) -> JobView:
        driver = self._described(job_id)
        if driver is None:
            return JobView(phase=Phase.GONE, job_id=job_id)
        return view_of(driver, self._said(driver))

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - a driver is of one submission
        """Killed; its application ends with it."""
        until = time.monotonic() + END_WAIT_S
        while (found := self._described(job_id)) is not None and found["state"] not in ENDED:
            self.master.kill(job_id)
            if time.monotonic() > until:
                raise TonnageError(f"{job_id} does not end at {self.name}", hint=f"its page: {self.place.web_url}")
            time.sleep(0.3)

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        found = []
        for driver in self._drivers():
            tag = _tag(driver)
            if tag is not None and tag[0] == home and driver["state"] not in ENDED:
                found.append(TaggedCloudJob(job_id=driver["id"], tag=tag_in(driver["mainclass"]),
                                            view=view_of(driver, {})))  # fmt: skip
        return found

    def questions(self) -> Iterator[PlaceFinding]:
        yield from against(self.name, self.place, self.master)

    def _drivers(self) -> list[dict[str, Any]]:
        """Those that live last."""
        page = self.master.page()
        found: list[dict[str, Any]] = [*page.get("completeddrivers", ()), *page.get("activedrivers", ())]
        return found

    def _described(self, job_id: str) -> dict[str, Any] | None:
        return next((one for one in self._drivers() if one["id"] == job_id), None)

    def _said(self, driver: Mapping[str, Any]) -> dict[str, Any]:
        found = self.objects.read(said_key(tag_in(driver["mainclass"])))
        said: dict[str, Any] = {} if found is None else json.loads(found.content)
        return said


def starter_key(tag: str) -> str:
    """Of the jar of a submission, in the bucket."""
    _, home, token, run = tag.split(":", 3)
    return f"{home}/{run}/starter-{token}.jar"


def said_key(tag: str) -> str:
    """Of what the driver of a submission says, in the bucket."""
    _, home, token, run = tag.split(":", 3)
    return f"{home}/{run}/driver-{token}.json"


def submitted(place: SparkPlace, work: Work) -> Body:
    """The whole request of a submission. Secrets are named alone: everybody who sees the master's page sees it."""
    name, code = class_name(work.tag), f"{place.hadoop_url}/code/{CODE}"
    settings = settings_of(place, work)
    optional = {"--region": place.region, "--endpoint": place.store_endpoint}
    return {
        "action": "CreateSubmissionRequest", "clientSparkVersion": "3.5.0", "mainClass": name,
        "appResource": f"{place.hadoop_url}/{starter_key(work.tag)}",
        "appArgs": [
            "--master", place.address, "--deploy-mode", "client", "--name", name, "--py-files", f"{code}/tonnage.zip",
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
            f"{code}/driver.py", "--tag", work.tag, "--store", place.store_there,
            *(word for key, value in optional.items() if value is not None for word in (key, value)),
            "--nodes", str(place.nodes), "--mount", place.mount, "--resource", place.resource if place.gpus else "",
            "--limit-s", str(place.time_limit_minutes * 60), "--notice-s", str(place.grace_s), "--", *work.command,
        ],
        "environmentVariables": dict(work.env),
        "sparkProperties": {
            "spark.master": place.address, "spark.app.name": name, "spark.driver.supervise": "true",
            "spark.driver.cores": str(place.driver_cores), "spark.driver.memory": f"{place.driver_mib}m",
            "spark.driver.extraJavaOptions": " ".join(
                ["-XX:+IgnoreUnrecognizedVMOptions", *(f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in OPENED)]
            ),
        },
    }  # fmt: skip


def settings_of(place: SparkPlace, work: Work) -> dict[str, str]:
    """Of the application: one task an executor, all at once, each with its GPUs; what the place says goes before."""
    amount = str(place.gpus)
    gpus = {f"spark.executor.resource.{place.resource}.amount": amount,
            f"spark.task.resource.{place.resource}.amount": amount} if place.gpus else {}  # fmt: skip
    return {
        "spark.cores.max": str(place.nodes * place.cores), "spark.executor.cores": str(place.cores),
        "spark.task.cpus": str(place.cores), "spark.executor.memory": f"{place.executor_mib}m", **gpus,
        "spark.pyspark.python": place.python,
        # a barrier stage that failed is started again by the driver alone, under its next epoch
        "spark.stage.maxConsecutiveAttempts": "1", "spark.task.maxFailures": "1", "spark.speculation": "false",
        "spark.dynamicAllocation.enabled": "false",
        **{f"spark.executorEnv.{key}": value for key, value in work.env.items()},
        **place.settings,
    }  # fmt: skip


def view_of(driver: Mapping[str, Any], said: Mapping[str, Any]) -> JobView:
    """A driver as the master tells of it, and as it tells of itself.

    >>> view_of({"id": "driver-1", "state": "RUNNING"}, {"phase": "queued", "reason": "1 of 2 executors"}).phase
    <Phase.QUEUED: 'queued'>
    """
    state, reason = str(driver["state"]), str(said.get("reason") or "")
    match state:
        case "SUBMITTED":
            phase, reason = Phase.QUEUED, "no worker has room for its driver"
        case "RELAUNCHING":
            phase, reason = Phase.QUEUED, "the worker of its driver was lost"
        case "RUNNING":
            phase = DRIVER_PHASES.get(str(said.get("phase")), Phase.PROVISIONING)
        case "KILLED":
            phase = Phase.CANCELLED
        case _:
            phase = Phase.ENDED
    return JobView(phase=phase, job_id=str(driver["id"]), word=state, reason=reason, nodes=str(said.get("node") or ""))


@dataclass(frozen=True, kw_only=True)
class SparkRuns(BucketRuns):
    """One place of the kind `spark`."""

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        assert isinstance(self.place, SparkPlace)
        nodes = self.place.nodes
        job = job if nodes == 1 else across_by_environment(job, nodes=nodes)
        return BucketRuns.render(self, spec, job, folder, number=number)


def _tag(driver: Mapping[str, Any]) -> tuple[str, str, str] | None:
    return read_tag(tag_in(str(driver.get("mainclass") or "")))
