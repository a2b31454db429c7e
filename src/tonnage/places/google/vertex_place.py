"""What places.toml says of Vertex AI's custom jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.place import ImagePlace
from tonnage.places.several import SeveralMachines
from tonnage.places.terms import CatalogMachine

SPOT_GRACE_S: Final = 30  # between SIGTERM and the end of a spot machine, as on Compute Engine
ATTACHED: Final = ("n1-", "a2-", "a3-", "a4-", "g2-")  # machine types whose accelerators a job names
LONGEST_MINUTES: Final = 28 * 24 * 60  # of one job


class VertexPlace(SeveralMachines, ImagePlace):
    """Custom jobs of one machine type in one region. Figures are those of one machine."""

    secret_schemes: ClassVar[tuple[str, ...]] = ("gcp",)
    platform: ClassVar[Platform] = "vertex"
    kind: Literal["vertex"]
    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9:.-]{4,60}[a-z0-9]$")]
    instance_type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]+$")]  # the machine type
    accelerator: str | None = None  # as Vertex AI names it: NVIDIA_L4, NVIDIA_H100_80GB
    service_account: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")]  # reads and writes the bucket
    network: Annotated[str, Field(pattern=r"^projects/\d+/global/networks/[^/]+$")] | None = None  # peered, by number
    reservation: Annotated[str, Field(pattern=r"^projects/[^/]+/zones/[^/]+/reservations/[^/]+$")] | None = None
    disk_type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    kms_key: str | None = None
    flex_start: bool = False  # waits in the queue of the Dynamic Workload Scheduler
    max_wait_minutes: Annotated[int, Field(ge=1)] = 24 * 60  # of `flex_start`
    mount: str = "/tmp/tonnage"  # of the container, which the job alone has

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The machine type in the place's own region, with Vertex AI's fee."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, "gcp", self.instance_type, self.region, bought)

    @model_validator(mode="after")
    def _hang_together(self) -> VertexPlace:
        if bool(self.gpus) != (self.accelerator is not None):
            raise ValueError("`gpus` and `accelerator` go together: how many of NVIDIA_L4, NVIDIA_H100_80GB, ...")
        if self.accelerator is not None and not self.instance_type.startswith(ATTACHED):
            raise ValueError(f"`accelerator`: {self.instance_type} takes none")
        if self.spot and (self.reservation is not None or self.flex_start):
            raise ValueError("`spot`: reserved and queued capacity is not bought as spot")
        if self.flex_start and self.reservation is not None:
            raise ValueError("`flex_start` and `reservation`: reserved capacity is not waited for")
        if self.spot and self.grace_s > SPOT_GRACE_S - 10:
            raise ValueError(
                f"`grace_s`: Google gives {SPOT_GRACE_S} s, and the last checkpoint is brought away in them"
            )
        if self.time_limit_minutes > LONGEST_MINUTES:
            raise ValueError("`time_limit_minutes`: 28 days at most")
        if not self.bucket.startswith("gs://"):
            raise ValueError("`bucket` is one of Cloud Storage: gs://BUCKET/PREFIX")
        return self
