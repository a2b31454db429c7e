"""What places.toml says of all that is Amazon's."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from tonnage.catalog.market import Purchase
from tonnage.places.bucket.place import CloudPlace
from tonnage.places.terms import CatalogMachine


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
