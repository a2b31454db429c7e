"""What places.toml says of EC2 instances."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.place import MachinePlace
from tonnage.places.terms import CatalogMachine

SPOT_NOTICE_S: Final = 120  # between EC2's notice and the end of the instance
HOW_AMI: Final = (
    "`aws ssm get-parameter --query Parameter.Value --name "
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id`"
)


class EC2Place(MachinePlace):
    """Instances of one type in one region. A run has one, made for it and ended with it; its image runs in Docker."""

    platform: ClassVar[Platform] = "vm"
    kind: Literal["ec2"]
    profile: str | None = None  # of ~/.aws/config; None: boto3's own chain
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
    ami: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")]  # with cloud-init, Docker, the GPU's driver
    root_device: str = "/dev/sda1"  # of that image; /dev/xvda of Amazon Linux
    instance_profile: str  # its role reads the bucket, the image and the secret
    subnets: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=20)]  # one for each zone
    security_groups: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=5)]
    kms_key: str | None = None  # of the disk; None: the account's own
    reservation: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")] | None = None  # of capacity
    capacity_block: bool = False  # the reservation is a capacity block for ML
    most_usd_per_hour: Annotated[float, Field(gt=0)] | None = None  # of a spot instance; None: on-demand's price

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The instance type in the place's own region."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, "aws", self.instance_type, self.region, bought)

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
        if not self.bucket.startswith("s3://"):
            raise ValueError("`bucket` is one of S3: s3://BUCKET/PREFIX")
        return self
