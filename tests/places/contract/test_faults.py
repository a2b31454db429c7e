"""What goes wrong beside a run, for every kind of place: the same tests for all, or where a kind has its own.

`ELSEWHERE` is the matrix: a kind that no test here holds names the test that does, or why it cannot happen there.
A kind that places.toml may name and that has neither fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tonnage.errors import TonnageError
from tonnage.places.file import KINDS
from tonnage.places.record import read_record, write_record
from tonnage.places.states import PlaceStatus
from tonnage.runs import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor, read_heartbeat
from tonnage.testing.between import Proxy, between, first
from tonnage.testing.http_service import Asked, HTTPAnswer
from tonnage.testing.places import PlaceTrial

ROOT = Path(__file__).parents[3]
ENDPOINTS = {  # of the service that starts machines: the variable that leads to it
    "sagemaker": "AWS_ENDPOINT_URL_SAGEMAKER", "ec2": "AWS_ENDPOINT_URL_EC2", "aws-batch": "AWS_ENDPOINT_URL_BATCH",
    "gce": "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "vertex": "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM",
    "azure": "TONNAGE_AZURE_MANAGEMENT_URL", "azureml": "TONNAGE_AZURE_MANAGEMENT_URL",
    "digitalocean": "DIGITALOCEAN_API_URL", "databricks": "DATABRICKS_HOST",
}  # fmt: skip
SLOWLY = HTTPAnswer(status=429, document={"message": "slower"}, headers={"Retry-After": "0"})
THROTTLED = {  # in the words of a service that has its own; else 429
    "sagemaker": HTTPAnswer(status=400, document={"__type": "ThrottlingException", "message": "Rate exceeded"}),
    "ec2": HTTPAnswer(status=503, content=b"<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slower"
                                          b"</Message></Error></Errors></Response>"),
    "aws-batch": HTTPAnswer(status=429, document={"message": "slower"},
                            headers={"x-amzn-ErrorType": "TooManyRequestsException"}),
}  # fmt: skip
BROKEN = HTTPAnswer(status=500, content=b"")
LASTING = {"steps": 4000, "step_s": 0.02, "checkpoint_every": 5}
HTTP = frozenset({"kubernetes", *ENDPOINTS})
BUCKETS = frozenset({*ENDPOINTS, "skypilot"})

ELSEWHERE: dict[str, dict[str, str]] = {
    "throttling, failures, lost answers": {
        "ray": "ray/test_ray.py::test_throttling_and_failures",
        "spark": "spark/test_spark.py::test_a_driver_is_made_once",
        "skypilot": "skypilot/test_skypilot.py::test_sent_twice_it_is_one_job_and_it_is_found_and_ended",
        "ssh": "test_ssh.py::test_the_connection_breaks_while_a_run_is_followed",
        "slurm": "test_slurm.py::test_a_killed_client",
    },
    "a job that vanishes": {},
    "a cluster at its limit": {
        "kubernetes": "kubernetes/test_executor.py::test_found_without_its_name",
        "sagemaker": "aws/test_sagemaker.py::test_a_quota_that_is_spent_while_it_is_sent_is_said",
        "ec2": "aws/test_ec2.py::test_a_zone_without_capacity_is_passed_over_and_none_is_an_error",
        "aws-batch": "aws/test_batch.py::test_check_sees_a_queue_and_an_environment_that_take_no_jobs",
        "gce": "google/test_compute.py::test_a_zone_without_capacity_is_passed_over_and_none_is_an_error",
        "vertex": "google/test_vertex.py::test_a_job_that_fails_says_why",
        "azure": "azure/test_machines.py::test_a_zone_without_capacity_is_passed_over_and_none_is_an_error",
        "azureml": "azure/test_jobs.py::test_sent_twice_it_is_one_job",
        "digitalocean": "digitalocean/test_droplets.py::test_no_capacity_leaves_nothing_behind",
        "databricks": "databricks/test_databricks.py::test_a_run_whose_work_never_began_says_why",
        "skypilot": "skypilot/test_skypilot.py::test_a_job_whose_work_fails_says_why",
        "ray": "ray/test_ray.py::test_what_no_node_has_is_refused",
        "spark": "spark/test_spark.py::test_what_no_workers_hold_is_refused",
        "slurm": "test_slurm.py::test_taken_out_of_the_queue",
        "ssh": "test_ssh_parts.py::test_what_stands_against_a_run",
    },
    "clocks that differ": {
        "ray": "bucket: tests/places/bucket, the same exchange",
        "spark": "bucket: tests/places/bucket, the same exchange",
        "ssh": "test_ssh.py::test_check_says_what_stands_against_it",
        "slurm": "none: client and nodes share a folder, and its locks tell who lives",
    },
}  # fmt: skip
HELD = {  # by a test of this file
    "throttling, failures, lost answers": HTTP,
    "a job that vanishes": frozenset(KINDS),
    "a cluster at its limit": frozenset(),
    "clocks that differ": BUCKETS | {"kubernetes"},
}


@pytest.mark.parametrize("fault", ELSEWHERE)
def test_each_kind_is_held_for_each_fault(fault: str) -> None:
    """By a test of this file, or by one that is there under the name that the matrix has."""
    told = ELSEWHERE[fault]
    assert set(told) | HELD[fault] == set(KINDS)
    for where in told.values():
        if "::" in where:
            file, _, name = where.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / "tests" / "places" / file).read_text(), re.MULTILINE), where


@contextmanager
def before(trial: PlaceTrial, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy between the client and the service that starts this place's machines."""
    kind = trial.executor.kind
    if kind not in HTTP:
        pytest.skip(f"{kind}: {ELSEWHERE['throttling, failures, lost answers'].get(kind, 'asks no service')}")
    if kind == "kubernetes":
        file = Path(str(trial.executor.place.kubeconfig))
        text = file.read_text()
        server = re.search(r"http://127\.0\.0\.1:\d+", text)
        assert server is not None
        with between(server[0]) as proxy:
            file.write_text(text.replace(server[0], proxy.url))
            yield proxy
        return
    parts = urlsplit(os.environ[ENDPOINTS[kind]])
    with between(f"{parts.scheme}://{parts.netloc}") as proxy:
        monkeypatch.setenv(ENDPOINTS[kind], proxy.url + parts.path)
        yield proxy


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["throttled", "failing", "lost"])
def test_a_service_that_fails_makes_one_job(trial: PlaceTrial, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Throttled, failing, or carried out with the answer lost: asked again until there is one job, and no second.

    Where a provider's own client gives up, that is said, and the same submission, sent again, ends what it began.
    """
    with before(trial, monkeypatch) as proxy:
        folder = trial.write("insisted")
        if fault == "lost":
            proxy.after.append(first(2, HTTPAnswer(status=502, content=b""), of=_changes(trial.executor.kind)))
        else:
            answer = THROTTLED.get(trial.executor.kind, SLOWLY) if fault == "throttled" else BROKEN
            proxy.before.append(first(2, answer))
        folder.record(EventKind.SUBMITTED, who="cli", name=folder.path.name, place=trial.executor.name)
        job = insisted(trial, folder)
        assert len(proxy.asked) > 2
        assert trial.executor.submit(trial.submission(folder, **LASTING), folder) == job
        assert trial.alive is not None
        trial.wait(lambda: trial.alive is not None and trial.alive(folder) == 1)
        proxy.before.append(first(2, THROTTLED.get(trial.executor.kind, SLOWLY)))
        assert not trial.status(folder).status.ended
        trial.executor.teardown(folder)
        trial.wait(lambda: trial.alive is not None and trial.alive(folder) == 0)
        shutil.rmtree(folder.path)  # nothing is left to ask for: the proxy goes before the place


def insisted(trial: PlaceTrial, folder: RunFolder) -> str:
    """The id of the run's job, as of a person who gives the same command again while it fails."""
    for _ in range(2):
        try:
            return trial.executor.submit(trial.submission(folder, **LASTING), folder)
        except TonnageError as error:
            if trial.executor.kind != "databricks" or not error.hint:  # its SDK tries 429 and 503 again alone
                raise
    return trial.executor.submit(trial.submission(folder, **LASTING), folder)


def _changes(kind: str) -> Any:
    """Whether a request changes something: AWS says by the name of its operation."""

    def of(asked: Asked) -> bool:
        if kind in {"sagemaker", "ec2"}:
            named = f"{asked.headers.get('x-amz-target', '')}{asked.content[:200].decode(errors='replace')}"
            return re.search(r"Create(TrainingJob|Fleet|LaunchTemplate)\b", named) is not None
        return asked.method in {"POST", "PUT"} and "oauth2" not in asked.path and "token" not in asked.path

    return of


@pytest.mark.slow
def test_a_job_that_its_place_no_longer_knows(trial: PlaceTrial) -> None:
    """It is lost and says so: never running, never an error without an end; `resume` goes on as the next submission."""
    if trial.executor.kind == "local":
        pytest.skip("this machine's processes are known by their locks")
    folder = trial.write("vanished")
    trial.start(folder, **LASTING)
    trial.wait(lambda: trial.status(folder).status.ended or (folder.state().checkpoint_step or 0) > 0)
    at = folder.state().checkpoint_step
    trial.executor.teardown(folder)  # as by somebody else: the journal is put back as it was
    assert trial.alive is not None
    trial.wait(lambda: trial.alive is not None and trial.alive(folder) == 0)
    events = [line for line in folder.journal_file.read_text().splitlines(keepends=True)
              if not re.search(r'"kind": ?"(stopp(ed|ing)|cancelled|lost)"', line)]  # fmt: skip
    folder.journal_file.write_text("".join(events))
    record = read_record(folder)
    assert record is not None
    write_record(folder, replace(record, job_id=_other(str(record.job_id))))
    trial.reach(folder, PlaceStatus.LOST, PlaceStatus.STOPPED, PlaceStatus.CANCELLED)
    assert at is not None
    trial.start(folder, 2, steps=at + 3, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)


CLOCK = """
import datetime, os, time
skew_s = float(os.environ["SKEW_S"])
told, told_ns = time.time, time.time_ns
time.time = lambda: told() + skew_s
time.time_ns = lambda: told_ns() + int(skew_s * 1e9)
class Skewed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=skew_s)
datetime.datetime = Skewed
"""  # as sitecustomize.py of the machines


@pytest.mark.slow
@pytest.mark.parametrize("skew_s", [7200.0, -7200.0])
def test_machines_whose_clocks_are_wrong(
    trial: PlaceTrial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, skew_s: float
) -> None:
    """Two hours off: the run is seen to live, goes on, saves when it is asked to, and the next start takes it over."""
    if trial.executor.kind not in HELD["clocks that differ"]:
        pytest.skip(ELSEWHERE["clocks that differ"].get(trial.executor.kind, "one machine has one clock"))
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'clock'}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.setenv("SKEW_S", str(skew_s))
    folder = trial.write("skewed")
    trial.start(folder, **LASTING)
    trial.wait(lambda: trial.status(folder).status.ended or (folder.state().checkpoint_step or 0) > 0)
    assert trial.status(folder).status is PlaceStatus.RUNNING
    started = next(
        line for line in map(json.loads, folder.journal_file.read_text().splitlines()) if line["kind"] == "started"
    )
    off_s = (datetime.fromisoformat(started["at"]) - datetime.now(UTC)).total_seconds()
    assert abs(off_s - skew_s) < 600  # the machine's clock was wrong indeed
    trial.wait(lambda: trial.status(folder).status.ended or has_supervisor(folder))
    beat = read_heartbeat(folder)
    assert beat is not None
    assert abs((datetime.now(UTC) - beat.at).total_seconds()) < 60
    trial.executor.stop(folder, by="test", reason="asked for")
    trial.reach(folder, PlaceStatus.STOPPED)
    at = folder.state().checkpoint_step
    assert at == folder.state().step
    assert at is not None
    monkeypatch.setenv("SKEW_S", str(-skew_s))
    trial.start(folder, 2, steps=at + 3, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    assert folder.state().lost_steps == 0


def _other(job_id: str) -> str:
    """An identifier of the same form that no job has."""
    swapped = {"0": "9", "9": "0"}
    last = max(at for at, letter in enumerate(job_id) if letter.isalnum())
    letter = job_id[last]
    new = swapped.get(letter) or ("1" if letter.isdigit() else "a" if letter != "a" else "b")
    return job_id[:last] + new + job_id[last + 1 :]
