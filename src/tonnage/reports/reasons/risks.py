"""Words for risks."""

from __future__ import annotations

from typing import Any, Final, assert_never

from tonnage.planning.reasons import risks as kinds
from tonnage.planning.reasons.risks import Promise, Risk
from tonnage.reports.reasons.document import reason_document
from tonnage.reports.wording import render_duration

PROMISES: Final[dict[Promise, str]] = {"latency": "p95", "ttft": "p95 TTFT", "tpot": "p95 per-token"}


def risk_document(risk: Risk) -> dict[str, Any]:
    """The risk as JSON."""
    return reason_document(risk, risk_words(risk))


def risk_words(risk: Risk) -> str:
    """One clause, without a capital or a full stop."""
    match risk:
        case kinds.DeadlineRisk() | kinds.LatencyRisk() | kinds.MemoryRisk():
            return _reaching(risk)
        case kinds.OddPriceRisk() | kinds.OddPremiumRisk() | kinds.UndatedPriceRisk() | kinds.OldPriceRisk():
            return _of_price(risk)
        case kinds.EstimatedFeeRisk():
            ends = f"${risk.low_usd_per_instance_hour:.2f} to ${risk.high_usd_per_instance_hour:.2f}"
            return (
                f"the fee of {risk.platform} is an estimate from its parts ({risk.parts}), {ends} an hour of a "
                "machine: ask for the price"
            )
        case kinds.DriverRisk() | kinds.FewVcpusRisk() | kinds.HostMemoryRisk() | kinds.CommunityHostRisk():
            return _of_machines(risk)
        case kinds.HostLimitRisk() | kinds.UnknownHostRisk():
            return _of_hosts(risk)
        case kinds.CapacityRisk():
            return _of_capacity(risk)
        case kinds.UnmeasuredRisk(names=names):
            return f"no measured row of {', '.join(names)}: predicted from published figures"
        case kinds.SpotRisk():
            return "spot: may be interrupted or not to be had"
        case kinds.ArmHostRisk() | kinds.RocmRisk():
            return _of_builds(risk)
        case kinds.CommitmentRisk(years=years, usd=usd):
            return f"commits to {years:g} year(s), ${usd:,.0f} in all before discounts"
        case _:
            return _of_tokens(risk)


def _reaching(risk: kinds.DeadlineRisk | kinds.LatencyRisk | kinds.MemoryRisk) -> str:
    """A figure whose 80 % interval ends beyond a limit."""
    match risk:
        case kinds.DeadlineRisk(reaches_s=reaches_s, deadline_s=deadline_s):
            end, limit = render_duration(reaches_s), render_duration(deadline_s)
            return f"may miss the deadline: the 80 % interval reaches {end} of {limit}"
        case kinds.LatencyRisk(promise=promise, reaches_s=reaches_s, promised_s=promised_s):
            end, limit = (f"{seconds * 1e3:.0f} ms" for seconds in (reaches_s, promised_s))
            return f"may break the {PROMISES[promise]} promise: the 80 % interval reaches {end} of {limit}"
        case kinds.MemoryRisk(reaches_gib=reaches_gib, available_gib=available_gib):
            end, limit = (f"{gib:.1f} GiB" for gib in (reaches_gib, available_gib))
            return f"may run out of memory: the 80 % interval reaches {end} of {limit}"
        case _:
            assert_never(risk)


def _of_price(risk: kinds.OddPriceRisk | kinds.OddPremiumRisk | kinds.UndatedPriceRisk | kinds.OldPriceRisk) -> str:
    match risk:
        case kinds.OddPriceRisk(doubt=doubt):
            return f"doubtful price: {doubt.describe()}"
        case kinds.OddPremiumRisk(platform=platform, doubt=doubt):
            return (
                f"doubtful price of {platform}: {doubt.ratio:.2f} times the plain machine, where "
                f"{doubt.usual_ratio:.2f} is usual: it may be older than a price cut"
            )
        case kinds.UndatedPriceRisk(platform=platform):
            return f"{_price_of(platform)} carries no date"
        case kinds.OldPriceRisk(age_days=age_days, platform=platform):
            return f"{_price_of(platform)} is {age_days} days old"
        case _:
            assert_never(risk)


def _price_of(platform: str | None) -> str:
    return "the price" if platform is None else f"the fee of {platform}"


