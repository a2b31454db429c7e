"""What places.toml says of SkyPilot's managed jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.place import BucketPlace, by_digest
from tonnage.places.terms import CatalogMachine

SPOT_GRACE_S: Final = 30  # the shortest of the clouds': Google Cloud and Azure
Machine = Annotated[str, Field(pattern=r"^[a-z0-9]+(/[^/\s]+){2}$")]  # PROVIDER/REGION/TYPE


class SkyPilotPlace(BucketPlace):
    """Managed jobs on machines of several clouds, tried in their order. Figures are those of the least of them."""

    secret_schemes: ClassVar[tuple[str, ...]] = ("aws", "aws-ssm", "gcp", "azure")
    platform: ClassVar[Platform] = "vm"
    kind: Literal["skypilot"]
    image: str  # by digest: NAME@sha256:...; it has tonnage and what runs need installed
    candidates: Annotated[tuple[Machine, ...], Field(strict=False, min_length=1)]  # tried in this order
    spot: bool = False
    disk_gib: Annotated[int, Field(ge=30)] = 200
    strategy: Literal["FAILOVER", "EAGER_NEXT_REGION"] = "EAGER_NEXT_REGION"  # where a machine is taken
    mount: str = "/tonnage"
    command: str = "sky"  # SkyPilot's own, best in an environment of its own
    workspace: str | None = None  # of SkyPilot

    @field_validator("image")
    @classmethod
    def _by_digest(cls, image: str) -> str:
        return by_digest(image)

    @property
    def interruptible(self) -> bool:
        return self.spot

    @property
    def where(self) -> str:
        return ", ".join(self.candidates)

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The first that is tried: a plan's option is carried out where it is this one."""
        return self.possible_machines[0]

    @property
    def possible_machines(self) -> tuple[CatalogMachine, ...]:
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        parts = [one.split("/") for one in self.candidates]
        return tuple(CatalogMachine(self.platform, provider, kind, region, bought) for provider, region, kind in parts)

    @model_validator(mode="after")
    def _hang_together(self) -> SkyPilotPlace:
        if self.spot and self.grace_s > SPOT_GRACE_S - 10:
            raise ValueError(f"`grace_s`: some clouds give {SPOT_GRACE_S} s, and the last checkpoint goes away in them")
        if self.bucket.startswith(("file://", "/")):
            raise ValueError("`bucket` is one that all machines reach: s3:// or gs://")
        return self
