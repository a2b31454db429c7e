"""AWS Batch as a place: what is sent, states, retries, several nodes, orphans, what `check` finds, a failing API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.places.works import TAG, WORK

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import boto3

from tonnage.errors import InputError, TonnageError
from tonnage.http.aws_shapes import request_shape
from tonnage.places.aws.batch import LIVE, PHASES, BatchJobs, job_name, view_of
from tonnage.places.aws.place import BatchPlace
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.states import Phase
from tonnage.runs import RunFolder
from tonnage.testing.aws.batch import FakeBatch, batch_fault
from tonnage.testing.aws.sagemaker import FakeSageMaker
from tonnage.testing.http_service import times

pytestmark = pytest.mark.heavy
ROLE = "arn:aws:iam::123456789012:role/tonnage-run"
TERMS: dict[str, Any] = {
    "kind": "aws-batch", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 2, "memory_gib": 7,
    "image": f"123456789012.dkr.ecr.us-east-1.amazonaws.com/tonnage@sha256:{'0' * 64}", "role": ROLE, "queue": "gpus",
    "instance_type": "m5.large", "time_limit_minutes": 240, "spot": True,
}  # fmt: skip
ON_DEMAND = {"spot": False}
GPUS = {"gpus": 8, "gpu_memory_gib": 80, "instance_type": "p5.48xlarge", "cores": 192, "memory_gib": 1900}
AGAIN = [{"onStatusReason": "Host EC2*", "action": "RETRY"}, {"onReason": "*", "action": "EXIT"}]


def cloud(**changed: Any) -> BatchJobs:
    attempts = changed.pop("attempts", 3)
    return BatchJobs(
        name="jobs", place=BatchPlace(**(TERMS | changed)), attempts=attempts, sleep=lambda _: time.sleep(0.02)
    )


def other(number: int) -> Work:
    token = f"0123456789a{number}"
    name = f"t-other-0a1b2c3d-{token}"
    return replace(WORK, name=name, token=token, tags={**WORK.tags, "tonnage-token": token})


def made(one: BatchJobs, work: Work = WORK) -> str:
    return one.send(one.requests(work), work.token)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("form", [
    {}, ON_DEMAND, GPUS, {"share": "research", "retries": 2}, {"shm_gib": 64, "secret": "aws:keys"},
    {**ON_DEMAND, "nodes": 4}, {**GPUS, **ON_DEMAND, "nodes": 2}, {"queue": "arn:aws:batch:us-east-1:1:job-queue/gpus"},
    {"patch": {"SubmitJob": {"schedulingPriorityOverride": 5}}},
    {"patch": {"RegisterJobDefinition": {"containerProperties": {"logConfiguration": {"logDriver": "awslogs"}}}}},
])  # fmt: skip
def test_every_form_is_one_that_the_model_has(form: dict[str, Any]) -> None:
    """The definition is named by its content; only a lost host starts a job again, and only on spot."""
    requests = cloud(**form).requests(WORK)
    assert cloud(**form).requests(WORK) == requests
    definition, job = (one.body for one in requests)
    assert job["jobDefinition"] == definition["jobDefinitionName"]
    assert job["timeout"] == {"attemptDurationSeconds": 14400}
    assert job["jobName"] == "t-0123456789ab-0a1b2c3d-first" == job_name(WORK)
    several = form.get("nodes", 1) > 1
    assert definition["type"] == ("multinode" if several else "container")
    container = definition["containerProperties"] if not several else (
        definition["nodeProperties"]["nodeRangeProperties"][0]["container"]
    )  # fmt: skip
    needs = {one["type"]: one["value"] for one in container["resourceRequirements"]}
    assert needs.get("GPU") == (str(form["gpus"]) if "gpus" in form else None)
    assert needs["MEMORY"] == str(1024 * form.get("memory_gib", 7))
    assert container["privileged"] is False
    if several:
        assert (definition["nodeProperties"]["numNodes"], job["retryStrategy"]) == (form["nodes"], {"attempts": 1})
        assert container["instanceType"] == form.get("instance_type", "m5.large")
        given = job["nodeOverrides"]["nodePropertyOverrides"][0]["containerOverrides"]
    else:
        spot = form.get("spot", True)
        strategy = {"attempts": 1 + form.get("retries", 9), "evaluateOnExit": AGAIN} if spot else {"attempts": 1}
        assert job["retryStrategy"] == strategy
        given = job["containerOverrides"]
    assert given["command"][-2:] == ["sleep", "60"]
    assert given["environment"] == [{"name": "A", "value": "it's $HOME"}]


def test_the_limit_of_time_is_one_of_each_attempt() -> None:
    """So that «at most» holds over all of them."""
    assert (cloud(retries=2).place.longest_job_h, cloud(spot=False).place.longest_job_h) == (12.0, 4.0)


def test_another_content_is_another_definition() -> None:
    """What a patch changes too."""
    forms: list[dict[str, Any]] = [
        {}, {"memory_gib": 6}, ON_DEMAND | {"nodes": 2},
        {"patch": {"RegisterJobDefinition": {"containerProperties": {"privileged": True}}}},
    ]  # fmt: skip
    assert len({cloud(**form).requests(WORK)[0].body["jobDefinitionName"] for form in forms}) == 4
    assert cloud(spot=False).requests(WORK)[0] == cloud().requests(WORK)[0]


@pytest.mark.parametrize(("changed", "said"), [
    ({"nodes": 2}, "on-demand instances alone .*mnp-ce.html"), ({"grace_s": 60}, "grace_s"),
    ({"retries": 10}, "retries"),
    ({"bucket": "gs://runs/t"}, "s3://BUCKET"), ({"role": "tonnage-run"}, "role"), ({"queue": "a b"}, "queue"),
    ({"image": "a/t:latest"}, "no digest"), ({"instance_type": "p5"}, "instance_type"),
])  # fmt: skip
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


@pytest.mark.parametrize(("patch", "said"), [
    ({"SubmitJob": {"retryStrategy": {"evaluateOnExit": [{"action": "AGAIN"}]}}}, "'AGAIN' is none of RETRY"),
    ({"SubmitJob": {"timeOut": {}}}, "no such member"),
    ({"RegisterJobDefinition": {"type": "array"}}, "'array' is none of container"),
    ({"SubmitJob": {"tags": {"a": ""}, "timeout": {"attemptDurationSeconds": "60"}}}, "a number, not '60'"),
])  # fmt: skip
def test_what_batch_would_refuse_is_refused_before_anything_is_sent(patch: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cloud(patch=patch).requests(WORK)


def test_sent_twice_it_is_one_job(batch: FakeBatch) -> None:
    """By its name; also after throttling, and where the answer was lost: what may be done is not sent again."""
    batch.start_s, batch.page = 600, 1
    one = cloud()
    for number in range(2):
        made(one, other(number))
    batch.before.append(times(1, batch_fault(429, "TooManyRequestsException", "slower"), "POST", "/v1/submitjob"))
    batch.after.append(times(1, batch_fault(500, "ServerException", "lost"), "POST", "/v1/submitjob"))
    job = made(one)
    assert made(one) == job == cloud().find(WORK.token)
    assert len(batch.jobs) == 3
    assert len(batch.definitions) == 1
    assert cloud().find("ffffffffffff") is None
    batch.queues["empty"] = batch.queues.pop("gpus")
    with pytest.raises(TonnageError, match="JobQueue does not exist"):
        made(one, other(7))


def test_a_request_that_was_not_carried_out_is_an_error(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.places.aws.batch.SEEN_S", 0.2)
    batch.before.append(times(9, batch_fault(500, "ServerException", "down"), "POST", "/v1/submitjob"))
    with pytest.raises(TonnageError, match="ServerException: down"):
        made(cloud())
    assert batch.jobs == {}


def test_of_two_jobs_by_mistake_one_works(batch: FakeBatch) -> None:
    """Each knows the id of its job, which decides in the bucket; every attempt of a job has the same."""
    told = "import os; print(os.environ['TONNAGE_MACHINE'] == os.environ['AWS_BATCH_JOB_ID'] != '')"
    one = cloud()
    job = made(one, replace(WORK, command=(sys.executable, "-c", told)))
    until(lambda: one.view(job).phase is Phase.ENDED)
    assert (batch.folder / f"{job}.0.log").read_text().strip() == "True"


def test_only_a_lost_host_starts_a_job_again(batch: FakeBatch) -> None:
    """A failure of the work is final; a host that spot takes is not, with Batch's own reason meanwhile."""
    one = cloud()
    failed = made(one, replace(other(1), command=("sh", "-c", "exit 3")))
    until(lambda: one.view(failed).phase is Phase.ENDED)
    assert (one.view(failed).word, len(batch.jobs[failed].attempts)) == ("FAILED", 1)
    assert "Essential container" in one.view(failed).reason
    batch.gap_s = 600
    taken = made(one)
    until(lambda: one.view(taken).phase is Phase.RUNNING)
    batch.interrupt(taken)
    until(lambda: one.view(taken).phase is Phase.QUEUED)
    assert one.view(taken).reason == "Host EC2 (instance i-0123456789) terminated."
    batch.gap_s = 0.0
    until(lambda: one.view(taken).phase is Phase.RUNNING)
    assert len(batch.jobs[taken].attempts) == 1


