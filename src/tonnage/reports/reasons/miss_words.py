"""Words for misses: what a candidate needs, what it has, what lifts the limit."""

from __future__ import annotations

from typing import Any, Final, assert_never

from tonnage.planning.reasons import misses as kinds
from tonnage.planning.reasons.misses import MachineMiss, Miss, TermMiss
from tonnage.pricing.price_dates import PricesApart
from tonnage.reports.reasons.changes import PROMISED, change_document, change_words, latency_words, money_words
from tonnage.reports.reasons.document import reason_document
from tonnage.sizing.devices import COMPILERS, SIZED_VENDORS
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

NONE: Final = "none in the catalog"
HOLDERS: Final = {"GPU": " per GPU", "host": " of host memory", "process": ""}
NO_RATE: Final = "unknown: no throughput of this API is published"
UNITS: Final = {"vcpus": "vCPUs", "gpus": "GPUs", "machines": "machines"}
UNPUBLISHED: Final = {"vcpus": "a number of vCPUs", "link bandwidth": "a published bandwidth between the GPUs"}
PRICES: Final = {
    "dbu": "DBU an hour of {name}, and the price of a DBU under {sku}",
    "serving dbu": "the DBU that a serving endpoint on {name} is billed",
    "ml instance": "the price of ml.{name}",
    "managed spot": "the price of managed spot training on ml.{name}",
    "vertex": "Vertex AI's price for {name}",
    "egress": "the price of moving {size} GB out of {name}",
    "tokens": "the price of {name} tokens",
    "model units": "how many model units carry the load",
    "hours": "the hours the units are needed",
    "customisation": "the price of customising {name}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissWords:
    """A miss as three cells of a table."""

    needs: str
    has: str
    lifts: str

    @property
    def clause(self) -> str:
        """«needs 94.1 GiB, has 80 GiB»."""
        return f"needs {self.needs}, has {self.has}"


def miss_document(miss: Miss) -> dict[str, Any]:
    """The miss as JSON; each of `lifted_by` with its words."""
    changes = [change_document(change) for change in miss.lifted_by]
    return {**reason_document(miss, miss_words(miss).clause), "lifted_by": changes}


def miss_words(miss: Miss) -> MissWords:
    """What is needed, what is there, what lifts the limit."""
    needs, has = _of_terms(miss) if isinstance(miss, TermMiss) else _of_machines(miss)
    return MissWords(needs=needs, has=has, lifts=_lifts(miss))


def _lifts(miss: Miss) -> str:
    said = ", or ".join(change_words(change) for change in miss.lifted_by)
    if isinstance(miss, kinds.NoFp8Miss):
        return f"{said}, which multiply fp8 weights in 16 bit there"
    if isinstance(miss, kinds.NvidiaOnlyMiss):
        return f"{said}, which run there"
    if not said and isinstance(miss, kinds.MemoryMiss) and miss.layout:
        return "nothing tried: not even adapters, 4-bit weights and 64 nodes together"
    return said or "nothing that was tried"


def _of_terms(miss: TermMiss) -> tuple[str, str]:
    match miss:
        case kinds.NotAllowedMiss(allowed=allowed, has=has):
            return f"one of {', '.join(allowed)}", "paid by use" if has == "by use" else has
        case kinds.ExcludedMiss(exclusion=exclusion):
            return f"what constraints.exclude leaves: not {exclusion}", exclusion
        case kinds.AccountQuotaMiss(needed=needed, limit=limit, unit=unit, name=name):
            return f"{needed:g} {UNITS[unit]}", f"{limit:g} under the quota {name}"
        case kinds.InterruptibleMiss():
            return "machines that stay", "spot"
        case kinds.OtherGpuMiss(asked=asked, gpu=gpu, gpu_count=count, api=api):
            own = "a token API" if api else "no GPU" if gpu is None else f"{gpu}:{count:g}"
            return " or ".join(asked), own
        case kinds.ResidencyMiss(areas=areas):
            return f"data stays in {', '.join(areas)}", _place(miss)
        case kinds.NoSpareMiss():
            return "a replica to spare while spot machines are replaced", "serve.spare_replicas: 0"
        case kinds.NeverDoneMiss():
            return "machines that stay longer: interrupted so often, the work is never done", "spot"
        case (
            kinds.NoPriceMiss()
            | kinds.SetAsidePriceMiss()
            | kinds.SupersededPriceMiss()
            | kinds.UnpricedMiss()
            | kinds.BudgetMiss()
        ):
            return _of_money(miss)
        case _:
            return _of_time(miss)


def _apart_words(apart: PricesApart) -> str:
    """Why a price that is held says nothing beside the machine's."""
    first, second = (str(day or "an unknown day") for day in (apart.first_on, apart.second_on))
    days = f"a price of {first} beside the machine's of {second}"
    if apart.cut_on is None:
        return f"{days}: too far apart to compare"
    return f"{days}: the price cut of {apart.cut_on} may lie between"


def _place(miss: kinds.ResidencyMiss) -> str:
    if miss.priced_for is not None:
        return f"an API priced for {miss.priced_for}"
    return f"prices in {miss.area}" if miss.area else "a listing that states no region"


def _of_money(
    miss: kinds.NoPriceMiss
    | kinds.SetAsidePriceMiss
    | kinds.SupersededPriceMiss
    | kinds.UnpricedMiss
    | kinds.BudgetMiss,
) -> tuple[str, str]:
    match miss:
        case kinds.NoPriceMiss():
            return "a price", NONE
        case kinds.SetAsidePriceMiss(purchase=purchase, usd_per_instance_hour=usd, why=why):
            needs = f"a {purchase.replace('_', '-')} price that holds today"
            return needs, f"${usd:.4f} an hour, set aside: {why}"
        case kinds.SupersededPriceMiss():
            older, newer = (f"${usd:g}" for usd in (miss.usd_per_instance_hour, miss.newer_usd_per_instance_hour))
            when = "" if miss.newer_read_on is None else f" of {miss.newer_read_on}"
            has = f"{older}, older than the {newer}{when} under the name {miss.newer_name}"
            return "the newest price of the machine", has
        case kinds.UnpricedMiss(of=of, name=name, sku=sku, size_gb=size_gb, apart=apart):
            size = "" if size_gb is None else f"{size_gb:g}"
            has = "not stated" if of in ("model units", "hours") else NONE
            has = has if apart is None else _apart_words(apart)
            return PRICES[of].format(name=name, sku=sku, size=size), has
        case kinds.BudgetMiss(needed_usd=needed, budget_usd=budget):
            return money_words(needed), money_words(budget)
        case _:
            assert_never(miss)


def _of_time(
    miss: kinds.UnknownLatencyMiss | kinds.SlowApiMiss | kinds.UnknownFinishMiss | kinds.QuotaMiss | kinds.DeadlineMiss,
) -> tuple[str, str]:
    match miss:
        case kinds.UnknownLatencyMiss(promise=promise, promised_s=promised_s, usd=usd):
            return f"{PROMISED[promise]} within {latency_words(promised_s)}", f"unknown{_would(usd)}"
        case kinds.SlowApiMiss(promise=promise, promised_s=promised_s, stated_s=stated_s, usd=usd):
            needs = f"{PROMISED[promise]} within {latency_words(promised_s)}"
            return needs, f"{latency_words(stated_s)}{_would(usd)}"
        case kinds.UnknownFinishMiss(deadline_s=deadline_s, usd=usd):
            needs = "a finish time to rank by" if deadline_s is None else f"done within {_hours(deadline_s)}"
            return needs, f"{NO_RATE}{_would(usd)}"
        case kinds.QuotaMiss(needed_tokens_per_minute=needed, allowed_tokens_per_minute=allowed):
            return f"{needed:,.0f} tokens a minute", f"{allowed:,.0f}"
        case kinds.DeadlineMiss(needed_s=needed_s, deadline_s=deadline):
            return _span(needed_s), f"{_span(deadline)} to the deadline"
        case _:
            assert_never(miss)


def _would(usd: float) -> str:
    return f" (it would cost ${usd:,.2f})"


def _hours(seconds: float) -> str:
    return f"{seconds / SECONDS_PER_HOUR:.2f} h"


def _span(seconds: float) -> str:
    """Hours, or minutes below one hour."""
    return f"{seconds / 60:.1f} min" if seconds < SECONDS_PER_HOUR else _hours(seconds)


def _of_machines(miss: MachineMiss) -> tuple[str, str]:
    match miss:
        case kinds.NoGpuMiss():
            return "an accelerator", "none"
        case kinds.SharedGpuMiss(gpu_count=count):
            return "a whole device", f"{count:g} of one"
        case kinds.UnpublishedMiss():
            return _unpublished(miss)
        case kinds.MemoryMiss():
            return _memory(miss)
        case kinds.NvidiaOnlyMiss(engine=engine, vendor=vendor):
            return f"NVIDIA devices: the engine {engine} runs on NVIDIA devices only", f"{vendor} devices"
        case kinds.NoFp8Miss(engine=engine, device=device):
            needs = f"fp8 products: the engine {engine} multiplies fp8 weights in fp8"
            return needs, f"{device}: the device has no fp8"
        case kinds.NoMxfp4Miss(engine=engine, device=device):
            return f"mxfp4 products: the engine {engine} has them on newer devices only", f"{device}"
        case kinds.UnmeasuredTreesMiss():
            return "boosted trees on ROCm", "no measurement of them"
        case kinds.LatencyMiss(promise=promise, best_s=best_s, promised_s=promised_s):
            needs = f"{PROMISED[promise]} {latency_words(best_s)} with one request at a time"
            return needs, f"{latency_words(promised_s)} promised"
        case _:
            return _of_layouts(miss)


def _unpublished(miss: kinds.UnpublishedMiss) -> tuple[str, str]:
    match miss.what:
        case "vendor":
            return (
                f"{miss.device}: {miss.vendor} devices run another compiler "
                f"({COMPILERS.get(str(miss.vendor), 'not known')}) whose rates are not calibrated; "
                f"{' and '.join(SIZED_VENDORS)} are sized",
                "unknown",
            )
        case "rate":
            return f"{miss.device}: no {miss.precision} rate is published (or the device has none)", "unknown"
        case "memory size" | "memory bandwidth":
            return f"{miss.device}: {miss.what} is not published", "unknown"
        case "host memory":
            amount = "a known amount" if miss.needed_gib is None else f"{miss.needed_gib:.1f} GiB"
            return f"{amount} of host memory", "not in the catalog"
        case "vcpus" | "link bandwidth":
            return UNPUBLISHED[miss.what], NONE
        case _:
            assert_never(miss.what)


def _memory(miss: kinds.MemoryMiss) -> tuple[str, str]:
    needs = f"{miss.needed_gib:.1f} GiB{HOLDERS[miss.of]}"
    if miss.expected_gib is not None:
        needs += f" at the upper end of the 80 % interval ({miss.expected_gib:.1f} expected)"
    if miss.tensor_parallel is not None:
        needs += f" at tensor parallel {miss.tensor_parallel}"
    if miss.layout:
        needs += f" even with {miss.layout}"
    has = f"{miss.available_gib:.1f} GiB"
    if miss.engine_keeps:
        has += ", of which the engine keeps some free"
    if miss.kept_free_fraction is not None:
        has += f", {miss.kept_free_fraction:.0%} kept free"
    return needs, has


def _of_layouts(
    miss: kinds.GpuLimitMiss
    | kinds.NodesMiss
    | kinds.PoolLinkMiss
    | kinds.PoolSizesMiss
    | kinds.PoolPromiseMiss
    | kinds.WholeMachinesMiss
    | kinds.DegreesMiss
    | kinds.BatchDivisionMiss
    | kinds.ReplicasMiss
    | kinds.ConcurrencyMiss,
) -> tuple[str, str]:
    match miss:
        case kinds.GpuLimitMiss(needed_gpus=needed, allowed_gpus=allowed, rate_per_s=rate):
            why = ", as the machine is sold" if rate is None else f" for {rate:g} requests/s"
            return f"{needed} GPUs{why}", f"max_gpus: {allowed}"
        case kinds.NodesMiss(needed_nodes=needed, allowed_nodes=allowed, rate_per_s=rate):
            return f"{needed} machines for {rate:g} requests/s", f"max_nodes: {allowed}"
        case kinds.PoolLinkMiss() | kinds.PoolSizesMiss() | kinds.PoolPromiseMiss():
            return _pools(miss)
        case kinds.WholeMachinesMiss(gpus=gpus, gpus_per_machine=each, network_known=known):
            between = "" if known else " and no published network between machines"
            return f"{gpus} GPUs on full machines", f"{each} GPUs a machine{between}"
        case kinds.DegreesMiss(degrees=degrees, needed_gpus=needed, gpus=gpus):
            return f"a multiple of {needed} GPUs ({' x '.join(degrees)})", f"{gpus} GPU{'s' if gpus > 1 else ''}"
        case kinds.BatchDivisionMiss(global_batch=batch, gpus=gpus):
            return f"a global batch that divides over {gpus} GPUs", f"global batch {batch}"
        case kinds.ReplicasMiss(needed_replicas=needed, given_replicas=given, rate_per_s=rate):
            return f"{needed} replicas for {rate:g} requests/s", f"layout.replicas: {given}"
        case kinds.ConcurrencyMiss(asked_requests=asked, held_requests=held, cache_gib=gib, tensor_parallel=degree):
            needs = f"{asked} requests in flight at tensor parallel {degree}"
            return needs, f"a cache of {gib:.1f} GiB, which holds {int(held)}"
        case _:
            assert_never(miss)


def _pools(miss: kinds.PoolLinkMiss | kinds.PoolSizesMiss | kinds.PoolPromiseMiss) -> tuple[str, str]:
    """Two pools of replicas."""
    if isinstance(miss, kinds.PoolLinkMiss):
        return "the rate of the network between machines, for keys and values", "none published"
    given = (
        f"layout.prefill_replicas: {miss.given_prefill_replicas or 'not stated'}, "
        f"layout.decode_replicas: {miss.given_decode_replicas or 'not stated'}"
    )
    if isinstance(miss, kinds.PoolPromiseMiss):
        return "a longer promise: one request at a time misses p95_ttft or p95_tpot in two pools", given
    pools = f"{miss.needed_prefill_replicas} prefill and {miss.needed_decode_replicas} decode replicas"
    return f"{pools} for {miss.rate_per_s:g} requests/s", given
