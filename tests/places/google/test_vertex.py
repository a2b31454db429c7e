"""Vertex AI as a place: what is sent, states, orphans, what `check` finds, and an API that fails."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks.record_google_schema import JOB_ROOT, JOBS_FILE, document, excerpt
from tests.places.works import TAG, WORK

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.google.place import VertexPlace
from tonnage.places.google.schema import check_custom_job
from tonnage.places.google.vertex import PHASES, VertexJobs, view_of
from tonnage.places.states import Phase
from tonnage.runs import RunFolder
from tonnage.testing.google.cloud import ACCOUNT, FakeGoogle
from tonnage.testing.google.storage import google_fault
from tonnage.testing.http_service import times

pytestmark = pytest.mark.heavy
SECRET = "gcp:projects/my-project/secrets/keys"
TERMS: dict[str, Any] = {
    "kind": "vertex", "project": "my-project", "region": "us-central1", "cores": 2, "memory_gib": 8,
    "bucket": "gs://runs/tonnage", "instance_type": "n2-standard-2", "time_limit_minutes": 240,
    "service_account": ACCOUNT, "image": f"us-central1-docker.pkg.dev/my-project/runs/tonnage@sha256:{'0' * 64}",
}  # fmt: skip
L4 = {"gpus": 1, "gpu": "l4", "gpu_memory_gib": 24, "accelerator": "NVIDIA_L4", "instance_type": "g2-standard-8"}
RESERVED = "projects/p/zones/us-central1-a/reservations/mine"


def cloud(**changed: Any) -> VertexJobs:
    attempts = changed.pop("attempts", 3)
    return VertexJobs(name="ai", place=VertexPlace(**(TERMS | changed)), attempts=attempts, sleep=lambda _: None)


def other(number: int) -> Work:
    token = f"0123456789a{number}"
    return replace(WORK, name=f"t-{number}", token=token, tags={**WORK.tags, "tonnage-token": token})


def test_several_machines_are_two_pools() -> None:
    """The first has one machine, by Vertex AI's rule; all run the same command, which meets by CLUSTER_SPEC."""
    [request] = cloud(nodes=4, **L4).requests(WORK)
    check_custom_job(request.body)
    first, others = request.body["jobSpec"]["workerPoolSpecs"]
    assert (first.pop("replicaCount"), others.pop("replicaCount")) == ("1", "3")
    assert first == others


