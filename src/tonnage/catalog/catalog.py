"""The catalog as one frozen value: what exists, where it is sold, for how much, what is often misnamed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from fnmatch import fnmatchcase

from tonnage.catalog.aliases import devices_called, fold_name
from tonnage.catalog.capacity import CapacityRule
from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.hardware import Accelerator, Cpu, Link
from tonnage.catalog.managed import BillingRule, ManagedPrices, Quarantined
from tonnage.catalog.market import InstanceType, Offer
from tonnage.catalog.services import ServicePrices
from tonnage.errors import (
    CatalogError,
    UnknownAccelerator,
    UnknownInstanceType,
    did_you_mean,
    nearest,
)
from tonnage.values import dataclass

InstanceKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who sells machines, and in which areas it has regions."""

    name: str
    title: str
    url: str
    areas: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The location of a region: `country` is ISO 3166 alpha-2, `area` is us, ca, sa, eu, uk, ch, me, af or ap.

    `eu` is the European Economic Area: the Union with Norway and Iceland.
    """

    provider: str
    name: str
    country: str
    area: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MistakenName:
    """A name that documents use and no provider sells, what is wrong with it, and what exists instead."""

    pattern: re.Pattern[str]
    provider: str
    what_is_wrong: str
    what_exists: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog:
    """Hardware tables and one dated snapshot of what is sold. Look-ups ignore case."""

    name: str
    built_on: date
    sources: tuple[str, ...]
    notes: str
    accelerators: tuple[Accelerator, ...]
    instance_types: tuple[InstanceType, ...]
    offers: tuple[Offer, ...]
    links: tuple[Link, ...]
    cpus: tuple[Cpu, ...]
    providers: tuple[Provider, ...]
    regions: tuple[Region, ...]
    mistaken_names: tuple[MistakenName, ...]
    managed: ManagedPrices = field(default_factory=ManagedPrices)
    quarantined: tuple[Quarantined, ...] = ()  # prices on record that are not believed
    left_out: tuple[str, ...] = ()  # rows of the snapshot's prices that cannot be used: which, and why
    billing: tuple[BillingRule, ...] = ()
    services: ServicePrices = field(default_factory=ServicePrices)
    capacity: tuple[CapacityRule, ...] = ()
    _accelerators: Mapping[str, Accelerator] = field(init=False, repr=False)
    _instances: Mapping[str, tuple[InstanceType, ...]] = field(init=False, repr=False)
    _offers: Mapping[InstanceKey, tuple[Offer, ...]] = field(init=False, repr=False)
    _links: Mapping[str, Link] = field(init=False, repr=False)
    _regions: Mapping[tuple[str, str], Region] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        instances: dict[str, list[InstanceType]] = {}
        for instance in self.instance_types:
            instances.setdefault(fold_name(instance.name), []).append(instance)
        offers: dict[InstanceKey, list[Offer]] = {}
        for offer in self.offers:
            offers.setdefault((offer.provider, offer.instance_type), []).append(offer)
        indexes = {
            "_accelerators": {fold_name(device.name): device for device in self.accelerators},
            "_instances": {name: tuple(found) for name, found in instances.items()},
            "_offers": {key: tuple(found) for key, found in offers.items()},
            "_links": {link.name: link for link in self.links},
            "_regions": {(region.provider, region.name): region for region in self.regions},
        }
        for name, index in indexes.items():
            object.__setattr__(self, name, index)

    def accelerator(self, name: str) -> Accelerator:
        """The device of that name or alias; raises UnknownAccelerator naming the nearest ones."""
        found = self._accelerators.get(fold_name(name))
        if found is not None:
            return found
        called = devices_called(name)
        if len(called) == 1 and fold_name(called[0]) in self._accelerators:
            return self._accelerators[fold_name(called[0])]
        known = [device.name for device in self.accelerators]
        prefix = fold_name(name) + "-"
        several = called or tuple(other for other in known if fold_name(other).startswith(prefix))
        if several:
            raise UnknownAccelerator(
                f"'{name}' names several accelerators: {', '.join(several)}",
                suggestions=several,
                hint=did_you_mean(several[:3], ""),
            )
        suggestions = _nearest_devices(name, known)
        raise UnknownAccelerator(
            f"no accelerator named '{name}' in the catalog of {self.name}",
            suggestions=suggestions,
            hint=did_you_mean(suggestions, "`tonnage catalog gpus` lists them all"),
        )

    def instance_type(self, name: str, provider: str | None = None) -> InstanceType:
        """The machine of that name; `Standard_` may be left out.

        Raises UnknownInstanceType, which for a well-known mistake says that it does not exist and what does.
        """
        for spelled in (name, f"Standard_{name}"):
            found = [
                instance
                for instance in self._instances.get(fold_name(_tidy(spelled)), ())
                if provider is None or instance.provider == provider.casefold()
            ]
            if len(found) == 1:
                return found[0]
            if found:
                sellers = ", ".join(instance.provider for instance in found)
                raise UnknownInstanceType(f"'{name}' is sold by {sellers}", hint="name the provider too")
        raise self._unknown_instance(name, provider)

    def offers_of(self, instance: InstanceType) -> tuple[Offer, ...]:
        """Every price of that machine, by region and purchase mode; empty when none is known."""
        return self._offers.get(instance.key, ())

    def offers_named(self, provider: str, instance_type: str) -> tuple[Offer, ...]:
        """The same by name; empty also for a machine that is not in the catalog."""
        return self._offers.get((provider, instance_type), ())

    def link(self, name: str) -> Link | None:
        """The link of that name; None for "" (one device, or not known). Raises CatalogError on others."""
        if not name:
            return None
        try:
            return self._links[name]
        except KeyError:
            raise CatalogError(f"no link named '{name}' in links.csv") from None

    def region(self, provider: str, name: str) -> Region | None:
        """The location of that region; None when the table does not have it."""
        return self._regions.get((provider, name))

    def billing_rule(self, provider: str, instance_type: str) -> BillingRule | None:
        """How time on that machine is rounded; None where no source says."""
        return next(
            (
                rule
                for rule in self.billing
                if rule.provider == provider and fnmatchcase(instance_type, rule.instance_pattern)
            ),
            None,
        )

    def cpu_of(self, instance: InstanceType) -> Cpu | None:
        """The processor of that machine's family, where one is known."""
        families = set(_families(instance))
        return next((cpu for cpu in self.cpus if families.intersection(cpu.instance_families)), None)

    def accelerators_matching(self, wanted: GpuFilter) -> tuple[Accelerator, ...]:
        """The devices a filter asks for, whatever the count; UnknownAccelerator when its name fits none."""
        found = tuple(device for device in self.accelerators if wanted.matches_device(device))
        if not found and wanted.name is not None:
            self.accelerator(wanted.name)
        return found

    @property
    def oldest_price(self) -> date | None:
        """The earliest read date among the dated offers."""
        return min((offer.read_on for offer in self.offers if offer.read_on is not None), default=None)

    def is_mistaken(self, name: str) -> bool:
        """Whether that name is a well-known mistake, which `instance_type` answers with what exists."""
        return self._mistake(name) is not None

    def _mistake(self, name: str) -> MistakenName | None:
        tidy = _tidy(name)
        return next((mistake for mistake in self.mistaken_names if mistake.pattern.fullmatch(tidy)), None)

    def _unknown_instance(self, name: str, provider: str | None) -> UnknownInstanceType:
        mistake = self._mistake(name)
        if mistake is not None:
            return UnknownInstanceType(
                f"'{name}' does not exist: {mistake.what_is_wrong}",
                suggestions=mistake.what_exists,
                hint=f"what exists: {', '.join(mistake.what_exists)}",
            )
        known = [i.name for i in self.instance_types if provider is None or i.provider == provider]
        suggestions = nearest(name, known)
        where = f"of {provider} " if provider else ""
        return UnknownInstanceType(
            f"no instance type named '{name}' {where}in the catalog of {self.name}",
            suggestions=suggestions,
            hint=did_you_mean(suggestions, "`tonnage catalog instances` lists them all"),
        )


