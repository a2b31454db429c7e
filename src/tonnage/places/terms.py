"""What is written down of every place, whatever its kind; `patch` has the user's own words in what a place is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from tonnage.catalog.market import Platform, Purchase
from tonnage.values import dataclass
from tonnage.workload.file.fields import StrictModel

VERSION: Final = r"^\d+(\.\d+){0,3}$"
RELEASE: Final = r"^\d+\.\d+(\.\d+)?$"  # of CUDA: 12 alone is none


@dataclass(frozen=True, slots=True)
class CatalogMachine:
    """Which machines of the catalog those of a place are, and how they are bought there; None: any."""

    platform: Platform
    provider: str
    instance_type: str
    region: str | None
    purchase: Purchase | None


class PlaceTerms(StrictModel):
    """What is written down of every place, whatever its kind. Figures are those of one machine of the run."""

    cores: Annotated[int, Field(ge=1)]
    memory_gib: Annotated[float, Field(gt=0)]
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu: str | None = None  # the type, as the place calls it; None: any
    gpu_memory_gib: Annotated[float, Field(gt=0)] | None = None
    driver: Annotated[str, Field(pattern=VERSION)] | None = None  # of NVIDIA, on its machines: 580.65.06, or 580 alone
    cuda: Annotated[str, Field(pattern=RELEASE)] | None = None  # that PyTorch there, or in the image, is built with
    nccl: Annotated[str, Field(pattern=VERSION)] | None = None  # beside that PyTorch
    cuda_compat: bool = False  # the image has NVIDIA's package cuda-compat of its CUDA
    grace_s: Annotated[int, Field(ge=5, le=3600)] = 60  # to save in, before the machine is taken away
    python: str | None = None  # there; None: the one that runs this
    usd_per_hour: Annotated[float, Field(ge=0)] | None = None  # of one machine
    machine: Annotated[str, Field(pattern=r"^[^/\s]+/[^/\s]+$")] | None = (
        None  # PROVIDER/TYPE of the catalog: for plans
    )
    region: str | None = None  # of that machine, as the catalog names it; None: any
    purchase: Purchase | None = None  # how it is bought; None: any way
    like_this_machine: bool = False  # its machines are such as this one: its measurements predict runs there

    platform: ClassVar[Platform] = "vm"

    @property
    def catalog_machine(self) -> CatalogMachine | None:
        """What a plan calls one of its machines; None where that is not written down."""
        if self.machine is None:
            return None
        provider, _, instance_type = self.machine.partition("/")
        return CatalogMachine(self.platform, provider, instance_type, self.region, self.purchase)

    @property
    def possible_machines(self) -> tuple[CatalogMachine, ...]:
        """All that a run there may get."""
        return () if self.catalog_machine is None else (self.catalog_machine,)

    @property
    def where(self) -> str:
        """Which part of the place: a partition, a host, a context; empty where there is one only."""
        return ""

    @property
    def longest_job_h(self) -> float | None:
        """How long one job may take; None: as long as it needs."""
        return None

    @property
    def machines(self) -> int:
        """How many a run has."""
        return 1

    @property
    def run_usd_per_hour(self) -> float | None:
        """Of all machines of a run."""
        return None if self.usd_per_hour is None else self.usd_per_hour * self.machines

    def holds(self, path: str) -> bool:  # noqa: ARG002 - of places that have paths of their own
        """Whether a path is one of the place's own, which nothing here can look into."""
        return False


def merged(given: Any, patch: Any) -> Any:
    """A body with the patch put into it: as a JSON merge patch (RFC 7396), without its null, so that a place adds and
    replaces.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4})
    {'a': {'b': 3, 'c': 2}, 'd': 4}
    """
    if not isinstance(given, dict) or not isinstance(patch, Mapping):
        return patch
    made = dict(given)
    for key, value in patch.items():
        made[key] = merged(made[key], value) if key in made else value
    return made
