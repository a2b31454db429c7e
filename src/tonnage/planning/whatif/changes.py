"""Changes to a workload carried out: what a refusal proposes, so that a plan can try it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tonnage.planning.reasons.changes import (
    AcceptRisk,
    AllowInterruptions,
    AllowSpot,
    AnyChange,
    Both,
    Buy,
    CutSequences,
    DropExclusion,
    Include,
    LeaveOut,
    MoreNodes,
    MoveBudget,
    MoveDeadline,
    MoveMaxGpus,
    MovePromise,
    MoveRate,
    OnlyPlatform,
    RaiseQuota,
    SetField,
    SetPools,
    TrustAny,
    UseFp16,
)
from tonnage.planning.reasons.risks import Promise
from tonnage.workload.exclusions import Exclusion
from tonnage.workload.jobs import Constraints, Lengths, TrainJob, Workload
from tonnage.workload.quotas import Quota

WorkloadEdit = Callable[[Workload], Workload]
FREE: Final = Constraints()
PROMISES: Final[dict[Promise, str]] = {"latency": "p95_latency_s", "ttft": "p95_ttft_s", "tpot": "p95_tpot_s"}


def edit_of(change: AnyChange) -> WorkloadEdit | None:
    """The workload with the change made; None where a workload cannot make it."""
    if isinstance(change, Both):
        first, second = edit_of(change.first), edit_of(change.second)
        return None if first is None or second is None else lambda workload: second(first(workload))
    return _of_constraints(change) or _of_job(change)


def _of_constraints(change: AnyChange) -> WorkloadEdit | None:
    match change:
        case Include(key="gpus"):
            return constrained(gpus=())  # a filter that matches the candidate is no narrower for it
        case Include(key=key, value=value):
            return lambda workload: constrained(**{key: (*getattr(workload.constraints, key), value)})(workload)
        case LeaveOut(key="deadline"):
            return constrained(deadline_s=None)
        case LeaveOut(key=key):
            return constrained(**{key: getattr(FREE, key)})
        case DropExclusion(exclusion=text):
            return lambda workload: constrained(exclude=_without(workload, text))(workload)
        case RaiseQuota():
            return lambda workload: constrained(quotas=_raised(workload, change))(workload)
        case AllowInterruptions():
            return constrained(interruptible=True)
        case AllowSpot():
            return lambda workload: constrained(interruptible=True)(_bought(workload, "spot"))
        case Buy(purchase=purchase):
            return lambda workload: _bought(workload, purchase)
        case AcceptRisk(limit=limit):
            return lambda workload: constrained(accept_risk=(*workload.constraints.accept_risk, limit))(workload)
        case TrustAny():
            return constrained(trust="any")
        case OnlyPlatform(platform=platform):
            return constrained(platforms=(platform,))
        case MoveDeadline(deadline_s=deadline_s):
            return constrained(deadline_s=deadline_s)
        case MoveBudget(budget_usd=budget_usd):
            return constrained(budget_usd=budget_usd)
        case MoveMaxGpus(max_gpus=count):
            return constrained(max_gpus=count)
        case MoreNodes(max_nodes=count):
            return constrained(max_nodes=count)
        case _:
            return None


def _of_job(change: AnyChange) -> WorkloadEdit | None:
    match change:
        case SetField(key=key, value=value):
            return job_with(**{key: value})
        case MovePromise(promise=promise, promised_s=promised_s):
            return job_with(**{PROMISES[promise]: promised_s})
        case MoveRate(rate_per_s=rate_per_s):
            return job_with(rate_per_s=rate_per_s)
        case CutSequences(maximum_tokens=most):
            return lambda workload: _shortened(workload, most)
        case SetPools(prefill_replicas=prefill, decode_replicas=decode):
            return job_with(prefill_replicas=prefill, decode_replicas=decode)
        case UseFp16():
            return in_fp16
        case _:
            return None


def constrained(**limits: Any) -> WorkloadEdit:
    """Constraints with `limits` in place of those given."""
    return lambda workload: replace(workload, constraints=replace(workload.constraints, **limits))


def job_with(**fields: Any) -> WorkloadEdit:
    """The job with `fields` changed."""
    return lambda workload: replace(workload, job=replace(workload.job, **fields))


def in_fp16(workload: Workload) -> Workload:
    """The workload with its job in fp16."""
    return replace(workload, job=workload.job.in_fp16())


def _without(workload: Workload, text: str) -> tuple[Exclusion, ...]:
    return tuple(one for one in workload.constraints.exclude if one.text != text)


def _raised(workload: Workload, change: RaiseQuota) -> tuple[Quota, ...]:
    meant = (change.provider, change.name, change.unit, change.before)
    return tuple(
        replace(one, limit=change.limit) if (one.provider, one.name, one.unit, one.limit) == meant else one
        for one in workload.constraints.quotas
    )


def _shortened(workload: Workload, most: int) -> Workload:
    job = workload.job
    return (
        replace(workload, job=replace(job, lengths=cut_at(job.lengths, most)))
        if isinstance(job, TrainJob)
        else workload
    )


def _bought(workload: Workload, purchase: Any) -> Workload:
    """One more way to buy."""
    ways = tuple(dict.fromkeys((*workload.buy.purchases, purchase)))
    return replace(workload, buy=replace(workload.buy, purchases=ways))


def cut_at(lengths: Lengths, most: int) -> Lengths:
    """Lengths where nothing is longer than `most` tokens."""
    return Lengths(mean=min(lengths.mean, most), maximum=most)
