"""How many machines an account may run, as its owner states it or as a cloud's quota API answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.families import in_family, known_families
from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.market import InstanceType
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.values import dataclass

QuotaUnit = Literal["vcpus", "gpus", "machines"]
QuotaPurchase = Literal["on_demand", "spot", "any"]  # committed machines count as on demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A limit of an account over all machines it covers. `families` and `gpu`: both empty means every machine."""

    provider: str
    unit: QuotaUnit
    limit: float
    families: tuple[str, ...] = ()
    gpu: GpuFilter | None = None
    region: str = ""  # "": every region
    purchase: QuotaPurchase = "any"
    name: str = ""  # what the cloud calls it, or the file's entry

    def most(self, instance: InstanceType) -> float:
        """How many of a machine it leaves; infinity where the machine's size in this unit is not known.

        >>> from types import SimpleNamespace as N
        >>> Quota(provider="aws", unit="vcpus", limit=400).most(N(vcpus=192.0))
        2.0
        """
        each = self.size_of(instance)
        return self.limit // each if each else float("inf")

    def size_of(self, instance: InstanceType) -> float | None:
        """What one machine takes of it; None where that is not known."""
        if self.unit == "machines":
            return 1.0
        return instance.vcpus if self.unit == "vcpus" else instance.accelerator_count


def check_family(provider: str, family: str, catalog: Catalog) -> None:
    """InputError, with the nearest name, on a family that no machine of the provider is of."""
    own = [one for one in catalog.instance_types if one.provider == provider]
    if any(in_family(one, family) for one in own):
        return
    known = known_families(own)
    hint = did_you_mean(nearest(family, known, count=1), f"families of {provider}: {', '.join(known) or 'none known'}")
    raise InputError(f"no machine of {provider} is of the family '{family}'", hint=hint)


def tightest(quotas: Sequence[Quota], instance: InstanceType) -> tuple[float, Quota | None]:
    """The most machines that `quotas`, all of which cover the machine, leave; and the one that says so."""
    least: tuple[float, Quota | None] = (float("inf"), None)
    for quota in quotas:
        if quota.most(instance) < least[0]:
            least = (quota.most(instance), quota)
    return least
