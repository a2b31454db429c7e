"""Everything known about one machine or device, with sources and every price: `tonnage catalog show NAME`."""

from __future__ import annotations

from dataclasses import fields
from difflib import SequenceMatcher
from typing import Any

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Cpu, Link, Source
from tonnage.catalog.market import InstanceType, Offer
from tonnage.errors import UnknownAccelerator, UnknownInstanceType, UnknownName
from tonnage.values import dataclass

SCHEMA = "tonnage/catalog-show@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One name looked up. For a device, `instance` is None and `offers` are those of all machines with it."""

    catalog_name: str
    instance: InstanceType | None
    accelerator: Accelerator | None
    cpu: Cpu | None
    scale_up: Link | None
    scale_out: Link | None
    offers: tuple[Offer, ...]
    machines: tuple[InstanceType, ...]  # those that carry the device; empty for a machine

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source behind the figures, each once."""
        parts = (self.instance, self.accelerator, self.cpu, self.scale_up, self.scale_out)
        found = [part.source for part in parts if part is not None]
        return tuple(dict.fromkeys([*found, *(offer.source for offer in self.offers)]))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the keys that other programs read; unknown figures are null."""
        if self.instance is not None:
            body = _instance_keys(self.instance)
        else:
            body = {"gpu": self.accelerator.name if self.accelerator else None}
            body["instance_types"] = [f"{machine.provider} {machine.name}" for machine in self.machines]
        return {
            "schema": SCHEMA,
            "catalog": self.catalog_name,
            **body,
            "accelerator": _plain(self.accelerator),
            "cpu": _plain(self.cpu),
            "scale_up": _plain(self.scale_up),
            "scale_out": _plain(self.scale_out),
            "offers": [_offer_keys(offer, named=self.instance is None) for offer in self.offers],
        }


def describe(catalog: Catalog, name: str, *, provider: str | None = None) -> Description:
    """The machine or else the device of that name.

    Raises UnknownInstanceType (with what does exist, for a well-known mistake), or UnknownAccelerator when
    the name is nearer to a device.
    """
    try:
        return _describe_instance(catalog, catalog.instance_type(name, provider))
    except UnknownInstanceType as no_machine:
        try:
            return _describe_accelerator(catalog, catalog.accelerator(name))
        except UnknownAccelerator as no_device:
            if catalog.is_mistaken(name) or _likeness(name, no_machine) > _likeness(name, no_device):
                raise no_machine from None
            raise no_device from None


def _likeness(name: str, error: UnknownName) -> float:
    """How near the error's suggestions come to `name`, 0 to 1; 1 where a suggestion begins with it."""
    near = [suggestion.casefold() for suggestion in error.suggestions]
    wanted = name.casefold()
    if any(suggestion.startswith(wanted) for suggestion in near):
        return 1.0
    families = near + [suggestion.split("-")[0] for suggestion in near]
    return max((SequenceMatcher(None, wanted, other).ratio() for other in families), default=0.0)


def _describe_instance(catalog: Catalog, instance: InstanceType) -> Description:
    return Description(
        catalog_name=catalog.name,
        instance=instance,
        accelerator=catalog.accelerator(instance.accelerator) if instance.accelerator else None,
        cpu=catalog.cpu_of(instance),
        scale_up=catalog.link(instance.scale_up),
        scale_out=catalog.link(instance.scale_out),
        offers=catalog.offers_of(instance),
        machines=(),
    )


def _describe_accelerator(catalog: Catalog, accelerator: Accelerator) -> Description:
    machines = tuple(i for i in catalog.instance_types if i.accelerator == accelerator.name)
    return Description(
        catalog_name=catalog.name,
        instance=None,
        accelerator=accelerator,
        cpu=None,
        scale_up=None,
        scale_out=None,
        offers=tuple(offer for machine in machines for offer in catalog.offers_of(machine)),
        machines=machines,
    )


def _instance_keys(instance: InstanceType) -> dict[str, Any]:
    return {
        "provider": instance.provider,
        "instance_type": instance.name,
        "gpu": instance.accelerator,
        "gpu_count": _short(instance.accelerator_count),
        "gpu_memory_gib": _short(instance.gpu_memory_gib),
        "vcpus": _short(instance.vcpus),
        "memory_gib": _short(instance.memory_gib),
        "network_gbit_per_s": _short(instance.network_gbit_per_s),
        "network_source": instance.network_source,
        "local_ssd_gb": _short(instance.local_ssd_gb),
        "cpu_arch": instance.cpu_arch,
        "notes": instance.notes,
        "source": instance.source.text,
        "read_on": _day(instance.source),
    }


def _offer_keys(offer: Offer, *, named: bool) -> dict[str, Any]:
    machine = {"provider": offer.provider, "instance_type": offer.instance_type} if named else {}
    return {
        **machine,
        "region": offer.region,
        "purchase": offer.purchase,
        "usd_per_instance_hour": float(offer.usd_per_instance_hour),
        "read_on": _day(offer.source),
        "source": offer.source.text,
        "notes": offer.notes,
    }


def _plain(value: Accelerator | Cpu | Link | None) -> dict[str, Any] | None:
    """A hardware value's fields with the source taken apart."""
    if value is None:
        return None
    plain = {field.name: _short(getattr(value, field.name)) for field in fields(value) if field.name != "source"}
    return {**plain, "source": value.source.text, "read_on": _day(value.source)}


def _short(figure: Any) -> Any:
    """8.0 as 8, tuples as lists; all else as it is."""
    if isinstance(figure, float) and figure.is_integer():
        return int(figure)
    return list(figure) if isinstance(figure, tuple) else figure


def _day(source: Source) -> str | None:
    return None if source.read_on is None else source.read_on.isoformat()
