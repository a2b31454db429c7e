"""Services on slices of a card (MIG): which slice holds one, how many a card holds, and what that saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.catalog.slices import MigSlice, as_device, slices_of
from tonnage.optimisations.outcomes import Unpredicted
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePacking:
    """One kind of slice for a service. `rate_per_s`: what one slice carries inside the promise, or why it does not.

    `services`: of this busy rate that a card holds, one a slice (0: a slice carries less). `cards`: for one such
    service, by slices of this kind alone; `saved_fraction`: of cards for as many services as one card holds, beside a
    whole card each.
    """

    slice: MigSlice
    rate_per_s: Figure | Unpredicted
    services: int = 0
    cards: int | None = None
    saved_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPacking:
    """A card whole and by its slices. `best`: the kind whose card holds the most services."""

    card: str
    asked_per_s: float
    whole: Figure | Unpredicted
    whole_cards: int | None
    slices: tuple[SlicePacking, ...]

    @property
    def best(self) -> SlicePacking | None:
        holding = [one for one in self.slices if one.services > 1]
        return max(holding, key=lambda one: (one.services, -one.slice.memory_gib)) if holding else None


def pack_card(
    card: Accelerator, asked_per_s: float, catalog: Catalog, rate: Callable[[Catalog, str], Figure | Unpredicted]
) -> CardPacking | None:
    """The service on each kind of slice; None where the card has none. `rate`: of one device of a catalog, by name."""
    kinds = slices_of(card.name)
    if not kinds:
        return None
    whole = rate(catalog, card.name)
    whole_cards = None if isinstance(whole, Unpredicted) else ceil(asked_per_s / whole.value)
    packed = tuple(_packed(card, one, asked_per_s, catalog, rate) for one in kinds)
    return CardPacking(card=card.name, asked_per_s=asked_per_s, whole=whole, whole_cards=whole_cards, slices=packed)


def _packed(
    card: Accelerator, one: MigSlice, asked_per_s: float, catalog: Catalog,
    rate: Callable[[Catalog, str], Figure | Unpredicted],
) -> SlicePacking:  # fmt: skip
    found = rate(with_slice(catalog, card, one), as_device(card, one).name)
    if isinstance(found, Unpredicted):
        return SlicePacking(slice=one, rate_per_s=found)
    holds = found.value >= asked_per_s
    cards = ceil(ceil(asked_per_s / found.value) / one.instances)
    return SlicePacking(
        slice=one, rate_per_s=found, services=one.instances if holds else 0, cards=cards,
        saved_fraction=1.0 - 1.0 / one.instances if holds else None,
    )  # fmt: skip


def with_slice(catalog: Catalog, card: Accelerator, one: MigSlice) -> Catalog:
    """The catalog with the slice as a device, and machines that have one of it: those of the card, their host shared
    out among the slices of all their cards."""
    device = as_device(card, one)
    machines = tuple(_with_one(each, device, one) for each in catalog.instance_types if each.accelerator == card.name)
    return replace(catalog, accelerators=(*catalog.accelerators, device), instance_types=machines, offers=())


def _with_one(machine: InstanceType, device: Accelerator, one: MigSlice) -> InstanceType:
    shared = machine.accelerator_count * one.instances
    return replace(
        machine, accelerator=device.name, accelerator_count=1.0, gpu_memory_gib=one.memory_gib,
        vcpus=None if machine.vcpus is None else machine.vcpus / shared,
        memory_gib=None if machine.memory_gib is None else machine.memory_gib / shared, scale_up="", scale_out="",
    )  # fmt: skip