def test_several_nodes_know_their_numbers_and_end_with_the_main_one(batch: FakeBatch) -> None:
    batch.resources["type"] = "EC2"
    told = ("from tonnage.supervisor.meeting import membership_from_cloud as t; import os, time; n = t(os.environ)[0]; "
            "print(n, flush=True); time.sleep(60 if n else 2)")  # fmt: skip
    one = cloud(spot=False, nodes=3)
    job = made(one, replace(WORK, command=(sys.executable, "-c", told)))
    until(lambda: one.view(job).phase is Phase.ENDED)
    assert [(batch.folder / f"{job}.{index}.log").read_text().strip() for index in range(3)] == ["0", "1", "2"]
    batch.resources["type"] = "SPOT"
    with pytest.raises(TonnageError, match="do not fit the job"):
        made(one, other(1))


def test_orphans_are_jobs_that_live_and_bear_the_home_s_mark(batch: FakeBatch) -> None:
    """In whatever state they live; ended ones are none; a job at its limit of time is ended by Batch."""
    batch.page = 1
    one = cloud()
    running = made(one, other(0))
    until(lambda: one.view(running).phase is Phase.RUNNING)
    batch.start_s = 600
    waiting = made(one, other(1))
    assert {(found.job_id, found.tag) for found in one.tagged("0a1b2c3d")} == {(running, TAG), (waiting, TAG)}
    assert one.tagged("ffffffff") == []
    one.end(waiting, other(1).token)
    assert one.view(waiting).phase is Phase.CANCELLED
    one.end(waiting, other(1).token)  # nothing happens
    assert [found.job_id for found in one.tagged("0a1b2c3d")] == [running]
    batch.jobs[running].since -= 240 * 60
    until(lambda: one.view(running).phase is Phase.ENDED)
    assert one.view(running).reason == "Job attempt duration exceeded timeout"
    batch.vanish(running)
    assert one.view(running).phase is Phase.GONE
    one.end(running, other(0).token)