def _nearest_devices(name: str, known: list[str]) -> tuple[str, ...]:
    """Devices whose name, or whose family (`H100` of `H100-SXM`), is most like `name`."""
    families: dict[str, list[str]] = {}
    for device in known:
        families.setdefault(device, []).append(device)
        families.setdefault(device.split("-")[0], []).append(device)
    near = [device for family in nearest(name, families) for device in families[family]]
    return tuple(dict.fromkeys(near))[:4]


def _tidy(name: str) -> str:
    """Spaces around `+` dropped, others as underscores: how names are spelled in the tables."""
    return re.sub(r"\s+", "_", re.sub(r"\s*\+\s*(\d+x?)?\s*", r"+\1", name.strip()))


def _families(instance: InstanceType) -> tuple[str, ...]:
    """The family names that cpus.csv uses for a machine."""
    name = instance.name
    if instance.provider == "aws":
        family = name.split(".")[0]
    elif instance.provider == "gcp":
        family = name.split("-")[0]
    elif instance.provider == "azure":
        return tuple(f"azure:{family}" for family in _azure_families(name))
    else:
        family = re.sub(r"\.\d+$", "", name)
    return (f"{instance.provider}:{family}",)


_AZURE_FAMILIES = (
    (r"Standard_NC\d+r?s_v3", "NCv3"),
    (r"Standard_NC\d+as_T4_v3", "NCasT4_v3"),
    (r"Standard_NC\d+ads_A100_v4", "NC_A100_v4"),
    (r"Standard_NC\d+adi?s_H100_v5", "NCads_H100_v5"),
    (r"Standard_ND40rs_v2", "NDv2"),
    (r"Standard_ND96asr_v4", "ND_A100_v4"),
    (r"Standard_ND96amsr_A100_v4", "NDm_A100_v4"),
    (r"Standard_ND96isr?_H100_v5", "ND_H100_v5"),
    (r"Standard_ND96isr?_H200_v5", "ND_H200_v5"),
    (r"Standard_ND96isr?_MI300X_v5", "ND_MI300X_v5"),
    (r"Standard_NV\d+adm?s_A10_v5", "NVadsA10_v5"),
    (r"Standard_NV\d+as_v4", "NVv4"),
    (r"Standard_NV\d+s_v3", "NVv3"),
)


def _azure_families(name: str) -> tuple[str, ...]:
    return tuple(family for pattern, family in _AZURE_FAMILIES if re.fullmatch(pattern, name))
