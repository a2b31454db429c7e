"""Requests and limits of containers, claims of devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import is_qualified, quantity
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    duplicate,
    forbidden,
    invalid,
    many,
    not_found,
    part,
    required,
)

STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE: Final = "hugepages-"


def is_extended(name: str) -> bool:
    """A resource that a device plugin or an administrator brings, such as `nvidia.com/gpu`: counted whole."""
    return "/" in name and not name.split("/")[0].endswith("kubernetes.io") and not name.startswith("requests.")


def container_resources(given: Mapping[str, Any], path: str, claims: Collection[str]) -> Found:
    """Of one container. Devices are neither divided nor promised twice: limits, and requests equal to them."""
    limits, requests = part(given, "limits"), part(given, "requests")
    yield from _claims(many(given, "claims"), path, claims)
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount(name, amount, f"{path}.{kind}[{name}]")
    for name, amount in requests.items():
        yield from _against_limit(name, amount, limits, path)
    huge = [name for name in (*limits, *requests) if name.startswith(HUGE)]
    if huge and not ({"cpu", "memory"} & {*limits, *requests}):
        yield forbidden(path, "HugePages require cpu or memory")


def _claims(given: list[dict[str, Any]], path: str, claims: Collection[str]) -> Found:
    seen = []
    for place, one in enumerate(given):
        at, name = f"{path}.claims[{place}]", one.get("name")
        if not name:
            yield required(f"{at}.name")
        elif name not in claims:
            yield not_found(at, f"'{name}' is none of the pod's resourceClaims")
        mark = (name, one.get("request"))
        if mark in seen:
            yield duplicate(at, name)
        seen.append(mark)


def _amount(name: str, amount: object, field: str) -> Found:
    if not is_qualified(name):
        yield invalid(field, f"'{name}' is no name of a resource")
    elif "/" not in name and name not in STANDARD and not name.startswith(HUGE):
        yield invalid(field, f"'{name}' is no standard resource of containers; others have a prefix, nvidia.com/gpu")
    value = quantity(amount)
    if value < 0:
        yield invalid(field, "must be greater than or equal to 0")
    if is_extended(name) and value % 1:
        yield invalid(field, "must be an integer")


def _against_limit(name: str, amount: object, limits: Mapping[str, Any], path: str) -> Found:
    value = quantity(amount)
    whole = is_extended(name) or name.startswith(HUGE)
    if name not in limits:
        if whole:
            yield required(f"{path}.limits", f"a limit of {name} must be set: it cannot be promised twice")
        return
    limit: Decimal = quantity(limits[name])
    if whole and value != limit:
        yield invalid(f"{path}.requests", f"{amount} must be equal to the {name} limit of {limits[name]}")
    elif value > limit:
        yield invalid(f"{path}.requests", f"{amount} must be less than or equal to the {name} limit of {limits[name]}")
