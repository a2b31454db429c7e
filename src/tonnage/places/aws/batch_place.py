"""What places.toml says of AWS Batch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform
from tonnage.places.aws.sagemaker_place import ROLE
from tonnage.places.aws.terms import AWSTerms
from tonnage.places.bucket.place import ImagePlace
from tonnage.places.several import SeveralMachines

MOST_ATTEMPTS: Final = 10  # of a job's retry strategy
STOP_S: Final = 30  # Amazon ECS ends a container so long after SIGTERM
MULTI_NODE_SOURCE: Final = "https://docs.aws.amazon.com/batch/latest/userguide/mnp-ce.html"


class BatchPlace(SeveralMachines, ImagePlace, AWSTerms):
    """Jobs of one queue, whose compute environment is EC2's. Figures are those of one node."""

    platform: ClassVar[Platform] = "vm"  # Batch adds no price of its own to its instances
    kind: Literal["aws-batch"]
    queue: Annotated[str, Field(pattern=r"^[A-Za-z0-9_:/-]+$")]  # the job queue, by name or ARN
    role: Annotated[str, Field(pattern=ROLE)]  # of the job: the bucket, the secret
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]  # that the compute environment starts
    share: str | None = None  # the share identifier, of a queue with a scheduling policy
    grace_s: Annotated[int, Field(ge=5, le=STOP_S - 10)] = STOP_S - 10  # after SIGTERM; spot's notice comes before
    retries: Annotated[int, Field(ge=0, lt=MOST_ATTEMPTS)] = MOST_ATTEMPTS - 1  # starts after spot took the host
    shm_gib: Annotated[int, Field(ge=1)] | None = None  # /dev/shm, of the node's memory; None: a quarter of it
    mount: str = "/tmp/tonnage"  # of the container, which the job alone has

    @property
    def attempts(self) -> int:
        """How often a job may start."""
        return 1 + self.retries if self.spot else 1

    @property
    def longest_job_h(self) -> float | None:
        """Batch's limit of time is one of each attempt."""
        return self.attempts * self.time_limit_minutes / 60

    @model_validator(mode="after")
    def _hang_together(self) -> BatchPlace:
        if self.spot and self.nodes > 1:
            raise ValueError(
                "`nodes` and `spot`: AWS Batch runs multi-node parallel jobs on on-demand instances alone "
                f"({MULTI_NODE_SOURCE})"
            )
        return self
