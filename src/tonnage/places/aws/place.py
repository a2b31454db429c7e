"""What places.toml says of Amazon's places: EC2 instances, SageMaker training jobs, AWS Batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.place import CloudPlace, ImagePlace, MachinePlace
from tonnage.places.several import SeveralMachines
from tonnage.places.terms import CatalogMachine

SPOT_NOTICE_S: Final = 120  # between EC2's notice and the end of the instance
HOW_AMI: Final = (
    "`aws ssm get-parameter --query Parameter.Value --name "
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id`"
)
EFA_CARDS: Final[Mapping[str, int]] = {
    "p3dn.24xlarge": 1,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.4xlarge": 1,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p6-b200.48xlarge": 8,
    "trn1.32xlarge": 8,
    "trn1n.32xlarge": 16,
    "trn2.48xlarge": 16,
    **{f"{family}.{size}": 1 for family in ("g5", "g6", "g6e") for size in ("8xlarge", "12xlarge", "16xlarge")},
    "g5.24xlarge": 1,
    "g5.48xlarge": 1,
    "g6.24xlarge": 1,
    "g6.48xlarge": 1,
    "g6e.24xlarge": 2,
    "g6e.48xlarge": 4,
    "g7e.12xlarge": 1,
    "g7e.24xlarge": 2,
    "g7e.48xlarge": 4,
}  # fmt: skip - one interface a card: EC2's DescribeInstanceTypes, NetworkInfo.EfaInfo.MaximumEfaInterfaces
SAGEMAKER_STOP_S: Final = 120  # SageMaker ends a container so long after SIGTERM
ROLE: Final = r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$"
MOST_ATTEMPTS: Final = 10  # of a job's retry strategy
BATCH_STOP_S: Final = 30  # Amazon ECS ends a container so long after SIGTERM
MULTI_NODE_SOURCE: Final = "https://docs.aws.amazon.com/batch/latest/userguide/mnp-ce.html"


class AWSTerms(CloudPlace):
    """Terms of all that is Amazon's."""

    secret_schemes: ClassVar[tuple[str, ...]] = ("aws", "aws-ssm")

    profile: str | None = None  # of ~/.aws/config; None: boto3's own chain
    instance_type: str

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The instance type in the place's own region."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, "aws", self.instance_type.removeprefix("ml."), self.region, bought)

    @model_validator(mode="after")
    def _stores_in_s3(self) -> AWSTerms:
        if not self.bucket.startswith("s3://"):
            raise ValueError("`bucket` is one of S3: s3://BUCKET/PREFIX")
        return self


class EC2Place(SeveralMachines, MachinePlace, AWSTerms):
    """Instances of one type in one region, made for a run and ended with it; its image runs in Docker on each."""

    tells_driver: ClassVar[bool] = True
    platform: ClassVar[Platform] = "vm"
    kind: Literal["ec2"]
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
    ami: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")]  # with cloud-init, Docker, the GPU's driver
    root_device: str = "/dev/sda1"  # of that image; /dev/xvda of Amazon Linux
    instance_profile: str  # its role reads the bucket, the image and the secret
    subnets: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=20)]  # one for each zone
    security_groups: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=5)]
    kms_key: str | None = None  # of the disk; None: the account's own
    reservation: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")] | None = None  # of capacity
    capacity_block: bool = False  # the reservation is a capacity block for ML
    placement_group: str | None = None  # a cluster placement group: machines of a run close to each other
    efa: bool = True  # of several machines: an EFA interface on each card of the type, where it has them
    most_usd_per_hour: Annotated[float, Field(gt=0)] | None = None  # of one spot instance; None: on-demand's price

    @property
    def efa_cards(self) -> int:
        """How many EFA interfaces each machine gets; a machine alone needs none."""
        return EFA_CARDS.get(self.instance_type, 0) if self.nodes > 1 and self.efa else 0

    @property
    def devices(self) -> tuple[str, ...]:
        return ("/dev/infiniband",) if self.efa_cards else ()

    @property
    def run_variables(self) -> Mapping[str, str]:
        """NCCL goes over libfabric's provider for EFA, and bootstraps over the first ordinary card."""
        if self.nodes == 1:
            return {}
        cards = {"FI_PROVIDER": "efa"} if self.efa_cards else {}
        return {"NCCL_SOCKET_IFNAME": "^docker,lo,veth", **cards}

    @model_validator(mode="after")
    def _hang_together(self) -> EC2Place:
        if self.spot and self.reservation is not None:
            raise ValueError("`spot` and `reservation`: reserved capacity is not bought as spot")
        if self.capacity_block and self.reservation is None:
            raise ValueError("`capacity_block` needs its `reservation`: cr-...")
        if self.most_usd_per_hour is not None and not self.spot:
            raise ValueError("`most_usd_per_hour` is of spot instances")
        if self.spot and self.grace_s > SPOT_NOTICE_S - 20:
            raise ValueError(f"`grace_s`: EC2 gives {SPOT_NOTICE_S} s, and the last checkpoint is brought away in them")
        if self.efa_cards and self.public_address:
            raise ValueError(
                "`public_address`: EC2 gives none to a machine with several interfaces: a NAT gateway, or `efa = false`"
            )
        if self.placement_group is not None and self.capacity_block:
            raise ValueError("`placement_group`: a capacity block has its machines close to each other already")
        return self


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
        if self.grace_s > SAGEMAKER_STOP_S - 20:
            raise ValueError(
                f"`grace_s`: SageMaker gives {SAGEMAKER_STOP_S} s, and the last checkpoint is brought away in them"
            )
        return self


class BatchPlace(SeveralMachines, ImagePlace, AWSTerms):
    """Jobs of one queue, whose compute environment is EC2's. Figures are those of one node."""

    platform: ClassVar[Platform] = "vm"  # Batch adds no price of its own to its instances
    kind: Literal["aws-batch"]
    queue: Annotated[str, Field(pattern=r"^[A-Za-z0-9_:/-]+$")]  # the job queue, by name or ARN
    role: Annotated[str, Field(pattern=ROLE)]  # of the job: the bucket, the secret
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]  # that the compute environment starts
    share: str | None = None  # the share identifier, of a queue with a scheduling policy
    grace_s: Annotated[int, Field(ge=5, le=BATCH_STOP_S - 10)] = (
        BATCH_STOP_S - 10
    )  # after SIGTERM; spot's notice comes before
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
