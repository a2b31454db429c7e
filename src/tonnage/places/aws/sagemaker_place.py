"""What places.toml says of SageMaker training jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform
from tonnage.places.aws.terms import AWSTerms
from tonnage.places.bucket.place import ImagePlace
from tonnage.places.several import SeveralMachines

STOP_S: Final = 120  # SageMaker ends a container so long after SIGTERM
ROLE: Final = r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$"


class SageMakerPlace(SeveralMachines, ImagePlace, AWSTerms):
    """Training jobs of one region. Figures are those of one instance of the type."""

    platform: ClassVar[Platform] = "sagemaker"
    kind: Literal["sagemaker"]
    role: Annotated[str, Field(pattern=ROLE)]  # that the job takes: the bucket, the image, the secret
    instance_type: Annotated[str, Field(pattern=r"^ml\.")]
    mount: str = "/opt/ml/tonnage"
    max_wait_minutes: Annotated[int, Field(ge=1)] | None = None  # of a spot job, its work included; None: 24 h more
    keep_warm_s: Annotated[int, Field(ge=0, le=21600)] = 0  # the instance stays for the next job: it is billed
    subnets: Annotated[tuple[str, ...], Field(strict=False, max_length=16)] = ()
    security_groups: Annotated[tuple[str, ...], Field(strict=False, max_length=5)] = ()
    kms_key: str | None = None  # of the instance's disk
    training_plan: str | None = None  # ARN of reserved capacity

    @model_validator(mode="after")
    def _hang_together(self) -> SageMakerPlace:
        if self.spot and self.keep_warm_s:
            raise ValueError("`keep_warm_s` and `spot`: SageMaker keeps no spot instance warm")
        if bool(self.subnets) != bool(self.security_groups):
            raise ValueError("`subnets` and `security_groups` go together")
        if self.max_wait_minutes is not None and self.max_wait_minutes < self.time_limit_minutes:
            raise ValueError("`max_wait_minutes` has the run's own time in it: at least `time_limit_minutes`")
        if ".dkr.ecr." not in self.image:
            raise ValueError("SageMaker takes images of Amazon ECR: push it there with `skopeo copy`")
        if self.grace_s > STOP_S - 20:
            raise ValueError(f"`grace_s`: SageMaker gives {STOP_S} s, and the last checkpoint is brought away in them")
        return self
