"""Requests held to the services' own models: what botocore's client lets pass is found here."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("botocore")

from botocore.session import get_session
from botocore.validate import ParamValidator

from tonnage.errors import InputError
from tonnage.http.aws_shapes import check_request, request_shape, shape_faults

GOOD: dict[str, Any] = {
    "TrainingJobName": "t-first-run", "AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/r", "OutputDataConfig": {"S3OutputPath": "s3://b/p"},
    "ResourceConfig": {"InstanceType": "ml.g5.2xlarge", "InstanceCount": 1, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60}, "Tags": [{"Key": "Läufer", "Value": "x y"}],
}  # fmt: skip
FAULTS = [  # what is changed, the member that is named, whether botocore's client finds it
    ({"TrainingJobName": "-x"}, "TrainingJobName", False),
    ({"TrainingJobName": "x" * 64}, "TrainingJobName", False),
    ({"TrainingJobName": ""}, "TrainingJobName", True),
    ({"RoleArn": "arn:aws:iam::12:role/r-of-mine-and-others"}, "RoleArn", False),
    ({"ResourceConfig": {"InstanceType": "ml.g5.3xlarge"}}, "ResourceConfig.InstanceType", False),
    ({"ResourceConfig": {"InstanceType": "ml.g5.xlarge", "KeepAlivePeriodInSeconds": 21601}},
     "ResourceConfig.KeepAlivePeriodInSeconds", False),
    ({"ResourceConfig": {"InstanceTyp": "ml.g5.xlarge"}}, "ResourceConfig.InstanceTyp", True),
    ({"StoppingCondition": {"MaxRuntimeInSeconds": "60"}}, "StoppingCondition.MaxRuntimeInSeconds", True),
    ({"StoppingCondition": {"MaxRuntimeInSeconds": True}}, "StoppingCondition.MaxRuntimeInSeconds", None),
    ({"EnableManagedSpotTraining": "yes"}, "EnableManagedSpotTraining", True),
    ({"Tags": [{"Key": "a!", "Value": ""}]}, "Tags[0].Key", False),
    ({"Environment": {"A": "x" * 513}}, "Environment.A", None),
    ({"Tags": {"Key": "a"}}, "Tags", True),
]  # fmt: skip


@pytest.mark.parametrize(("change", "member", "known_to_botocore"), FAULTS)
def test_a_fault_is_found_and_named(change: dict[str, Any], member: str, known_to_botocore: bool | None) -> None:
    """By its path; most of them botocore's own check lets pass."""
    body = GOOD | change
    with pytest.raises(InputError) as raised:
        check_request("sagemaker", "CreateTrainingJob", body)
    assert f"{member}: " in raised.value.message
    shape = get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    if known_to_botocore is not None:
        assert ParamValidator().validate(body, shape).has_errors() is known_to_botocore


def test_a_good_request_passes_by_both_readings_of_the_model() -> None:
    """The model file read directly says what botocore's own objects say."""
    check_request("sagemaker", "CreateTrainingJob", GOOD)
    ours = request_shape("sagemaker", "CreateTrainingJob")
    theirs = get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    for change, _, _ in FAULTS:
        assert list(shape_faults(GOOD | change, ours)) == list(shape_faults(GOOD | change, theirs))


def test_what_is_missing_and_what_is_unknown() -> None:
    """Required members are named; a service that the installed botocore does not know is said."""
    with pytest.raises(InputError, match="RoleArn: is missing"):
        check_request("sagemaker", "CreateTrainingJob", {})
    with pytest.raises(InputError, match="no service 'nothing'"):
        check_request("nothing", "Create", {})
