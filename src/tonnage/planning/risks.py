"""What may break an option's promise, said beside it."""

from __future__ import annotations

from tonnage.catalog.expected_prices import Expectation
from tonnage.catalog.market import InstanceType
from tonnage.planning.plan import RunDetail
from tonnage.pricing.deals import Deal
from tonnage.pricing.usage import TERM_HOURS
from tonnage.sizing.estimates import Figure
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.jobs import ServeJob, Workload

VCPUS_PER_GPU_COMFORTABLE = 4.0  # input workers per device that keep a fine-tune fed: judgement


def risks_of(
    workload: Workload,
    deal: Deal,
    instance: InstanceType,
    run: RunDetail,
    time: Figure | None,
    max_age_days: int,
    doubt: tuple[str, Expectation] | None,
    *,
    count: int = 1,
) -> tuple[str, ...]:
    """Risks of one option, the gravest first. `doubt`: what the catalog holds of its price, if it is odd."""
    found = [
        *_promise_risks(workload, run, time),
        *_memory_risks(run),
        *_unmeasured_risks(run),
        *([f"doubtful price: {doubt[0]}"] if doubt else []),
        *_market_risks(workload, deal, max_age_days),
        *_platform_risks(workload, deal, max_age_days, count),
        *_host_risks(instance, run),
    ]
    return tuple(found)


def _promise_risks(workload: Workload, run: RunDetail, time: Figure | None) -> list[str]:
    out = []
    deadline = workload.constraints.deadline_s
    if deadline is not None and time is not None and time.high > deadline:
        out.append(
            f"may miss the deadline: the 80 % interval reaches {time.high / SECONDS_PER_HOUR:.3g} h of "
            f"{deadline / SECONDS_PER_HOUR:.3g} h"
        )
    job = workload.job
    if not isinstance(job, ServeJob):
        return out
    for name, promised, p95 in (
        ("p95", job.p95_latency_s, run.latency_p95_s),
        ("p95 TTFT", job.p95_ttft_s, run.ttft_p95_s),
        ("p95 per-token", job.p95_tpot_s, run.tpot_p95_s),
    ):
        if promised is not None and p95 is not None and p95.high > promised:
            out.append(
                f"may break the {name} promise: the 80 % interval reaches {p95.high * 1e3:.0f} ms of "
                f"{promised * 1e3:.0f} ms"
            )
    return out


def _memory_risks(run: RunDetail) -> list[str]:
    if run.memory_gib.high <= run.memory_available_gib:
        return []
    return [
        f"may run out of memory: the 80 % interval reaches {run.memory_gib.high:.1f} GiB of "
        f"{run.memory_available_gib:.1f} GiB"
    ]


def _unmeasured_risks(run: RunDetail) -> list[str]:
    """What of device, precision and program no measured row stands behind."""
    unknown = list(dict.fromkeys(name for one in run.intervals if one.of != "memory" for name in one.unknown))
    return [f"no measured row of {', '.join(unknown)}: predicted from published figures"] if unknown else []


def _market_risks(workload: Workload, deal: Deal, max_age_days: int) -> list[str]:
    offer, out = deal.offer, []
    if offer.purchase == "spot":
        out.append("spot: may be interrupted or not to be had; the rate is an assumption")
    if offer.read_on is None:
        out.append("the price carries no date")
    else:
        age = (workload.as_of.date() - offer.read_on).days
        if age > max_age_days:
            out.append(f"the price is {age} days old")
    if "_COMMUNITY" in offer.instance_type:
        out.append("community host: no data-centre guarantees")
    return out


def _platform_risks(workload: Workload, deal: Deal, max_age_days: int, count: int) -> list[str]:
    """What a commitment binds one to, and what is to be known of a platform's fee."""
    out, fee = [], deal.fee
    term = TERM_HOURS.get(deal.offer.purchase)
    if term is not None and not workload.buy.reserved_owned:
        total = term * count * float(deal.offer.usd_per_instance_hour)
        out.append(f"commits to {term / 8760:g} year(s), ${total:,.0f} in all before discounts")
    if fee is None:
        return out
    if fee.doubt:
        out.append(f"doubtful price of {deal.platform}: {fee.doubt}")
    age = None if fee.read_on is None else (workload.as_of.date() - fee.read_on).days
    if age is None:
        out.append(f"the fee of {deal.platform} carries no date")
    elif age > max_age_days:
        out.append(f"the fee of {deal.platform} is {age} days old")
    if deal.platform == "databricks" and count > 1:
        out.append("a cluster of several machines needs a driver besides: it is not in the ledger")
    return out


def _host_risks(instance: InstanceType, run: RunDetail) -> list[str]:
    out = []
    gpus = instance.accelerator_count
    if gpus and instance.vcpus is not None and instance.vcpus / gpus < VCPUS_PER_GPU_COMFORTABLE:
        out.append(f"{instance.vcpus / gpus:g} vCPUs a GPU may starve the input pipeline")
    weights = dict(run.memory_parts_gib).get("weights", 0.0)
    if instance.memory_gib is not None and weights > instance.memory_gib:
        out.append(
            f"host memory {instance.memory_gib:g} GiB is less than the weights ({weights:.1f} GiB): load in shards"
        )
    return out
