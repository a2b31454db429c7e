"""Filter and sort what the catalog holds. Values in, tuples of values out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType, Offer
from tonnage.errors import InputError, did_you_mean, nearest

T = TypeVar("T")
PURCHASE_MODES = ("on_demand", "spot", "reserved_1y", "reserved_3y")


def filter_accelerators(
    catalog: Catalog, *, gpu: GpuFilter | None = None, sort_by: str = "name", descending: bool = False
) -> tuple[Accelerator, ...]:
    """Devices the filter asks for (its count does not matter), sorted by any field; unknown figures last."""
    found = catalog.accelerators if gpu is None else catalog.accelerators_matching(gpu)
    return _sorted(found, Accelerator, sort_by, descending)


def filter_instance_types(
    catalog: Catalog,
    *,
    gpu: GpuFilter | None = None,
    providers: Sequence[str] = (),
    cpu_arch: str | None = None,
    min_vcpus: float | None = None,
    min_memory_gib: float | None = None,
    sort_by: str = "name",
    descending: bool = False,
) -> tuple[InstanceType, ...]:
    """Machines that hold all conditions; one on a figure leaves out machines where it is not known."""
    sellers = _known_providers(catalog, providers)
    matches = _device_matcher(catalog, gpu)
    found = [
        instance
        for instance in catalog.instance_types
        if (not sellers or instance.provider in sellers)
        and (cpu_arch is None or instance.cpu_arch == cpu_arch)
        and _at_least(instance.vcpus, min_vcpus)
        and _at_least(instance.memory_gib, min_memory_gib)
        and matches(instance)
    ]
    return _sorted(found, InstanceType, sort_by, descending)


def filter_offers(
    catalog: Catalog,
    *,
    gpu: GpuFilter | None = None,
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    areas: Sequence[str] = (),
    purchases: Sequence[str] = (),
    min_vcpus: float | None = None,
    min_memory_gib: float | None = None,
    max_usd_per_instance_hour: float | None = None,
    max_usd_per_gpu_hour: float | None = None,
    sort_by: str = "usd_per_instance_hour",
    descending: bool = False,
) -> tuple[Offer, ...]:
    """Offers that hold all conditions; a region matches where one price holds everywhere.

    `sort_by` is a field of Offer, or `usd_per_gpu_hour` (machines without a device last).
    """
    for purchase in purchases:
        if purchase not in PURCHASE_MODES:
            raise InputError(f"'{purchase}' is not a purchase mode", hint=f"one of {', '.join(PURCHASE_MODES)}")
    machines = {
        instance.key: instance
        for instance in filter_instance_types(
            catalog, gpu=gpu, providers=providers, min_vcpus=min_vcpus, min_memory_gib=min_memory_gib
        )
    }
    in_region = _region_matcher(catalog, regions, areas)
    found = [
        offer
        for offer in catalog.offers
        if (offer.provider, offer.instance_type) in machines
        and (not purchases or offer.purchase in purchases)
        and in_region(offer)
        and _at_most(float(offer.usd_per_instance_hour), max_usd_per_instance_hour)
        and _at_most(usd_per_gpu_hour(catalog, offer), max_usd_per_gpu_hour)
    ]
    if sort_by == "usd_per_gpu_hour":
        return _by_key(found, lambda offer: usd_per_gpu_hour(catalog, offer), descending)
    return _sorted(found, Offer, sort_by, descending)


def usd_per_gpu_hour(catalog: Catalog, offer: Offer) -> float | None:
    """The price per device and hour; None for a machine without one."""
    machine = catalog.instance_type(offer.instance_type, offer.provider)
    if not machine.accelerator_count:
        return None
    return float(offer.usd_per_instance_hour) / machine.accelerator_count


def _device_matcher(catalog: Catalog, gpu: GpuFilter | None) -> Callable[[InstanceType], bool]:
    if gpu is None:
        return lambda _: True
    names = {device.name for device in catalog.accelerators_matching(gpu)}
    return lambda instance: instance.accelerator in names and gpu.matches_count(instance.accelerator_count)


def _region_matcher(catalog: Catalog, regions: Sequence[str], areas: Sequence[str]) -> Callable[[Offer], bool]:
    wanted = {region.casefold() for region in regions}
    known = {region.name.casefold() for region in catalog.regions} | {o.region.casefold() for o in catalog.offers}
    for region in regions:
        if region.casefold() not in known:
            hint = did_you_mean(nearest(region, sorted(known - {""})), "regions are spelled as the provider does")
            raise InputError(f"no region named '{region}' in the catalog", hint=hint)
    _check_areas(catalog, areas)
    by_provider = {provider.name: set(provider.areas) for provider in catalog.providers}

    def matches(offer: Offer) -> bool:
        if not offer.region:
            return not areas or bool(by_provider.get(offer.provider, set()).intersection(areas))
        if wanted and offer.region.casefold() not in wanted:
            return False
        place = catalog.region(offer.provider, offer.region)
        return not areas or (place is not None and (place.area in areas or place.country.casefold() in areas))

    return matches


def _check_areas(catalog: Catalog, areas: Sequence[str]) -> None:
    known = {region.area for region in catalog.regions} | {region.country.casefold() for region in catalog.regions}
    for area in areas:
        if area not in known:
            raise InputError(
                f"no area named '{area}'", hint="us, ca, sa, eu, uk, ch, me, af, ap, or a country such as de"
            )


def _known_providers(catalog: Catalog, providers: Sequence[str]) -> set[str]:
    known = [provider.name for provider in catalog.providers]
    known += sorted({instance.provider for instance in catalog.instance_types} - set(known))
    for provider in providers:
        if provider.casefold() not in known:
            hint = did_you_mean(nearest(provider, known), f"the catalog has {', '.join(known)}")
            raise InputError(f"no provider named '{provider}' in the catalog", hint=hint)
    return {provider.casefold() for provider in providers}


def _at_least(figure: float | None, low: float | None) -> bool:
    return low is None or (figure is not None and figure >= low)


def _at_most(figure: float | None, high: float | None) -> bool:
    return high is None or (figure is not None and figure <= high)


def _sort_key(asked: str, sortable: Sequence[str]) -> str:
    """The key that was asked for, by its name, an everyday word for it, or the beginning of one key."""
    words = {"price": "usd_per_instance_hour", "memory": "memory_gib", "bandwidth": "memory_bandwidth_gb_per_s"}
    named = words.get(asked, asked)
    begun = [name for name in sortable if name.startswith(named)]
    if named in sortable or len(begun) == 1:
        return named if named in sortable else begun[0]
    hint = did_you_mean(tuple(begun) or nearest(asked, sortable), f"one of {', '.join(sortable)}")
    raise InputError(f"cannot sort by '{asked}'", hint=hint)


def _sorted(values: Iterable[T], kind: type[T], sort_by: str, descending: bool) -> tuple[T, ...]:
    fields: Sequence[str] = kind.__slots__  # type: ignore[attr-defined]
    sortable = [name for name in fields if name not in ("source", "notes")]
    sort_by = _sort_key(sort_by, sortable)
    return _by_key(values, lambda value: getattr(value, sort_by), descending)


def _by_key(values: Iterable[T], key: Callable[[T], Any], descending: bool) -> tuple[T, ...]:
    """A stable sort with the unknown ones last in both directions."""
    known: list[T] = []
    unknown: list[T] = []
    for value in values:
        (unknown if key(value) is None else known).append(value)
    return (*sorted(known, key=key, reverse=descending), *unknown)
