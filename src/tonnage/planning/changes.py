"""Changes to a workload as values: what a refusal proposes, so that a plan can try it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tonnage.workload.exclusions import Exclusion
from tonnage.workload.jobs import BatchJob, Risk, ServeJob, TrainJob, Workload
from tonnage.workload.quotas import Quota

Change = Callable[[Workload], Workload]


def constrained(**limits: Any) -> Change:
    """Constraints with `limits` in place of what stands there."""
    return lambda workload: replace(workload, constraints=replace(workload.constraints, **limits))


def including(name: str, value: str) -> Change:
    """A constraint that lists what is allowed (`providers`, `regions`, `residency`) with `value` added."""

    def change(workload: Workload) -> Workload:
        limits: dict[str, Any] = {name: (*getattr(workload.constraints, name), value)}
        return replace(workload, constraints=replace(workload.constraints, **limits))

    return change


def accepting(risk: Risk) -> Change:
    """A limit that need hold on the expected figure only."""

    def change(workload: Workload) -> Workload:
        wanted = workload.constraints
        return replace(workload, constraints=replace(wanted, accept_risk=(*wanted.accept_risk, risk)))

    return change


def raising_quota(quota: Quota, limit: float) -> Change:
    """One quota raised."""

    def change(workload: Workload) -> Workload:
        raised = tuple(replace(one, limit=limit) if one == quota else one for one in workload.constraints.quotas)
        return replace(workload, constraints=replace(workload.constraints, quotas=raised))

    return change


def allowing(exclusion: Exclusion) -> Change:
    """One exclusion less."""

    def change(workload: Workload) -> Workload:
        kept = tuple(one for one in workload.constraints.exclude if one != exclusion)
        return replace(workload, constraints=replace(workload.constraints, exclude=kept))

    return change


def job_with(**fields: Any) -> Change:
    """The job with `fields` changed."""
    return lambda workload: replace(workload, job=replace(workload.job, **fields))


def in_fp16(workload: Workload) -> Workload:
    """The job in fp16: the arithmetic of a training run, the weights of a service or batch."""
    if isinstance(workload.job, TrainJob):
        return replace(workload, job=replace(workload.job, precision="fp16"))
    if isinstance(workload.job, ServeJob | BatchJob):
        return replace(workload, job=replace(workload.job, weights="fp16"))
    return workload


def bought_as(purchase: Any) -> Change:
    """One more way to buy."""
    return lambda workload: replace(workload, buy=replace(workload.buy, purchases=(*workload.buy.purchases, purchase)))


def both(first: Change, second: Change) -> Change:
    """One change after the other."""
    return lambda workload: second(first(workload))
