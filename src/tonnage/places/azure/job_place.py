"""What places.toml says of Azure Machine Learning's jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.azure.place import SPOT_NOTICE_S, UUID, AzureTerms
from tonnage.places.bucket.place import ImagePlace
from tonnage.places.several import SeveralMachines
from tonnage.places.terms import CatalogMachine

DAY_MINUTES: Final = 24 * 60
LONGEST_MINUTES: Final = 21 * DAY_MINUTES  # Azure, «Manage and increase quotas and limits»: job lifetime
LONGEST_SPOT_MINUTES: Final = 7 * DAY_MINUTES  # the same: on a low-priority node


class AzureMLPlace(SeveralMachines, ImagePlace, AzureTerms):
    """Command jobs of one workspace, on a compute cluster or serverless. Figures are those of one node."""

    platform: ClassVar[Platform] = "vm"  # Azure ML adds no price of its own to its machines
    kind: Literal["azureml"]
    workspace: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{2,32}$")]
    compute: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{1,30}[A-Za-z0-9]$")] | None = None  # None: serverless
    instance_type: Annotated[str, Field(pattern=r"^(Standard|Basic)_[A-Za-z0-9_-]+$")]  # the size, the cluster's own
    identity: Annotated[str, Field(pattern=UUID)]  # the client id of the nodes' user-assigned identity
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$")] = (
        "tonnage"  # under which the studio has it
    )
    shm_gib: Annotated[int, Field(ge=1)] | None = None  # /dev/shm, of the node's memory; None: a quarter of it
    mount: str = "/tmp/tonnage"  # of the container, which the job alone has

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The size in the place's own region."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, "azure", self.instance_type, self.region, bought)

    @property
    def possible_machines(self) -> tuple[CatalogMachine, ...]:
        """None where it is of low priority: Azure ML sells that at a price of its own, which no catalog has."""
        return () if self.spot else (self.catalog_machine,)

    @property
    def workspace_path(self) -> str:
        return f"{self.group}/providers/Microsoft.MachineLearningServices/workspaces/{self.workspace}"

    @model_validator(mode="after")
    def _hang_together(self) -> AzureMLPlace:
        longest, what = (LONGEST_SPOT_MINUTES, "7 days, of low priority") if self.spot else (LONGEST_MINUTES, "21 days")
        if self.time_limit_minutes > longest:
            raise ValueError(f"`time_limit_minutes`: Azure ML lets a job run for {what}: {longest}")
        if self.spot and self.grace_s > SPOT_NOTICE_S - 10:
            raise ValueError(f"`grace_s`: a node that is taken away has {SPOT_NOTICE_S} s at most")
        return self