def test_every_state_has_a_phase() -> None:
    """Those of botocore's model."""
    states = request_shape("batch", "ListJobs").members["jobStatus"].enum
    assert set(PHASES) == set(states)
    assert set(LIVE) == set(states) - {"SUCCEEDED", "FAILED"}
    ending = view_of({"jobId": "j", "status": "RUNNING", "isTerminated": True})
    assert ending.phase is Phase.ENDING


def findings(kind: str = "refused", **changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="aws-batch", name="jobs", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == kind]


def test_check_names_what_is_missing_and_the_command_that_mends_it(batch: FakeBatch) -> None:
    """Each alone; nothing is started."""
    assert (findings(), batch.jobs) == ([], {})
    absent = TERMS["image"].replace("0" * 64, "1" * 64)
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "s3://nothing/here"}, "no bucket nothing", "aws s3 mb s3://nothing"),
        ({"queue": "none"}, "no job queue none in us-east-1", "aws batch create-job-queue --job-queue-name none"),
        ({"role": ROLE + "2"}, "no role tonnage-run2", "aws iam create-role --role-name tonnage-run2"),
        (ON_DEMAND, "here is of SPOT", "places.jobs.spot = true"),
        ({**ON_DEMAND, "nodes": 2}, "SPOT, which takes no multi-node jobs (https://docs.aws.amazon.com/", "of EC2"),
        ({"instance_type": "m5.xlarge"}, "here starts m5.large, no m5.xlarge", 'instance_type = "m5.large"'),
        ({"instance_type": "z9.large"}, "us-east-1 has no z9.large", "describe-instance-type-offerings"),
        ({"cores": 96}, "here has 64 vCPUs at most, a run needs 96", "--compute-resources maxvCpus=96"),
        ({"cores": 4}, "m5.large has 2 vCPUs, 8 GiB and 0 GPUs", "places.jobs.cores = 2"),
        ({"image": absent}, "is not in its registry", "aws ecr describe-images"),
        ({"secret": "aws:keys"}, "no secret keys", "aws secretsmanager create-secret"),
    ]  # fmt: skip
    for changed, message, hint in table:
        found = findings(**changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)