@pytest.mark.parametrize(
    ("form", "strategy"),
    [
        ({}, "STANDARD"), ({"spot": True, "grace_s": 20}, "SPOT"), (L4, "STANDARD"),
        ({**L4, "flex_start": True, "max_wait_minutes": 60}, "FLEX_START"),
        ({**L4, "reservation": RESERVED}, "STANDARD"),
        ({"network": "projects/123/global/networks/ml", "secret": SECRET, "labels": {"Team": "ML"}}, "STANDARD"),
        ({"kms_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k", "disk_type": "hyperdisk-balanced"}, "STANDARD"),
        ({"patch": {"customJobs.create": {"jobSpec": {"enableDashboardAccess": True}}}}, "STANDARD"),
    ],
)  # fmt: skip
def test_every_form_is_one_that_the_discovery_document_has(form: dict[str, Any], strategy: str) -> None:
    """Google itself ends the job in time, nothing reaches into it, and it is tried once."""
    [request] = cloud(**form).requests(WORK)
    check_custom_job(request.body)
    spec = request.body["jobSpec"]
    [pool] = spec["workerPoolSpecs"]
    assert spec["scheduling"]["strategy"] == strategy
    assert (spec["scheduling"]["timeout"], spec["scheduling"]["disableRetries"]) == ("14400s", True)
    assert ("maxWaitDuration" in spec["scheduling"]) == (strategy == "FLEX_START")
    assert spec["enableWebAccess"] is False
    assert pool["machineSpec"].get("acceleratorType") == form.get("accelerator")
    assert (pool["machineSpec"].get("reservationAffinity") or {}).get("values") == (
        [RESERVED] if "reservation" in form else None
    )
    assert pool["containerSpec"]["imageUri"] == TERMS["image"]
    assert {"name": "A", "value": "it's $HOME"} in pool["containerSpec"]["env"]
    assert all(len(value) <= 63 and value == value.lower() for value in request.body["labels"].values())


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"jobSpec": {"scheduling": {"strategy": "CHEAP"}}}, "CHEAP"),
        ({"jobSpec": {"nodes": 2}}, "no such member"),
        ({"jobSpec": {"enableWebAccess": "no"}}, "true or false"),
    ],
)  # fmt: skip
def test_what_the_document_does_not_have_is_refused(patch: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cloud(patch={"customJobs.create": patch}).requests(WORK)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gpus": 1}, "go together"), ({"accelerator": "NVIDIA_L4"}, "go together"),
        ({**L4, "instance_type": "n2-standard-2"}, "takes none"),
        ({"spot": True, "grace_s": 20, "flex_start": True}, "not bought as spot"),
        ({"spot": True, "grace_s": 60}, "Google gives 30 s"), ({"bucket": "s3://runs/x"}, "gs://BUCKET"),
        ({"flex_start": True, "reservation": RESERVED}, "not waited for"), ({"time_limit_minutes": 50_000}, "28 days"),
        ({"network": "default"}, "pattern"), ({"image": "registry.example/t:latest"}, "digest"),
    ],
)  # fmt: skip
def test_terms_that_do_not_hang_together_are_said(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cloud(**changed)


def test_sent_twice_it_is_one_job(google: FakeGoogle) -> None:
    """By its label; also where the answer was lost: a request that may have been carried out is not sent again."""
    google.vertex.start_s, google.vertex.page = 600, 2
    one = cloud()
    for number in range(3):
        one.send(one.requests(other(number)), other(number).token)
    google.after.append(times(1, google_fault(503, "backendError", "lost"), "POST", "/customJobs"))
    job = one.send(one.requests(WORK), WORK.token)
    assert one.send(one.requests(WORK), WORK.token) == job
    assert len(google.vertex.jobs) == 4
    assert cloud().find(other(2).token) is not None
    google.before.append(times(9, google_fault(503, "backendError", "down"), "POST", "/customJobs"))
    with pytest.raises(TonnageError, match="does not answer"):
        one.send(one.requests(other(7)), other(7).token)


def test_orphans_are_jobs_that_live_and_bear_the_home_s_mark(google: FakeGoogle) -> None:
    """With the whole tag, which no label holds; an ended job is none."""
    google.vertex.start_s, google.vertex.page = 600, 1
    one = cloud()
    jobs = [one.send(one.requests(other(number)), other(number).token) for number in range(2)]
    assert [found.tag for found in one.tagged("0a1b2c3d")] == [TAG, TAG]
    assert one.tagged("ffffffff") == []
    one.end(jobs[0], other(0).token)
    while one.view(jobs[0]).phase is not Phase.CANCELLED:
        time.sleep(0.02)
    one.end(jobs[0], other(0).token)  # nothing happens
    assert [found.job_id for found in one.tagged("0a1b2c3d")] == jobs[1:]
    google.vertex.vanish(jobs[1])
    assert one.view(jobs[1]).phase is Phase.GONE
    one.end(jobs[1], other(1).token)


def test_a_job_that_fails_says_why(google: FakeGoogle) -> None:
    assert google.vertex.jobs == {}
    one = cloud()
    job = one.send(one.requests(replace(WORK, command=("sh", "-c", "exit 3"))), WORK.token)
    while (view := one.view(job)).phase is not Phase.ENDED:
        time.sleep(0.02)
    assert (view.word, "status of 3" in view.reason) == ("JOB_STATE_FAILED", True)


def test_every_state_has_a_phase() -> None:
    """Those of the discovery document, but the one that says nothing."""
    document = json.loads(JOBS_FILE.read_text())
    assert document["service"] == "aiplatform v1"
    assert "state" not in document["schemas"][JOB_ROOT]  # what the API fills in is not sent
    assert {view_of({"name": "a/1", "state": word}).phase for word in PHASES} == set(PHASES.values())
    assert len(PHASES) == 11


@pytest.mark.skipif(find_spec("googleapiclient") is None, reason="pip install google-api-python-client")
def test_the_record_is_that_of_the_installed_document() -> None:
    """Names, types and enums of the client library's own copy; a newer library may have more."""
    recorded = json.loads(JOBS_FILE.read_text())["schemas"]
    newest = excerpt(document("aiplatform.v1.json"), JOB_ROOT)["schemas"]
    assert recorded[JOB_ROOT].items() <= newest[JOB_ROOT].items()


def refusals(**changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="vertex", name="ai", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == "refused"]


def test_check_names_what_is_missing_and_the_command_that_mends_it(google: FakeGoogle) -> None:
    """Each alone."""
    assert refusals() == []
    absent = f"us-central1-docker.pkg.dev/my-project/runs/other@sha256:{'1' * 64}"
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "gs://nothing/here"}, "no bucket nothing", "gcloud storage buckets create gs://nothing"),
        (
            {"service_account": "x@my-project.iam.gserviceaccount.com"},
            "no service account",
            "service-accounts create x",
        ),
        ({"image": absent}, "is not in its registry", "gcloud artifacts docker images list"),
        ({"secret": SECRET}, "no secret keys", "gcloud secrets create keys"),
    ]
    for changed, message, hint in table:
        [(said, mends)] = refusals(**changed)
        assert message in said
        assert hint in mends
    google.rights.discard("aiplatform.customJobs.create")
    [(said, mends)] = refusals()
    assert "aiplatform.customJobs.create" in said
    assert "roles/aiplatform.user" in mends
