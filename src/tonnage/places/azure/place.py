"""What places.toml says of Azure's virtual machines, and of Azure Machine Learning's jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.place import CloudPlace, ImagePlace, MachinePlace
from tonnage.places.several import SeveralMachines
from tonnage.places.terms import CatalogMachine

SPOT_NOTICE_S: Final = 30  # the least between a Preempt event and the end: Azure, «Scheduled Events»
IMAGE: Final = r"^([^:/\s]+:[^:/\s]+:[^:/\s]+:[^:/\s]+|/(subscriptions|SharedGalleries|CommunityGalleries)/\S+)$"
UUID: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
RESOURCE: Final = r"^/subscriptions/[^/\s]+/resourceGroups/[^/\s]+/providers/\S+$"
NOT_IN_TAGS: Final = re.compile(r"[<>%&\\?/]")  # of tags' names
HOW_BUCKET: Final = "`bucket` is one of Blob Storage: az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX"
DAY_MINUTES: Final = 24 * 60


class AzureTerms(CloudPlace):
    """Terms of all that is Azure's."""

    secret_schemes: ClassVar[tuple[str, ...]] = ("azure",)

    subscription: Annotated[str, Field(pattern=UUID)]
    resource_group: Annotated[str, Field(pattern=r"^[\w().-]{1,89}[\w()-]$")]

    @model_validator(mode="after")
    def _as_azure_takes_it(self) -> AzureTerms:
        if not re.fullmatch(r"az://[a-z0-9-]+@[a-z0-9]+\.blob\.[a-z0-9.]+(/.*)?", self.bucket):
            raise ValueError(HOW_BUCKET)
        wrong = [key for key in self.labels if NOT_IN_TAGS.search(key)]
        if wrong:
            raise ValueError(f"`labels`: {wrong[0]!r} cannot be the name of a tag: <>%&\\?/ are not taken")
        return self

    @property
    def group(self) -> str:
        """The resource group's path."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"


class AzurePlace(SeveralMachines, MachinePlace, AzureTerms):
    """Virtual machines of one size in one region: one for a run, or a scale set. Each deletes itself where it may."""

    platform: ClassVar[Platform] = "vm"
    stays: ClassVar[bool] = True
    kind: Literal["azure"]
    zones: Annotated[tuple[Literal["1", "2", "3"], ...], Field(strict=False, max_length=3)] = ()  # asked in this order
    instance_type: Annotated[str, Field(pattern=r"^(Standard|Basic)_[A-Za-z0-9_-]+$")]  # the size
    boot_image: Annotated[str, Field(pattern=IMAGE)]  # PUBLISHER:OFFER:SKU:VERSION or an identifier
    identity: Annotated[str, Field(pattern=RESOURCE)]  # user-assigned: reads and writes the bucket, pulls the image
    subnet: Annotated[str, Field(pattern=r"^([^/\s]+/[^/\s]+|/subscriptions/\S+)$")]  # NETWORK/SUBNET, or an identifier
    ssh_public_key: Annotated[str, Field(pattern=r"^ssh-(rsa|ed25519) \S+( .*)?$")]  # which Azure asks for
    disk_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9]+_[LZ]RS$")] = "Premium_LRS"
    disk_encryption_set: Annotated[str, Field(pattern=RESOURCE)] | None = None  # None: Azure's own keys
    capacity_reservation: Annotated[str, Field(pattern=RESOURCE)] | None = None  # the group of it
    proximity_placement_group: Annotated[str, Field(pattern=RESOURCE)] | None = (
        None  # machines of a run near each other
    )
    most_usd_per_hour: Annotated[float, Field(gt=0)] | None = None  # of a spot machine; None: on-demand's price

    @model_validator(mode="after")
    def _hang_together(self) -> AzurePlace:
        if self.most_usd_per_hour is not None and not self.spot:
            raise ValueError("`most_usd_per_hour` is of spot machines")
        if self.proximity_placement_group is not None and self.nodes == 1:
            raise ValueError("`proximity_placement_group` is of several machines: `nodes`")
        if self.spot and self.capacity_reservation is not None:
            raise ValueError("`spot` and `capacity_reservation`: reserved capacity is not bought as spot")
        if self.spot and self.grace_s > SPOT_NOTICE_S - 10:
            said = f"Azure gives {SPOT_NOTICE_S} s, and the last checkpoint is brought away in them"
            raise ValueError(f"`grace_s`: {said}")
        return self

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The size in the place's own region."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, "azure", self.instance_type, self.region, bought)

    @property
    def run_variables(self) -> Mapping[str, str]:
        """Of several machines NCCL bootstraps over the ordinary card: Docker's bridges lead to no other machine."""
        return {} if self.nodes == 1 else {"NCCL_SOCKET_IFNAME": "^docker,lo,veth"}

    @property
    def subnet_id(self) -> str:
        """The subnet's whole identifier."""
        if self.subnet.startswith("/"):
            return self.subnet
        network, _, name = self.subnet.partition("/")
        return f"{self.group}/providers/Microsoft.Network/virtualNetworks/{network}/subnets/{name}"


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
