"""Families of instance types, by the names that providers, price lists and quotas give them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from tonnage.catalog.market import InstanceType

_AZURE_SIZE = re.compile(r"Standard_(?P<letters>[A-Z]+)\d+(?P<features>[a-z]*)(?P<rest>(_\w+)?)")


def families_of(instance: InstanceType) -> tuple[str, ...]:
    """The names a family goes by, the narrowest first; () where a provider's names state none.

    AWS: the part before the dot (`p5en`); Google: the series and its variant (`a3-highgpu`, `a3`); Azure: the size
    without its number (`NDisr_H100_v5`), that without its features (`ND_H100_v5`), and its letters (`ND`).
    """
    name = instance.name
    if instance.provider == "aws":
        return (name.split(".")[0],)
    if instance.provider == "gcp":
        parts = name.split("-")
        return ("-".join(parts[:2]), parts[0]) if len(parts) > 2 else (parts[0],)
    if instance.provider == "azure" and (found := _AZURE_SIZE.fullmatch(name)) is not None:
        letters, features, rest = found["letters"], found["features"], found["rest"]
        return (f"{letters}{features}{rest}", f"{letters}{rest}", letters)
    return ()


def in_family(instance: InstanceType, named: str) -> bool:
    """Whether a machine is of a family, is the one named, or matches a pattern: `p5`, `p5.48xlarge`, `Standard_ND*`."""
    folded, name = named.casefold(), instance.name.casefold()
    if folded in (name, name.removeprefix("standard_")):
        return True
    if any(family.casefold() == folded for family in families_of(instance)):
        return True
    return "*" in folded and (fnmatchcase(name, folded) or fnmatchcase(name.removeprefix("standard_"), folded))


def known_families(instances: Iterable[InstanceType]) -> tuple[str, ...]:
    """Every family name, once."""
    return tuple(sorted({family for instance in instances for family in families_of(instance)}))
