"""The cheaper machine that still holds what was measured, what it saves, what changes, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Literal

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Precision
from tonnage.catalog.market import InstanceType, Offer
from tonnage.errors import InputError
from tonnage.planning.plan import Plan
from tonnage.planning.planner import make_plan
from tonnage.rightsizing.holding import Broken, Differs, Unfit, broken_limits
from tonnage.rightsizing.remarks import (
    Difference,
    Doubt,
    FewHours,
    Headroom,
    Measure,
    NoGpuLink,
    NoRate,
    NotMeasured,
    OtherGpuKind,
    OtherGpus,
    OtherProvider,
    OtherRegion,
    SizedAndFits,
    Smaller,
)
from tonnage.rightsizing.usage import MachineUsage
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

Confidence = Literal["high", "medium", "low"]
HEADROOM = 0.2
SHORT_MONTH_H = 100.0  # fewer hours measured than this say little about peaks
NEXT_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where the search may go: the same region of the same provider, unless it is widened."""

    any_region: bool = False
    any_provider: bool = False
    headroom: float = HEADROOM

    def __post_init__(self) -> None:
        if not 0 <= self.headroom <= 5:  # NaN fails too
            raise InputError(f"a headroom of {self.headroom:g}", hint="a part of the peak, 0 to 5, such as 0.2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A cheaper machine that does not hold, and what it would break."""

    instance: InstanceType
    usd_per_hour: float
    broken: tuple[Broken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFinding:
    """What to do with one machine. `offer` None: keep it, or (`usd_per_hour_now` None) its price is not known."""

    usage: MachineUsage
    usd_per_hour_now: float | None
    price_read_on: date | None
    instance: InstanceType | None
    offer: Offer | None
    saving_usd_per_month: float
    changes: tuple[Difference, ...]
    cheaper_but: tuple[Rejected, ...]  # the cheapest first
    confidence: Confidence
    reasons: tuple[Doubt, ...]  # what lowers the confidence, or raises it

    @property
    def action(self) -> Literal["move", "keep", "no price"]:
        if self.usd_per_hour_now is None:
            return "no price"
        return "keep" if self.offer is None else "move"


def rightsize(usage: MachineUsage, catalog: Catalog, where: Where, workload: Workload | None = None) -> MachineFinding:
    """The cheapest machine that holds `usage` with the headroom; with a `workload` it must hold that too."""
    now = _price_now(usage, catalog)
    if now is None:
        return _finding(usage, None, None, None, (), workload, where, catalog)
    rejected: list[Rejected] = []
    for instance, offer in _cheaper(usage, catalog, where, now):
        broken = broken_limits(usage, instance, catalog, where.headroom)
        if not broken and workload is not None:
            broken = _broken_by(workload, offer, catalog)
        if not broken:
            return _finding(usage, now, instance, offer, tuple(rejected), workload, where, catalog)
        rejected.append(Rejected(instance=instance, usd_per_hour=float(offer.usd_per_instance_hour), broken=broken))
    return _finding(usage, now, None, None, tuple(rejected), workload, where, catalog)


def _price_now(usage: MachineUsage, catalog: Catalog) -> Offer | None:
    sold = [
        offer
        for offer in catalog.offers_of(usage.instance)
        if offer.purchase == usage.purchase and usage.region in (None, "", offer.region)
    ]
    return min(sold, key=lambda offer: (offer.usd_per_instance_hour, offer.region), default=None)


def _cheaper(usage: MachineUsage, catalog: Catalog, where: Where, now: Offer) -> Iterator[tuple[InstanceType, Offer]]:
    """Each cheaper machine at its lowest price in reach, the cheapest first; bought the same way."""
    lowest: dict[tuple[str, str], Offer] = {}
    for offer in catalog.offers:
        key = (offer.provider, offer.instance_type)
        if (
            offer.purchase != usage.purchase
            or key == usage.instance.key
            or offer.usd_per_instance_hour >= now.usd_per_instance_hour
            or not (where.any_provider or offer.provider == now.provider)
            or not (where.any_region or where.any_provider or offer.region == now.region)
        ):
            continue
        if key not in lowest or offer.usd_per_instance_hour < lowest[key].usd_per_instance_hour:
            lowest[key] = offer
    instances = {instance.key: instance for instance in catalog.instance_types}
    for offer in sorted(lowest.values(), key=lambda one: (one.usd_per_instance_hour, one.provider, one.instance_type)):
        yield instances[offer.provider, offer.instance_type], offer


def plan_alone(workload: Workload, offer: Offer, catalog: Catalog, *, machines: int) -> Plan:
    """The plan of a workload on one offer, at most so many machines, wherever its constraints would have it."""
    alone = replace(workload.constraints, providers=(), regions=(), gpus=(), max_nodes=machines)
    buy = replace(workload.buy, purchases=(offer.purchase,))
    return make_plan(replace(workload, constraints=alone, buy=buy), replace(catalog, offers=(offer,)))


def _broken_by(workload: Workload, offer: Offer, catalog: Catalog) -> tuple[Unfit, ...]:
    """Why the workload cannot run on one such machine; empty where it can."""
    plan = plan_alone(workload, offer, catalog, machines=1)
    if any(option.count == 1 for option in plan.options):
        return ()
    for refusal in plan.refused:
        if (refusal.provider, refusal.instance_type) == (offer.provider, offer.instance_type):
            return (Unfit(workload=workload.name, miss=refusal.miss),)
    return (Unfit(workload=workload.name, miss=None),)


def _finding(
    usage: MachineUsage,
    now: Offer | None,
    instance: InstanceType | None,
    offer: Offer | None,
    rejected: tuple[Rejected, ...],
    workload: Workload | None,
    where: Where,
    catalog: Catalog,
) -> MachineFinding:
    changes: tuple[Difference, ...] = ()
    if instance is not None and offer is not None and now is not None:
        changes = (*_changes(usage, now, instance, offer), *_lost_precisions(usage.instance, instance, catalog))
    confidence, reasons = _confidence(usage, instance, workload)
    saving = 0.0
    if now is not None and offer is not None:
        saving = float(now.usd_per_instance_hour - offer.usd_per_instance_hour) * usage.hours_per_month
    nearest = sorted(rejected, key=lambda one: (_otherness(one), one.usd_per_hour, one.instance.name))[:NEXT_SHOWN]
    return MachineFinding(
        usage=usage,
        usd_per_hour_now=None if now is None else float(now.usd_per_instance_hour),
        price_read_on=None if now is None else now.read_on,
        instance=instance,
        offer=offer,
        saving_usd_per_month=saving,
        changes=changes,
        cheaper_but=tuple(nearest),
        confidence=confidence,
        reasons=(*reasons, Headroom(headroom_fraction=where.headroom)),
    )


def _otherness(one: Rejected) -> int:
    """How many limits break; a machine of another kind (no GPU, another maker or processor) comes last."""
    return len(one.broken) + 100 * any(isinstance(broken, Differs) for broken in one.broken)


def _changes(usage: MachineUsage, now: Offer, new: InstanceType, offer: Offer) -> Iterator[Difference]:
    """What is different on the new machine beyond what was measured: each may matter."""
    old = usage.instance
    if offer.provider != now.provider:
        yield OtherProvider(provider=offer.provider)
    if offer.region != now.region:
        yield OtherRegion(region=offer.region or None)
    if (old.accelerator, old.accelerator_count) != (new.accelerator, new.accelerator_count):
        yield OtherGpus(
            gpu=new.accelerator,
            gpu_count=new.accelerator_count,
            gpu_now=old.accelerator,
            gpu_count_now=old.accelerator_count,
        )
    if old.scale_up and not new.scale_up and new.accelerator_count > 1:
        yield NoGpuLink(link=old.scale_up)
    had, has = old.network_gbit_per_s, new.network_gbit_per_s
    if had and (has is None or has < had):
        yield Smaller(of="network", available=has, now=had, unit="Gbit/s")
    had, has = old.local_ssd_gb, new.local_ssd_gb
    if had and (has is None or has < had):
        yield Smaller(of="local disk", available=has, now=had, unit="GB")


def _lost_precisions(old: InstanceType, new: InstanceType, catalog: Catalog) -> Iterator[NoRate]:
    if old.accelerator is None or new.accelerator is None:
        return
    had, has = catalog.accelerator(old.accelerator), catalog.accelerator(new.accelerator)
    precisions: tuple[Precision, ...] = ("bf16", "fp8")
    for precision in precisions:
        if had.dense_tflops(precision) is not None and has.dense_tflops(precision) is None:
            yield NoRate(precision=precision, gpu=has.name)


def _confidence(
    usage: MachineUsage, instance: InstanceType | None, workload: Workload | None
) -> tuple[Confidence, tuple[Doubt, ...]]:
    doubts: list[Doubt] = [NotMeasured(of=name) for name in unmeasured(usage)]
    if usage.hours_per_month < SHORT_MONTH_H:
        doubts.append(FewHours(hours_per_month=usage.hours_per_month))
    if instance is not None and instance.accelerator != usage.instance.accelerator:
        doubts.append(OtherGpuKind())
    level = len(doubts)
    if workload is not None and instance is not None:
        doubts.append(SizedAndFits(workload=workload.name))
        level -= 1
    words: tuple[Confidence, ...] = ("high", "medium", "low")
    return words[min(max(level, 0), 2)], tuple(doubts)


def unmeasured(usage: MachineUsage) -> tuple[Measure, ...]:
    """Names of what the row leaves empty."""
    gpu = usage.instance.accelerator is not None
    found: tuple[tuple[Measure, float | None, bool], ...] = (
        ("GPU memory", usage.gpu_memory_peak_gib, gpu),
        ("GPU utilisation", usage.gpu_utilisation, gpu),
        ("vCPU use", usage.vcpus_peak, True),
        ("memory use", usage.memory_peak_gib, True),
    )
    return tuple(name for name, value, counts in found if counts and value is None)
