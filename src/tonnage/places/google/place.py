"""What places.toml says of Compute Engine instances, and of Vertex AI's custom jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tonnage.catalog.market import Platform, Purchase
from tonnage.places.bucket.place import ImagePlace, MachinePlace
from tonnage.places.google.fill_terms import FillTerms, filled_disk
from tonnage.places.google.gpudirect import OF_TYPES, VARIABLES, GPUDirect
from tonnage.places.several import SeveralMachines
from tonnage.places.terms import CatalogMachine
from tonnage.values import dataclass

SPOT_GRACE_S: Final = (
    30  # between the ACPI signal and the end of a spot machine: discovery document, skipGuestOsShutdown
)
GRACE_S: Final = 120  # of other machines, by the same text
HYPERDISK: Final = "hyperdisk-balanced"
ONLY_HYPERDISK: Final = (
    "a3-ultragpu",
    "a4",
    "a4x",
    "c4",
    "c4a",
    "c4d",
    "h4d",
    "m4",
    "n4",
    "x4",
)  # «Choose a disk type»
DATA: Final = "/mnt/disks"  # of the machine: below it each data disk
MTU: Final = 8896  # of networks for the cards of GPUs, «GPU machine types: network bandwidth»
DiskName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
LONGEST_MINUTES: Final = 120 * 24 * 60  # of maxRunDuration
FLEX_MINUTES: Final = 7 * 24 * 60  # of a machine of Flex Start
LONGEST_WAIT_MINUTES: Final = 120  # of `params.requestValidForDuration`, 90 s at the least
MOST_DATA_DISKS: Final = 8
VERTEX_SPOT_GRACE_S: Final = 30  # between SIGTERM and the end of a spot machine, as on Compute Engine
ATTACHED: Final = ("n1-", "a2-", "a3-", "a4-", "g2-")  # machine types whose accelerators a job names
VERTEX_LONGEST_MINUTES: Final = 28 * 24 * 60  # of one job


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDisk:
    """A disk that many machines read at once: its name at Google, that of its device, and where it is mounted."""

    name: str
    device: str
    filled_with: str | None = None  # key of the content, of one that `tonnage places fill` makes

    @property
    def folder(self) -> str:
        return f"{DATA}/{self.device}"


class GCEPlace(SeveralMachines, MachinePlace):
    """Instances of one machine type in some zones of a region; those of a run are in one zone. They end themselves."""

    secret_schemes: ClassVar[tuple[str, ...]] = ("gcp",)
    platform: ClassVar[Platform] = "vm"
    stays: ClassVar[bool] = True
    kind: Literal["gce"]
    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9:.-]{4,60}[a-z0-9]$")]
    zones: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=12)]  # asked in this order
    instance_type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]+$")]  # the machine type
    boot_image: Annotated[
        str, Field(pattern=r"^projects/[^/]+/global/images/(family/)?[^/]+$")
    ]  # systemd, Docker, GPU driver
    service_account: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")]  # reads and writes the bucket, pulls the image
    subnet: str = "default"  # a name of the region, or projects/.../subnetworks/NAME
    gpu_subnets: Annotated[tuple[str, ...], Field(strict=False)] = ()  # of the cards beside GPUs
    second_subnet: str | None = None  # of the second gVNIC card, of A3 Ultra and A4
    accelerator: str | None = None  # of machines to which GPUs are attached: nvidia-tesla-t4 at n1-...
    disk_type: str | None = None  # None: hyperdisk-balanced where the type takes no other, else pd-balanced
    data_disks: Annotated[tuple[DiskName, ...], Field(strict=False)] = ()  # that are there, at /mnt/disks/NAME
    fill: dict[DiskName, FillTerms] = Field(default_factory=dict)  # that `tonnage places fill` makes, at the same place
    kms_key: str | None = None  # of the disk; None: Google's own
    reservation: str | None = None  # of capacity, by name
    reservation_bound: bool = False  # the machines end with the reservation: one of DWS's calendar mode
    flex_start: bool = False  # waits in the queue of the Dynamic Workload Scheduler
    max_wait_minutes: Annotated[int, Field(ge=2, le=LONGEST_WAIT_MINUTES)] = LONGEST_WAIT_MINUTES  # of `flex_start`
    placement_policy: str | None = None  # a compact one of the region: machines of a run close to each other
    gpudirect: bool = True  # of several machines with cards beside their GPUs: TCPX on A3 High, TCPXO on A3 Mega, RDMA
    gpudirect_plugin: str | None = None  # its images; None: those that Google's own examples name
    gpudirect_daemon: str | None = None

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The machine type in the place's own region."""
        bought: Purchase = "spot" if self.spot else self.purchase or "on_demand"
        return CatalogMachine(self.platform, "gcp", self.instance_type, self.region, bought)

    @property
    def machine_image(self) -> str:
        return self.boot_image.rpartition("/")[2]

    @property
    def disk(self) -> str:
        """The type of the first disk."""
        return self.disk_type or (HYPERDISK if self._takes_only_hyperdisk else "pd-balanced")

    @property
    def read_disks(self) -> tuple[DataDisk, ...]:
        """All that its machines attach to read alone."""
        own = (DataDisk(name=name, device=name) for name in self.data_disks)
        filled = (
            DataDisk(name=filled_disk(name, terms), device=name, filled_with=terms.key)
            for name, terms in self.fill.items()
        )
        return (*own, *filled)

    @property
    def read_only_folders(self) -> tuple[str, ...]:
        """Where the data disks are mounted."""
        return tuple(disk.folder for disk in self.read_disks)

    @property
    def _takes_only_hyperdisk(self) -> bool:
        return any(self.instance_type.startswith(f"{family}-") for family in ONLY_HYPERDISK)

    @property
    def direct(self) -> GPUDirect | None:
        """What joins the GPUs of its machines past their processors; None where nothing does."""
        joined = self.nodes > 1 and self.gpudirect and self.gpu_subnets
        return OF_TYPES.get(self.instance_type) if joined else None

    @property
    def run_variables(self) -> Mapping[str, str]:
        """Of NCCL over the first card alone; GPUDirect's are in a file that the machine writes."""
        return {"NCCL_SOCKET_IFNAME": "^docker,lo,veth"} if self.nodes > 1 and self.direct is None else {}

    @property
    def variable_files(self) -> tuple[str, ...]:
        return () if self.direct is None else (VARIABLES,)

    @property
    def library_folder(self) -> str | None:
        return None if self.direct is None else self.direct.libraries

    @property
    def seen_folders(self) -> Mapping[str, str]:
        kind = self.direct
        return {} if kind is None or kind.laid_in is None or kind.seen_as is None else {kind.laid_in: kind.seen_as}

    @property
    def variables_script(self) -> str | None:
        return None if self.direct is None else self.direct.profile

    @property
    def devices(self) -> tuple[str, ...]:
        return () if self.direct is None else self.direct.devices

    @property
    def open_folders(self) -> tuple[str, ...]:
        return () if self.direct is None else self.direct.folders

    @property
    def capabilities(self) -> tuple[str, ...]:
        return () if self.direct is None else ("IPC_LOCK",)

    @model_validator(mode="after")
    def _bought_in_one_way(self) -> GCEPlace:
        if self.spot and self.reservation is not None:
            raise ValueError("`spot` and `reservation`: reserved capacity is not bought as spot")
        if self.reservation_bound and self.reservation is None:
            raise ValueError("`reservation_bound` needs its `reservation`")
        if self.flex_start and (self.spot or self.reservation is not None):
            raise ValueError("`flex_start`: capacity that is waited for is neither spot nor reserved")
        if self.flex_start and self.nodes > 1:
            raise ValueError(
                "`flex_start`: Compute Engine waits for one machine (`params` of instances.insert alone); "
                "for several: a `reservation` of DWS's calendar mode, or `spot`"
            )
        if self.flex_start and self.time_limit_minutes > FLEX_MINUTES:
            raise ValueError("`time_limit_minutes`: Flex Start gives 7 days at most")
        if not self.gpudirect and (self.gpudirect_plugin or self.gpudirect_daemon):
            raise ValueError("`gpudirect_plugin` and `gpudirect_daemon` are of `gpudirect`, which is off")
        return self

    @model_validator(mode="after")
    def _hang_together(self) -> GCEPlace:
        outside = [one for one in self.zones if not one.startswith(f"{self.region}-")]
        if outside:
            raise ValueError(f"`zones`: {', '.join(outside)} is not in {self.region}")
        if self.accelerator is not None and not self.instance_type.startswith("n1-"):
            raise ValueError("`accelerator` is of n1 machines: others have their GPUs with the type")
        if self.accelerator is not None and not self.gpus:
            raise ValueError("`accelerator` needs `gpus`: how many of it")
        if self.gpus and self.accelerator is None and self.instance_type.startswith("n1-"):
            raise ValueError("`gpus` of an n1 machine are attached to it: `accelerator`, such as nvidia-tesla-t4")
        if self._takes_only_hyperdisk and self.disk_type is not None and not self.disk_type.startswith("hyperdisk-"):
            raise ValueError(f"`disk_type`: {self.instance_type} takes hyperdisks alone, such as {HYPERDISK}")
        if twice := set(self.data_disks) & set(self.fill):
            raise ValueError(f"`fill.{min(twice)}`: `data_disks` names it too, and both would be mounted in one folder")
        if len(self.read_disks) > MOST_DATA_DISKS:
            raise ValueError(f"`data_disks` and `fill`: {MOST_DATA_DISKS} disks at most")
        kind = OF_TYPES.get(self.instance_type)
        if self.gpu_subnets and (kind is None or len(self.gpu_subnets) != kind.cards):
            has = "none" if kind is None else f"{kind.cards}"
            where = "a subnet of the one RoCE network" if kind and kind.nic == "MRDMA" else "a network of its own"
            raise ValueError(f"`gpu_subnets`: {self.instance_type} has {has} of these cards, each in {where}")
        rdma = kind is not None and kind.nic == "MRDMA" and bool(self.gpu_subnets)
        if rdma != (self.second_subnet is not None):
            raise ValueError(
                "`second_subnet` and `gpu_subnets` go together on A3 Ultra and A4: a second gVNIC card, 8 of RDMA"
            )
        if rdma and len(self.zones) > 1:
            raise ValueError("`zones`: a RoCE network is in one zone, and so are the machines that have cards in it")
        if kind is not None and kind.daemon is None and self.gpudirect_daemon is not None:
            raise ValueError(f"`gpudirect_daemon`: {kind.name} has none")
        limit_s = SPOT_GRACE_S if self.spot else GRACE_S
        if self.grace_s > limit_s - 10:
            raise ValueError(f"`grace_s`: Google gives {limit_s} s, and the last checkpoint is brought away in them")
        if self.time_limit_minutes > LONGEST_MINUTES:
            raise ValueError("`time_limit_minutes`: Compute Engine keeps 120 days at most")
        if not self.bucket.startswith("gs://"):
            raise ValueError("`bucket` is one of Cloud Storage: gs://BUCKET/PREFIX")
        return self


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
        if self.spot and self.grace_s > VERTEX_SPOT_GRACE_S - 10:
            raise ValueError(
                f"`grace_s`: Google gives {VERTEX_SPOT_GRACE_S} s, and the last checkpoint is brought away in them"
            )
        if self.time_limit_minutes > VERTEX_LONGEST_MINUTES:
            raise ValueError("`time_limit_minutes`: 28 days at most")
        if not self.bucket.startswith("gs://"):
            raise ValueError("`bucket` is one of Cloud Storage: gs://BUCKET/PREFIX")
        return self
