"""What may break an option's promise: which risks one option has."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.catalog.capacity import CapacityRule
from tonnage.catalog.expected_prices import PriceDoubt
from tonnage.catalog.market import InstanceType, is_community
from tonnage.planning.layouts.hosts import VCPUS_PER_GPU_COMFORTABLE, takes_many
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.risks import (
    ArmHostRisk,
    CapacityRisk,
    CommitmentRisk,
    CommunityHostRisk,
    DeadlineRisk,
    DriverRisk,
    EstimatedFeeRisk,
    FewVcpusRisk,
    HostLimitRisk,
    HostMemoryRisk,
    LatencyRisk,
    MemoryRisk,
    OddPremiumRisk,
    OddPriceRisk,
    OldPriceRisk,
    PriceRisk,
    Promise,
    Risk,
    RocmRisk,
    SpotRisk,
    UndatedPriceRisk,
    UnknownHostRisk,
    UnmeasuredRisk,
)
from tonnage.pricing.deals import Deal
from tonnage.pricing.usage import TERM_HOURS
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import Workload

SECONDS_PER_DAY = 86_400.0
PRICE_AGE_DAYS = 180  # older prices are not relied on by default: judgement


def risks_of(
    workload: Workload,
    deal: Deal,
    instance: InstanceType,
    run: RunDetail,
    time: Figure | None,
    max_age_days: int,
    doubt: PriceDoubt | None,
    *,
    count: int = 1,
    vendor: str | None = None,
    capacity: CapacityRule | None = None,
) -> tuple[Risk, ...]:
    """Risks of one option, the gravest first. `doubt`: what the catalog holds of its price, if it is odd; `vendor`: of
    the devices; `capacity`: why the machine may not be had at once."""
    found = [
        *_promise_risks(workload, run, time),
        *_memory_risks(run),
        *_unmeasured_risks(run),
        *([OddPriceRisk(doubt=doubt)] if doubt else []),
        *price_risks(workload, deal, max_age_days),
        *_purchase_risks(workload, deal, count),
        *_capacity_risks(workload, deal, time, capacity),
        *_host_risks(instance, run, count),
        *_build_risks(instance, vendor),
    ]
    return tuple(found)


def _promise_risks(workload: Workload, run: RunDetail, time: Figure | None) -> Iterator[Risk]:
    deadline_s = workload.constraints.deadline_s
    if deadline_s is not None and time is not None and time.high > deadline_s:
        yield DeadlineRisk(reaches_s=time.high, deadline_s=deadline_s)
    reached: dict[Promise, Figure | None] = {
        "latency": run.latency_p95_s, "ttft": run.ttft_p95_s, "tpot": run.tpot_p95_s,
    }  # fmt: skip
    for promise, promised_s in workload.job.promises.items():
        p95_s = reached[promise]
        if p95_s is not None and p95_s.high > promised_s:
            yield LatencyRisk(promise=promise, reaches_s=p95_s.high, promised_s=promised_s)


def _memory_risks(run: RunDetail) -> Iterator[Risk]:
    if run.memory_gib.high > run.memory_available_gib:
        yield MemoryRisk(reaches_gib=run.memory_gib.high, available_gib=run.memory_available_gib)


def _unmeasured_risks(run: RunDetail) -> Iterator[Risk]:
    """Which of device, precision and program no measured row supports."""
    unknown = tuple(dict.fromkeys(name for one in run.intervals if one.of != "memory" for name in one.unknown))
    if unknown:
        yield UnmeasuredRisk(names=unknown)


def price_risks(workload: Workload, deal: Deal, max_age_days: int) -> Iterator[PriceRisk]:
    """Why one would not rely on a deal's price, but for how far it is from its like."""
    offer, fee = deal.offer, deal.fee
    if offer.supposed:
        return
    if offer.read_on is None:
        yield UndatedPriceRisk()
    elif (age := (workload.as_of.date() - offer.read_on).days) > max_age_days:
        yield OldPriceRisk(age_days=age)
    if is_community(offer.instance_type):
        yield CommunityHostRisk()
    if fee is None:
        return
    if fee.doubt is not None:
        yield OddPremiumRisk(platform=deal.platform, doubt=fee.doubt)
    if fee.estimate is not None:
        guess = fee.estimate
        yield EstimatedFeeRisk(
            platform=deal.platform,
            parts=guess.parts,
            line=fee.what,
            usd_per_instance_hour=guess.usd_per_instance_hour,
            low_usd_per_instance_hour=guess.low_usd_per_instance_hour,
            high_usd_per_instance_hour=guess.high_usd_per_instance_hour,
        )
    if fee.read_on is None:
        yield UndatedPriceRisk(platform=deal.platform)
    elif (age := (workload.as_of.date() - fee.read_on).days) > max_age_days:
        yield OldPriceRisk(age_days=age, platform=deal.platform)


def _purchase_risks(workload: Workload, deal: Deal, count: int) -> Iterator[Risk]:
    """What a way to buy may bring, and what a commitment binds one to."""
    term = TERM_HOURS.get(deal.offer.purchase)
    if deal.offer.purchase == "spot":
        yield SpotRisk()
    if term is not None and not workload.buy.reserved_owned:
        yield CommitmentRisk(years=term / 8760, usd=term * count * float(deal.offer.usd_per_instance_hour))
    if deal.platform == "databricks" and count > 1 and not workload.is_service:
        yield DriverRisk()


def _capacity_risks(workload: Workload, deal: Deal, time: Figure | None, rule: CapacityRule | None) -> Iterator[Risk]:
    """A wait before the machine is there. Of a quota only where none is stated and the deadline does not leave it."""
    if rule is None or deal.platform != "vm":
        return
    if rule.way == "quota":
        deadline_s, lead_s = workload.constraints.deadline_s, (rule.lead_days or 0.0) * SECONDS_PER_DAY
        stated = any(quota.provider == rule.provider for quota in workload.constraints.quotas)
        if stated or deadline_s is None or time is None or time.value + lead_s <= deadline_s:
            return
    yield CapacityRisk(way=rule.way, lead_days=rule.lead_days, longest_days=rule.longest_days, source=rule.source.text)


def _build_risks(instance: InstanceType, vendor: str | None) -> Iterator[Risk]:
    """What must be built again to run there."""
    if instance.cpu_arch == "arm64":
        yield ArmHostRisk()
    if instance.accelerator is not None and vendor == "AMD":
        yield RocmRisk(device=instance.accelerator)


def _host_risks(instance: InstanceType, run: RunDetail, count: int) -> Iterator[Risk]:
    gpus, host = instance.accelerator_count, run.host
    if host is not None and host.items_per_s is None:
        if takes_many(host.needed_vcpus / count, gpus):
            yield UnknownHostRisk(stage=host.stage, needed_vcpus=host.needed_vcpus / count)
    elif host is not None and host.binds and host.items_per_s is not None:
        yield HostLimitRisk(
            stage=host.stage, vcpus=host.vcpus, items_per_s=host.items_per_s.value, devices_per_s=host.devices_per_s
        )
    if host is None and gpus and instance.vcpus is not None and instance.vcpus / gpus < VCPUS_PER_GPU_COMFORTABLE:
        yield FewVcpusRisk(vcpus_per_gpu=instance.vcpus / gpus)
    weights = dict(run.memory_parts_gib).get("weights", 0.0)
    if instance.memory_gib is not None and weights > instance.memory_gib:
        yield HostMemoryRisk(weights_gib=weights, memory_gib=instance.memory_gib)
