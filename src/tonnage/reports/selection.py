"""Which candidates of a plan a name means: an instance type, a GPU, a provider, a platform or a token model."""

from __future__ import annotations

from tonnage.catalog import Catalog, describe, parse_gpu_filter
from tonnage.catalog.aliases import fold_name
from tonnage.errors import InputError
from tonnage.planning.offers.choices import PLATFORMS
from tonnage.planning.plan import Option, Plan, Refusal
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was asked about, and what of the plan it is."""

    name: str
    kind: str  # "provider", "instance type", "GPU", "platform" or "token model"
    options: tuple[Option, ...]
    refused: tuple[Refusal, ...]


def select_candidates(plan: Plan, catalog: Catalog, name: str) -> Selection:
    """The options and refusals `name` means.

    Raises UnknownName (with the nearest names, or what does exist) when the catalog knows no such thing.
    """
    folded = fold_name(name)
    if folded in {provider.name for provider in catalog.providers}:
        return _selection(plan, folded, "provider", providers={folded})
    if folded in PLATFORMS:
        return _selection(plan, folded, "platform", platform=folded)
    priced = {one for one in catalog.managed.token_models if fold_name(one) == folded}
    if priced:
        return _selection(plan, min(priced), "token model", model=min(priced))
    machines = {
        instance.key
        for instance in catalog.instance_types
        if fold_name(instance.name) in (folded, fold_name(f"Standard_{name}"))
    }
    if machines:
        return _selection(plan, sorted(key[1] for key in machines)[0], "instance type", machines=machines)
    devices = _devices(catalog, name)
    if devices:
        return _selection(plan, " or ".join(sorted(devices)), "GPU", devices=devices)
    found = describe(catalog, name)  # raises, with the nearest names, unless it is another spelling
    if found.instance is not None:
        return _selection(plan, found.instance.name, "instance type", machines={found.instance.key})
    assert found.accelerator is not None
    return _selection(plan, found.accelerator.name, "GPU", devices={found.accelerator.name})


def _devices(catalog: Catalog, name: str) -> set[str]:
    try:
        return {device.name for device in catalog.accelerators_matching(parse_gpu_filter(name))}
    except InputError:  # no GPU, or not even written like one
        return set()


def _selection(
    plan: Plan,
    name: str,
    kind: str,
    *,
    providers: set[str] | None = None,
    machines: set[tuple[str, str]] | None = None,
    devices: set[str] | None = None,
    platform: str | None = None,
    model: str | None = None,
) -> Selection:
    def meant(candidate: Option | Refusal) -> bool:
        if platform is not None:
            return candidate.platform == platform
        if model is not None:
            return candidate.instance_type == model
        if providers is not None:
            return candidate.provider in providers
        if machines is not None:
            return (candidate.provider, candidate.instance_type) in machines
        return candidate.gpu in (devices or set())

    return Selection(
        name=name,
        kind=kind,
        options=tuple(option for option in plan.options if meant(option)),
        refused=tuple(refusal for refusal in plan.refused if meant(refusal)),
    )
