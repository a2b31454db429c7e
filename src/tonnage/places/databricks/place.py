"""What places.toml says of clusters for jobs in a Databricks workspace."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.objects import MOUNTED
from tonnage.places.bucket.place import CloudPlace, by_digest
from tonnage.places.terms import CatalogMachine

SPOT_NOTICE_S: Final = 120  # between Amazon's notice and the end of the machine
DatabricksCloud = Literal["aws", "azure", "gcp"]


class DatabricksPlace(CloudPlace):
    """One cluster of one node for each submission, made for it and ended with it.

    What runs need comes with `runtime` and `wheels`, or with `image`.
    """

    secret_schemes: ClassVar[tuple[str, ...]] = ()  # `secret` is a secret scope of the workspace
    platform: ClassVar[Platform] = "databricks"
    kind: Literal["databricks"]
    profile: str | None = None  # of ~/.databrickscfg; None: the SDK's own chain
    cloud: DatabricksCloud  # that the workspace is in
    instance_type: str  # the node's, as `databricks clusters list-node-types` names it
    runtime: str  # such as 16.4.x-gpu-ml-scala2.12
    wheels: Annotated[tuple[str, ...], Field(strict=False)] = ()  # in a volume or the workspace: tonnage, own tasks
    packages: Annotated[tuple[str, ...], Field(strict=False)] = ()  # of PyPI, with their versions
    image: str | None = None  # by digest, of Databricks Container Services: instead of wheels
    policy: str | None = None  # the id of a cluster policy
    init_scripts: Annotated[tuple[str, ...], Field(strict=False)] = ()  # /Volumes/..., /Workspace/..., s3://...
    spark_conf: Annotated[dict[str, str], Field(default_factory=dict)]
    env: Annotated[dict[str, str], Field(default_factory=dict)]  # of the cluster
    instance_profile: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:instance-profile/.+$")] | None = None
    service_account: str | None = None  # of Google Cloud, for the cluster
    run_as: str | None = None  # the application id of a service principal; None: who submits
    zone: str | None = None  # None: any of the workspace's
    ebs_gib: Annotated[int, Field(ge=100, le=4096)] | None = None  # a disk of Amazon, for node types without their own
    mount: str = "/local_disk0/tonnage"

    @field_validator("image")
    @classmethod
    def _by_digest(cls, image: str | None) -> str | None:
        return None if image is None else by_digest(image)

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The node type in the place's own region, with the units that Databricks counts."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, self.cloud, self.instance_type, self.region, bought)

    @property
    def secret_address(self) -> None:
        """Databricks sets the variables itself, from the scope."""

    @property
    def store_there(self) -> str:
        """A volume is a folder on the machine."""
        return f"{MOUNTED}://{self.bucket}" if self.bucket.startswith("/") else self.bucket

    @model_validator(mode="after")
    def _hang_together(self) -> DatabricksPlace:
        if self.image is None and not self.wheels:
            raise ValueError(
                "`wheels` has tonnage's own wheel, in a volume or the workspace; or `image` has it installed"
            )
        if self.image is not None and self.wheels:
            raise ValueError("`image` or `wheels`: an image has what it needs")
        if self.instance_profile is not None and self.cloud != "aws":
            raise ValueError("`instance_profile` is of Amazon")
        if self.service_account is not None and self.cloud != "gcp":
            raise ValueError("`service_account` is of Google Cloud; `run_as` names a service principal")
        if self.ebs_gib is not None and self.cloud != "aws":
            raise ValueError("`ebs_gib` is of Amazon")
        if self.spot and self.cloud != "aws":
            raise ValueError(
                "`spot`: on Azure and Google Cloud a cluster's driver, which is its one node, is on demand"
            )
        if self.spot and self.grace_s > SPOT_NOTICE_S - 20:
            raise ValueError(
                f"`grace_s`: Amazon gives {SPOT_NOTICE_S} s, and the last checkpoint is brought away in them"
            )
        if self.bucket.startswith("s3://") and self.instance_profile is None:
            raise ValueError("a bucket of S3 needs `instance_profile`; a volume, /Volumes/..., needs none")
        if self.bucket.startswith("gs://") and self.service_account is None:
            raise ValueError("a bucket of Google Cloud needs `service_account`; a volume, /Volumes/..., needs none")
        if self.bucket.startswith("file://"):
            raise ValueError("`bucket` is a volume, /Volumes/CATALOG/SCHEMA/VOLUME/FOLDER, or s3:// or gs://")
        if self.bucket.startswith("/") and self.bucket.count("/") < 5:
            raise ValueError("`bucket` is a folder in a volume: /Volumes/CATALOG/SCHEMA/VOLUME/FOLDER")
        return self