def _of_machines(
    risk: kinds.DriverRisk | kinds.FewVcpusRisk | kinds.HostMemoryRisk | kinds.CommunityHostRisk,
) -> str:
    match risk:
        case kinds.DriverRisk():
            return "a cluster of several machines needs a driver besides: it is not in the ledger"
        case kinds.FewVcpusRisk(vcpus_per_gpu=each):
            return f"{each:g} vCPUs a GPU may starve the input pipeline"
        case kinds.HostMemoryRisk(weights_gib=weights, memory_gib=memory):
            return f"host memory {memory:g} GiB is less than the weights ({weights:.1f} GiB): load in shards"
        case kinds.CommunityHostRisk():
            return "community host: no data-centre guarantees"
        case _:
            assert_never(risk)


def _of_capacity(risk: kinds.CapacityRisk) -> str:
    lead = "not known" if risk.lead_days is None else f"up to {risk.lead_days:g} days"
    if risk.way == "quota":
        return f"the deadline leaves no time for a quota: a new account may run none of these, a raise takes {lead}"
    longest = "" if risk.longest_days is None else f", for {risk.longest_days:g} days at most"
    sold = "an EC2 Capacity Block" if risk.way == "capacity block" else "a future reservation"
    return f"may not be had on demand: for certain only as {sold}, booked {lead} ahead{longest}"


def _of_hosts(risk: kinds.HostLimitRisk | kinds.UnknownHostRisk) -> str:
    match risk:
        case kinds.HostLimitRisk(stage="reading", items_per_s=items, devices_per_s=devices):
            return f"host: reading over the network limits to {items:,.0f} items/s, of {devices:,.0f} the devices take"
        case kinds.HostLimitRisk(stage=stage, vcpus=vcpus, items_per_s=items, devices_per_s=devices):
            on = "" if vcpus is None else f" on {vcpus:g} vCPUs a machine"
            return f"host: {stage}{on} limits to {items:,.0f} items/s, of {devices:,.0f} the devices take"
        case kinds.UnknownHostRisk(stage=stage, needed_vcpus=needed):
            return f"host: {stage} takes {needed:,.0f} vCPUs a machine to keep up, and how many it has is not stated"
        case _:
            assert_never(risk)


def _of_builds(risk: kinds.ArmHostRisk | kinds.RocmRisk) -> str:
    match risk:
        case kinds.ArmHostRisk():
            return "arm64 host: container images, wheels and compiled extensions must be built for aarch64"
        case kinds.RocmRisk(device=device):
            return (
                f"{device} runs ROCm: it takes PyTorch's ROCm build, and CUDA extensions (flash-attn, bitsandbytes, "
                "custom kernels) must be built for HIP"
            )
        case _:
            assert_never(risk)


def _of_tokens(
    risk: kinds.UnknownFinishRisk
    | kinds.UnknownQuotaRisk
    | kinds.BusyRateRisk
    | kinds.OtherModelRisk
    | kinds.StandInRisk
    | kinds.ConditionsRisk
    | kinds.ModelUnitsRisk
    | kinds.UnpricedStorageRisk,
) -> str:
    match risk:
        case kinds.UnknownFinishRisk():
            return "the finish time is not known: no throughput of this API is published"
        case kinds.UnknownQuotaRisk(needed_tokens_per_minute=needed):
            return f"whether the account may use {needed:,.0f} tokens a minute is not known"
        case kinds.BusyRateRisk():
            return "tokens are counted at the busy rate all month: buy.token_load says how much less it is on average"
        case kinds.OtherModelRisk(model=model):
            return f"{model} may be another model than the workload's: that it would do is the workload's word"
        case kinds.StandInRisk(model=model):
            return f"the API's {model} stands for the workload's model: its tuning may differ"
        case kinds.ConditionsRisk(of="batch price", conditions=conditions, source=source):
            return f"batch price: {conditions} ({source})"
        case kinds.ConditionsRisk(conditions=conditions):
            return f"of this price the source says: {conditions}"
        case kinds.ModelUnitsRisk(commitment_months=months):
            return f"provisioned throughput: {f'{months} month(s) committed' if months else 'no commitment'}"
        case kinds.UnpricedStorageRisk():
            return "keeping the customised model is not priced"
        case _:
            assert_never(risk)
