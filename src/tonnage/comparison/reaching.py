"""What of the catalog an alternative may use for some work, and why nothing of it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import ClassVar, Final, Literal

from tonnage.catalog import Catalog, parse_gpu_filter
from tonnage.comparison.owned import with_owned
from tonnage.comparison.request import Alternative
from tonnage.planning.plan import MachineOption, Option, Plan, Relaxation
from tonnage.planning.reasons import Reason
from tonnage.planning.reasons.changes import LeaveOut
from tonnage.planning.reasons.misses import Miss
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class NotComputed(Reason):
    """The profile says that the alternative's cost is not computed for this work. `why`: its own words."""

    kind: ClassVar[str] = "not computed"
    of: str | None  # the kind of work; None: any
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingInCommon(Reason):
    """What the workload allows and what the alternative has are apart."""

    kind: ClassVar[str] = "nothing in common"
    of: Literal["providers", "platforms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsWithout(Reason):
    """Nothing fits; one constraint less would do."""

    kind: ClassVar[str] = "fits without"
    relaxation: Relaxation


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFewOwned(Reason):
    """The machines that are owned do not do the work."""

    kind: ClassVar[str] = "too few owned"
    machines: int
    like: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorsUnmeasured(Reason):
    """All machines there are without GPUs, and no rate of their processors for inference is on record."""

    kind: ClassVar[str] = "processors unmeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestFails(Reason):
    """Nothing fits; the machine nearest to it breaks this limit."""

    kind: ClassVar[str] = "nearest fails"
    provider: str
    instance_type: str
    miss: Miss


@dataclass(frozen=True, slots=True, kw_only=True)
class NoModelNamed(Reason):
    """No model of the price list of tokens is named for this work."""

    kind: ClassVar[str] = "no model named"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingPriced(Reason):
    """The catalog has no price there for this kind of work."""

    kind: ClassVar[str] = "nothing priced"
    of: str


WhyNot = (
    NotComputed
    | NothingInCommon
    | FitsWithout
    | TooFewOwned
    | ProcessorsUnmeasured
    | NearestFails
    | NoModelNamed
    | NothingPriced
)
OWN_KEYS: Final = ("platforms", "providers", "gpus")  # leaving these would leave what is compared


def enough_machines(plan: Plan, alternative: Alternative) -> Plan:
    """Without the options that take more machines than are owned."""
    if alternative.owned is None:
        return plan
    most = alternative.owned.machines
    return replace(plan, options=tuple(one for one in plan.options if one.count <= most))


def narrow_to(
    alternative: Alternative, workload: Workload, catalog: Catalog, file: str | None
) -> tuple[Workload, Catalog] | WhyNot:
    """The workload and catalog as far as the alternative reaches, or why it cannot do it."""
    scope, limits = alternative.profile.scope, workload.constraints
    if alternative.owned is not None:
        market = with_owned(catalog, alternative.owned, dedicated=workload.is_service, file=file)
        limits = replace(limits, providers=(), regions=(), platforms=("vm",))
        return replace(workload, constraints=limits, team=replace(workload.team, hourly_usd=None)), market
    if not scope.computed:
        return NotComputed(of=None, why=scope.why_not)
    if scope.kinds and workload.kind not in scope.kinds:
        return NotComputed(of=workload.kind, why=scope.why_not)
    own = _both(scope.providers, alternative.providers)
    providers = None if own is None else _both(own, limits.providers)
    if providers is None:
        return NothingInCommon(of="providers")
    gpus = tuple(parse_gpu_filter(text) for text in alternative.gpus) or limits.gpus
    platforms = _both(scope.platforms, limits.platforms)
    if platforms is None:
        return NothingInCommon(of="platforms")
    limits = replace(limits, providers=providers, gpus=gpus, platforms=platforms)  # type: ignore[arg-type]
    job = workload.job
    if isinstance(job, TabularJob) and scope.tabular_method is not None:
        job = replace(job, method=scope.tabular_method)
    team = replace(workload.team, hourly_usd=None)  # people are counted once, by the comparison
    return replace(workload, constraints=limits, job=job, team=team), _with_machines(catalog, alternative.machines)


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


def why_none(plan: Plan, alternative: Alternative) -> WhyNot:
    """The change that would let something fit, other than leaving what is compared; else the nearest miss within it."""
    for relaxation in plan.relaxations:
        change = relaxation.change
        if not (isinstance(change, LeaveOut) and change.key in OWN_KEYS):
            return FitsWithout(relaxation=relaxation)
    scope = alternative.profile.scope.platforms
    if alternative.owned is not None:
        return TooFewOwned(machines=alternative.owned.machines, like=alternative.owned.like)
    if plan.refused and all(one.gpu is None for one in plan.refused) and plan.kind in ("serve", "batch"):
        return ProcessorsUnmeasured()
    within = [one for one in plan.refused if one.binding not in ("platform", "provider", "gpu", "purchase")
              and (not scope or one.platform in scope)]  # fmt: skip
    if within:
        miss = min(within, key=lambda one: (one.shortfall, one.provider, one.instance_type))
        return NearestFails(provider=miss.provider, instance_type=miss.instance_type, miss=miss.miss)
    if "bedrock" in scope:
        return NoModelNamed()
    return NothingPriced(of=plan.kind)


def only_of(catalog: Catalog, options: Sequence[Option]) -> Catalog:
    """The catalog with the offers alone that some of `options` use, so that planning again is quick."""
    machines = [one for one in options if isinstance(one, MachineOption)]
    keys = {(one.provider, one.instance_type, one.region, one.purchase) for one in machines}
    if not keys:
        return catalog
    names = {key[:2] for key in keys}
    return replace(
        catalog,
        offers=tuple(
            one for one in catalog.offers if (one.provider, one.instance_type, one.region, one.purchase) in keys
        ),
        instance_types=tuple(one for one in catalog.instance_types if (one.provider, one.name) in names),
    )