def test_check_sees_a_queue_and_an_environment_that_take_no_jobs(batch: FakeBatch, sagemaker: FakeSageMaker) -> None:
    """Disabled, invalid, unmanaged, of Fargate, with a policy of shares; a quota that is too small."""
    queue, environment, resources = batch.queues["gpus"], batch.environment, batch.resources
    changes: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
        (queue, {"state": "DISABLED"}, "the job queue gpus is DISABLED", "--job-queue gpus --state ENABLED"),
        (queue, {"schedulingPolicyArn": "arn:p"}, "each job names its share", "places.jobs.share"),
        (environment, {"state": "DISABLED"}, "here is DISABLED", "--compute-environment here --state ENABLED"),
        (environment, {"status": "INVALID", "statusReason": "no role"}, "INVALID: no role", "describe-compute-env"),
        (resources, {"type": "FARGATE"}, "of FARGATE, which has no GPUs", "of EC2 or SPOT"),
    ]  # fmt: skip
    for told, change, message, hint in changes:
        kept = dict(told)
        told.update(change)
        found = findings()
        assert any(message in said and hint in mends for said, mends in found), (change, found)
        told.clear()
        told.update(kept)
    environment["type"] = "UNMANAGED"
    assert any("UNMANAGED, which takes no multi-node" in said for said, _ in findings(spot=False, nodes=2))
    sagemaker.quotas["All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"] = 1.0
    assert any("Spot Instance Requests» is 1, 2 is needed" in said and "request-service-quota-increase" in mends
               for said, mends in findings())  # fmt: skip


def test_check_says_what_it_doubts(batch: FakeBatch) -> None:
    assert findings("doubtful") == []
    batch.resources.update({"minvCpus": 8, "instanceTypes": ["m5", "c5"]})
    assert any("keeps 8 vCPUs, which are billed" in said for said, _ in findings("doubtful"))
    assert any("may start another type than m5.large" in said for said, _ in findings("doubtful"))
    assert any("may stay RUNNABLE forever" in said for said, _ in findings("doubtful", memory_gib=8))
    batch.resources["type"] = "EC2"
    assert any("no placement group" in said and "create-placement-group" in mends
               for said, mends in findings("doubtful", spot=False, nodes=2))  # fmt: skip


def test_check_with_credentials_that_have_expired(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or with none: nothing else is asked."""
    assert boto3.client("iam").get_role(RoleName="tonnage-run")
    asked = len(batch.asked)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert any("credentials" in said.lower() and "aws sso login" in mends for said, mends in findings())
    assert len(batch.asked) == asked
