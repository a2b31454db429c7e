"""SageMaker as a place: what is sent, what `check` finds, and what becomes of a service that fails."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import boto3

from tonnage.errors import InputError, TonnageError
from tonnage.http.aws_shapes import check_request
from tonnage.places.aws.place import SageMakerPlace
from tonnage.places.aws.sagemaker import SageMaker, view_of
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.states import Phase
from tonnage.runs import RunFolder
from tonnage.testing.aws.sagemaker import FakeSageMaker, FakeServiceError

pytestmark = pytest.mark.heavy
DIGEST = f"sha256:{'0' * 64}"
TERMS: dict[str, Any] = {
    "kind": "sagemaker", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 8, "memory_gib": 32,
    "image": f"123456789012.dkr.ecr.us-east-1.amazonaws.com/tonnage@{DIGEST}", "spot": True,
    "role": "arn:aws:iam::123456789012:role/tonnage-run", "instance_type": "ml.g5.2xlarge", "time_limit_minutes": 240,
}  # fmt: skip
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="first", token="0123456789ab", home="0a1b2c3d", owner="me",
    tag="tonnage:0a1b2c3d:0123456789ab:first", command=(sys.executable, "-c", "import time", "time.sleep(60)"),
    env={"A": "1"}, tags={"tonnage-run": "first"}, max_cost_usd=None,
)  # fmt: skip


def cloud(**changed: Any) -> SageMaker:
    attempts = changed.pop("attempts", 3)
    return SageMaker(name="sm", place=SageMakerPlace(**(TERMS | changed)), attempts=attempts)


FORMS: list[dict[str, Any]] = [
    {}, {"nodes": 4}, {"spot": False}, {"spot": False, "keep_warm_s": 1800}, {"max_wait_minutes": 300},
    {"subnets": ["subnet-1"], "security_groups": ["sg-1"]}, {"kms_key": "alias/mine", "disk_gib": 500},
    {"training_plan": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-in-march"}, {"secret": "aws:keys"},
    {"patch": {"CreateTrainingJob": {"RetryStrategy": {"MaximumRetryAttempts": 2}}}},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_that_the_service_takes(form: dict[str, Any]) -> None:
    """By botocore's model, patterns and enums included; spot waits longer than it runs."""
    [request] = cloud(**form).requests(WORK)
    check_request("sagemaker", "CreateTrainingJob", request.body)
    assert request.body["ResourceConfig"]["InstanceCount"] == form.get("nodes", 1)
    stop = request.body["StoppingCondition"]
    assert ("MaxWaitTimeInSeconds" in stop) == request.body["EnableManagedSpotTraining"]
    assert stop.get("MaxWaitTimeInSeconds", 14400) >= stop["MaxRuntimeInSeconds"] == 14400


