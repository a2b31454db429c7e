"""What of the catalog a thing may use for some work, and why nothing of it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from tonnage.catalog import Catalog, parse_gpu_filter
from tonnage.comparison.owned import with_owned
from tonnage.comparison.request import Thing
from tonnage.planning import Option, Plan
from tonnage.workload.jobs import TabularJob, Workload

CPU_UNKNOWN: Final = (
    "not known: no rate of these processors for inference is on record; `tonnage calibrate --local` on such a machine "
    "measures one"
)


def enough_machines(plan: Plan, thing: Thing) -> Plan:
    """Without the options that take more machines than are owned."""
    if thing.owned is None:
        return plan
    most = thing.owned.machines
    return replace(plan, options=tuple(one for one in plan.options if one.count <= most))


def narrow_to(thing: Thing, workload: Workload, catalog: Catalog, file: str | None) -> tuple[Workload, Catalog] | str:
    """The workload and catalog as far as the thing reaches, or why it cannot do it."""
    reach, limits = thing.profile.reach, workload.constraints
    if thing.owned is not None:
        market = with_owned(catalog, thing.owned, dedicated=workload.kind == "serve", file=file)
        limits = replace(limits, providers=(), regions=(), platforms=("vm",))
        return replace(workload, constraints=limits, team=replace(workload.team, hourly_usd=None)), market
    if not reach.computed:
        return f"not computed: {reach.why_not}"
    if reach.kinds and workload.kind not in reach.kinds:
        return f"cannot be computed for kind {workload.kind}: {reach.why_not or 'outside what it does'}"
    own = _both(reach.providers, thing.providers)
    providers = None if own is None else _both(own, limits.providers)
    if providers is None:
        return "the workload's providers and its own have none in common"
    gpus = tuple(parse_gpu_filter(text) for text in thing.gpus) or limits.gpus
    platforms = _both(reach.platforms, limits.platforms)
    if platforms is None:
        return "the workload's platforms and its own have none in common"
    limits = replace(limits, providers=providers, gpus=gpus, platforms=platforms)  # type: ignore[arg-type]
    job = workload.job
    if isinstance(job, TabularJob) and reach.tabular_method is not None:
        job = replace(job, method=reach.tabular_method)  # type: ignore[arg-type]
    team = replace(workload.team, hourly_usd=None)  # people are counted once, by the comparison
    return replace(workload, constraints=limits, job=job, team=team), _with_machines(catalog, thing.machines)


def _both(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names in both, where an empty tuple is no limit; None where nothing is left."""
    if not left or not right:
        return left or right
    return tuple(name for name in left if name in right) or None


def _with_machines(catalog: Catalog, patterns: tuple[str, ...]) -> Catalog:
    if not patterns:
        return catalog
    return replace(
        catalog,
        offers=tuple(one for one in catalog.offers if _matches(one.instance_type, patterns)),
        instance_types=tuple(one for one in catalog.instance_types if _matches(one.name, patterns)),
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def why_none(plan: Plan, thing: Thing) -> str:
    """The change that would let something fit, other than leaving what is compared; else the nearest miss within it."""
    for relaxation in plan.relaxations:
        if not any(f"constraints.{own}" in relaxation for own in ("platforms", "providers", "gpus")):
            return f"nothing fits: {relaxation}"
    reach = thing.profile.reach.platforms
    if thing.owned is not None:
        most = thing.owned.machines
        return f"nothing fits on {most} owned machine{'' if most == 1 else 's'} like {thing.owned.like}"
    if plan.refused and all(one.gpu is None for one in plan.refused) and plan.kind in ("serve", "batch"):
        return CPU_UNKNOWN
    within = [one for one in plan.refused if one.binding not in ("platform", "provider", "gpu", "purchase")
              and (not reach or one.platform in reach)]  # fmt: skip
    if within:
        miss = min(within, key=lambda one: (one.shortfall, one.provider, one.instance_type))
        return f"nothing fits: {miss.provider} {miss.instance_type} needs {miss.needs}, has {miss.has}"
    if "bedrock" in reach:
        return "no model of its price list is named for this work (buy.token_models names those that would do)"
    return f"the catalog has no price there for work of kind {plan.kind}"


def only_of(catalog: Catalog, options: Sequence[Option]) -> Catalog:
    """The catalog with the offers alone that some of `options` use, so that planning again is quick."""
    keys = {(one.provider, one.instance_type, one.region, one.purchase) for one in options if one.run.machines}
    if len(keys) == 0:
        return catalog
    names = {key[:2] for key in keys}
    return replace(
        catalog,
        offers=tuple(
            one for one in catalog.offers if (one.provider, one.instance_type, one.region, one.purchase) in keys
        ),
        instance_types=tuple(one for one in catalog.instance_types if (one.provider, one.name) in names),
    )
