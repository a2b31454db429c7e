"""Words for changes: what would lift a limit, or make a loser win."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, Final, assert_never

from tonnage.planning.reasons import changes as kinds
from tonnage.planning.reasons.changes import AnyChange
from tonnage.planning.reasons.risks import Promise
from tonnage.reports.reasons.document import reason_document
from tonnage.units import SECONDS_PER_HOUR

PROMISED: Final[dict[Promise, str]] = {"latency": "p95 latency", "ttft": "p95 TTFT", "tpot": "p95 per token"}
SECTIONS: Final = {"spare_replicas": "serve.", "replicas": "layout.", "concurrency": "layout."}  # of the file
PUBLISHED: Final = {
    "price": "a source states its price",
    "price of today": "a source states the price of today",
    "newer price": "the older listing is read again",
    "regions": "the listing states its regions",
    "figure": "the catalog gains the figure",
    "link bandwidth": "the catalog gains the link's bandwidth",
    "rate of a slice": "the rate of a slice is published",
    "compiler": "its compiler's rates are measured and Tonnage models them",
}
STATED: Final = {
    "price": "states it",
    "quota": "states what the account may use",
    "measured": "states what you measured",
    "units": "states it",
    "carried": "states what they carry",
}


def changes_words(changes: Iterable[AnyChange]) -> str:
    """Changes that are made together."""
    return " and ".join(change_words(one) for one in changes)


def change_document(change: AnyChange) -> dict[str, Any]:
    """The change as JSON."""
    return reason_document(change, change_words(change))


def change_words(change: AnyChange) -> str:
    """One clause: a key with its new value, or a fact that would have to be so."""
    if isinstance(change, kinds.TermChange):
        return _of_terms(change)
    if isinstance(change, kinds.LimitChange):
        return _of_limits(change)
    if isinstance(change, kinds.MarketChange):
        return _of_market(change)
    match change:
        case kinds.Both(first=first, second=second):
            return f"{change_words(first)} and {change_words(second)}"
        case kinds.Publish(what=what):
            return PUBLISHED[what]
        case kinds.State(key=key, of=of):
            return f"{key} {STATED[of]}"
        case _:
            return _of_job(change)


def _of_terms(change: kinds.TermChange) -> str:
    match change:
        case kinds.Include(key=key, value=value):
            return f"constraints.{key} includes {value}"
        case kinds.LeaveOut(key=left):
            return f"constraints.{left} is left out"
        case kinds.DropExclusion(exclusion=exclusion):
            return f"constraints.exclude is without {exclusion}"
        case kinds.AllowSpot():
            return "spot is allowed"
        case kinds.AllowInterruptions():
            return "constraints.interruptible: true"
        case kinds.Buy(purchase=purchase):
            return f"buy.{purchase}: true"
        case kinds.AcceptRisk(limit=limit):
            return f"constraints.accept_risk: {limit}"
        case kinds.TrustAny():
            return "constraints.trust is any"
        case kinds.OnlyPlatform(platform=platform):
            return f"constraints.platforms is {platform}"
        case _:
            assert_never(change)


def _of_limits(change: kinds.LimitChange) -> str:
    match change:
        case kinds.MoveDeadline(deadline_s=deadline_s):
            return f"the deadline is {span_words(deadline_s)} away"
        case kinds.MoveBudget(budget_usd=usd):
            return f"the budget is {money_words(usd)}"
        case kinds.MovePromise(promise=promise, promised_s=promised_s):
            return f"the promised {PROMISED[promise]} is {latency_words(promised_s)}"
        case kinds.MoveRate(rate_per_s=rate):
            return f"{rate:,.4g} requests arrive per second"
        case kinds.MoveQuota(tokens_per_minute=quota):
            return f"buy.tokens_per_minute is {quota:.0f}"
        case kinds.RaiseQuota(name=name, limit=limit):
            return f"the quota {name} is {limit:g}"
        case kinds.MoveMaxGpus(max_gpus=count):
            return f"max_gpus: {count}"
        case kinds.MoreNodes(max_nodes=count):
            return f"{count} nodes"
        case _:
            assert_never(change)


def _of_market(change: kinds.MarketChange) -> str:
    match change:
        case kinds.MovePrice(usd_per_instance_hour=usd, fall_fraction=fall, of="machine"):
            return f"its price is ${usd:,.4g} an instance-hour ({100 * fall:.3g} % lower)"
        case kinds.MovePrice(usd_per_instance_hour=usd, fall_fraction=fall):
            return f"the machine costs ${usd:,.4g} an hour without the fee ({100 * fall:.3g} % lower)"
        case kinds.LowerPrice(fall_fraction=fall):
            return f"the price falls by {100 * fall:.2g} %"
        case kinds.Discount(platform=platform, sku=sku, off_fraction=off):
            return f"{platform} takes {100 * off:.4g} % off {sku}"
        case kinds.FasterGpus(times=times):
            return f"its GPUs are {times_words(times)} as fast (rates, memory, links and power)"
        case kinds.FasterWork(times=times):
            return f"the work runs {times_words(times)} as fast"
        case kinds.MoreMemory(holder=holder, memory_gib=gib, before_gib=before):
            return f"each {holder} has {gib:,.4g} GiB instead of {before:,.4g}"
        case kinds.LargerGpus():
            return "more or larger GPUs in the machine hold the weights"
        case kinds.TakeGpu():
            return "nothing: it takes a GPU"
        case _:
            assert_never(change)


def _of_job(change: kinds.JobChange) -> str:
    match change:
        case kinds.SetField(key=key, value=value, alike=alike):
            others = f" (or {', '.join(alike)})" if alike else ""
            return f"{SECTIONS.get(key, '')}{key}: {value}{others}"
        case kinds.UseFp16(stated=stated):
            return f"fp16 in place of {stated}"
        case kinds.CutSequences(maximum_tokens=most):
            return f"sequences cut at {most} tokens"
        case kinds.FewerOutputTokens(mean_tokens=tokens):
            return f"about {tokens} output tokens"
        case kinds.SmallerTable(fall_fraction=fall):
            return f"rows x features fall by {100 * fall:.0f} %"
        case kinds.DivideBatch(gpus=gpus):
            return f"global_batch is a multiple of {gpus} (and max_gpus allows {gpus})"
        case kinds.DivideGpus(gpus=gpus):
            return "degrees of 1" if gpus == 1 else f"degrees whose product divides {gpus}"
        case kinds.WholeMachines(gpus_per_machine=gpus, one_machine=one):
            return f"layout.gpus is {'' if one else 'a multiple of '}{gpus}"
        case kinds.SetPools(prefill_replicas=prefill, decode_replicas=decode):
            return f"layout: {{prefill_replicas: {prefill}, decode_replicas: {decode}}}"
        case kinds.FewerPoolReplicas(replicas=replicas):
            return f"at most {replicas} replicas in both pools"
        case kinds.LongerPromises():
            return "longer promises"
        case kinds.RarerInterruptions():
            return "buy.interruptions_per_hour or buy.checkpoint_interval is lower"
        case kinds.RankByCost():
            return "plans are ranked by cost"
        case kinds.TrainMlp():
            return "tabular.method: mlp, or a GPU that runs CUDA"
        case _:
            assert_never(change)


def times_words(times: float) -> str:
    """A factor that is needed: three digits after the point, never less than it.

    >>> times_words(1.3867), times_words(1.04), times_words(2.0001)
    ('1.387x', '1.04x', '2.001x')
    """
    return f"{ceil(times * 1000 - 1e-6) / 1000:.10g}x"


def span_words(seconds: float) -> str:
    """Hours, or minutes below one hour, to four digits: limits are proposed, so nothing is rounded away.

    >>> span_words(1234.5), span_words(400000)
    ('20.57 min', '111.1 h')
    """
    if seconds < SECONDS_PER_HOUR:
        return f"{seconds / 60:,.4g} min"
    return f"{seconds / SECONDS_PER_HOUR:,.4g} h"


def latency_words(seconds: float) -> str:
    """
    >>> latency_words(0.1234), latency_words(2.5)
    ('123 ms', '2.5 s')
    """
    return f"{seconds * 1e3:,.0f} ms" if 0.01 <= seconds < 1 else f"{seconds:,.4g} s"


def money_words(usd: float) -> str:
    """Dollars and cents; more digits where the cents do not hold it.

    >>> money_words(1234.5), money_words(0.0123)
    ('$1,234.50', '$0.0123')
    """
    return f"${usd:,.2f}" if usd == 0 or abs(round(usd, 2) - usd) <= usd * 1e-3 else f"${usd:,.4g}"