REFUSED = [
    ({"keep_warm_s": 60}, "no spot instance warm"), ({"subnets": ["subnet-1"]}, "go together"),
    ({"max_wait_minutes": 10}, "max_wait_minutes"), ({"image": "registry.example/t:latest"}, "names no digest"),
    ({"image": f"registry.example/t@{DIGEST}"}, "ECR"), ({"grace_s": 110}, "120 s"), ({"role": "tonnage-run"}, "role"),
    ({"bucket": "file:///runs"}, "S3"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_an_instance_type_that_there_is_not_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InputError, match=r"InstanceType: 'ml\.g5\.3xlarge' is none of"):
        cloud(instance_type="ml.g5.3xlarge").requests(WORK)
    with pytest.raises(InputError, match="there is no such member"):
        cloud(patch={"CreateTrainingJob": {"Spot": True}}).requests(WORK)


VIEWS = [  # status, secondary status, phase
    ("InProgress", "Pending", Phase.QUEUED), ("InProgress", "Starting", Phase.PROVISIONING),
    ("InProgress", "Downloading", Phase.PROVISIONING), ("InProgress", "Training", Phase.RUNNING),
    ("InProgress", "Interrupted", Phase.QUEUED), ("InProgress", "Uploading", Phase.ENDING),
    ("Stopping", "Stopping", Phase.ENDING), ("Stopped", "Stopped", Phase.CANCELLED),
    ("Stopped", "MaxRuntimeExceeded", Phase.ENDED), ("Stopped", "MaxWaitTimeExceeded", Phase.ENDED),
    ("Completed", "Completed", Phase.ENDED), ("Failed", "Failed", Phase.ENDED),
]  # fmt: skip


@pytest.mark.parametrize(("status", "second", "phase"), VIEWS)
def test_states_are_those_of_all_places(status: str, second: str, phase: Phase) -> None:
    """Each of the service's states has one; its own words stay."""
    document = {"TrainingJobName": "t", "TrainingJobStatus": status, "SecondaryStatus": second}
    assert (view_of(document).phase, view_of(document).word) == (phase, status)
    why = view_of(document | {"FailureReason": "CapacityError: Unable to provision"})
    assert why.reason == "CapacityError: Unable to provision"


def test_every_state_of_the_model_is_known() -> None:
    """A new secondary status of the service is seen here first."""
    from botocore.session import get_session

    shape = get_session().get_service_model("sagemaker").operation_model("DescribeTrainingJob").output_shape
    known = {second for _, second, _ in VIEWS} | {
        "LaunchingMLInstances", "PreparingTrainingStack", "DownloadingTrainingImage", "Updating", "Restarting"
    }  # fmt: skip
    assert set(shape.members["SecondaryStatus"].enum) == known


def test_sent_twice_it_is_one_job_and_another_of_the_name_is_refused(sagemaker: FakeSageMaker) -> None:
    sagemaker.start_s = 60
    requests = cloud().requests(WORK)
    assert cloud().send(requests, WORK.token) == cloud().send(requests, WORK.token) == WORK.name
    assert (len(sagemaker.jobs), cloud().find(WORK.token)) == (1, WORK.name)
    sagemaker.jobs[WORK.name].asked["Environment"] = {}
    with pytest.raises(TonnageError, match="is there already and is not this run's"):
        cloud().send(requests, WORK.token)


def times(number: int, refusal: FakeServiceError, *operations: str) -> Callable[[str, Any], FakeServiceError | None]:
    """The first so many requests of these operations are answered so."""
    left = [number]

    def fault(operation: str, _: Any) -> FakeServiceError | None:
        if operation not in operations or not left[0]:
            return None
        left[0] -= 1
        return refusal

    return fault


@pytest.mark.parametrize("refusal", [
    FakeServiceError(code="ThrottlingException", message="Rate exceeded"),
    FakeServiceError(code="InternalFailure", message="try again", status=500),
])  # fmt: skip
def test_throttled_and_failing_requests_are_made_again(sagemaker: FakeSageMaker, refusal: FakeServiceError) -> None:
    sagemaker.start_s = 60
    sagemaker.before.append(times(2, refusal, "CreateTrainingJob"))
    assert cloud().send(cloud().requests(WORK), WORK.token) == WORK.name
    assert [name for name, _ in sagemaker.requests] == ["CreateTrainingJob"] * 3


def test_an_answer_that_is_lost_after_the_job_was_made(sagemaker: FakeSageMaker) -> None:
    """The client asks again, is told that the name is in use, and finds its own job."""
    sagemaker.start_s = 60
    lost = FakeServiceError(code="ServiceUnavailable", message="", status=503)
    sagemaker.after.append(times(1, lost, "CreateTrainingJob"))
    assert cloud().send(cloud().requests(WORK), WORK.token) == WORK.name
    assert len(sagemaker.jobs) == 1


def test_a_quota_that_is_spent_while_it_is_sent_is_said(sagemaker: FakeSageMaker) -> None:
    said = "The account-level service limit 'ml.g5.2xlarge for spot training job usage' is 0 Instances"
    sagemaker.before.append(times(1, FakeServiceError(code="ResourceLimitExceeded", message=said), "CreateTrainingJob"))
    with pytest.raises(TonnageError, match="service limit") as raised:
        cloud().send(cloud().requests(WORK), WORK.token)
    assert "tonnage places check sm" in (raised.value.hint or "")


def test_a_job_that_vanishes_is_gone_and_one_that_ended_can_be_ended_again(sagemaker: FakeSageMaker) -> None:
    sagemaker.start_s = 60
    one = cloud()
    one.send(one.requests(WORK), WORK.token)
    one.end(WORK.name, WORK.token)
    while one.view(WORK.name).phase is Phase.ENDING:
        time.sleep(0.02)
    one.end(WORK.name, WORK.token)
    assert one.view(WORK.name).phase is Phase.CANCELLED
    sagemaker.vanish(WORK.name)
    one.end(WORK.name, WORK.token)
    assert one.view(WORK.name).phase is Phase.GONE


def test_an_instance_that_is_kept_warm_is_given_back(sagemaker: FakeSageMaker) -> None:
    sagemaker.start_s = 60
    one = cloud(spot=False, keep_warm_s=600)
    one.send(one.requests(WORK), WORK.token)
    job = sagemaker.jobs[WORK.name]
    job.status, job.second, job.warm = "Completed", "Completed", "Available"
    one.end(WORK.name, WORK.token)
    assert job.warm == "Terminated"


def test_orphans_of_a_home_are_found_page_by_page(sagemaker: FakeSageMaker) -> None:
    """More than one page of jobs; those of another home are left alone."""
    sagemaker.start_s, sagemaker.page = 600, 2
    one = cloud()
    for number in range(5):
        work = replace(WORK, name=f"t-r{number}-0a1b2c3d-0123456789ab")
        one.send(one.requests(work), WORK.token)
    assert len(one.tagged("0a1b2c3d")) == 5
    assert one.tagged("ffffffff") == []


def executor(**changed: Any) -> BucketRuns:
    found = cloud(**changed)
    return BucketRuns(kind="sagemaker", name="sm", place=found.place, cloud=found)


def refusals(**changed: Any) -> list[tuple[str, str]]:
    found = executor(**changed).check(RunFolder(Path("/home/runs/check")))
    return [(one.message, one.hint) for one in found if one.kind == "refused"]


@pytest.mark.usefixtures("sagemaker")
def test_check_names_what_is_missing_and_the_command_that_mends_it() -> None:
    """Bucket, role, image, secret, quota; each alone."""
    assert refusals() == []
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "s3://nothing/here"}, "no bucket nothing", "aws s3 mb s3://nothing"),
        ({"role": "arn:aws:iam::123456789012:role/other"}, "no role other", "aws iam create-role --role-name other"),
        ({"image": TERMS["image"].replace("0" * 64, "1" * 64)}, "is not in its registry", "aws ecr describe-images"),
        ({"secret": "aws:keys"}, "no secret keys", "aws secretsmanager create-secret --name keys"),
    ]
    for changed, message, hint in table:
        [(said, mends)] = refusals(**changed)
        assert message in said
        assert hint in mends


def test_check_of_quota_trust_and_credentials(sagemaker: FakeSageMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    sagemaker.quotas["ml.g5.2xlarge for spot training job usage"] = 0.0
    [(said, mends)] = refusals()
    assert "is 0, 1 is needed" in said
    assert "aws service-quotas request-service-quota-increase --service-code sagemaker" in mends
    sagemaker.quotas.clear()
    found = executor().check(RunFolder(Path("/home/runs/check")))
    assert [one.kind for one in found] == ["unchecked"]
    boto3.client("iam").create_role(RoleName="theirs", AssumeRolePolicyDocument='{"Statement": []}')
    [(said, mends)] = refusals(role="arn:aws:iam::123456789012:role/theirs")
    assert "does not let sagemaker.amazonaws.com take it" in said
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    found_without = refusals()
    assert all("Unable to locate credentials" in said for said, _ in found_without)
    assert any("aws sso login" in mends for _, mends in found_without)
    [(said, mends), *_] = refusals(profile="nobody")
    assert "nobody" in said
    assert "aws configure list-profiles" in mends
