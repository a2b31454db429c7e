"""Changes of a service that runs which bring its 95th percentile within its promise, as plans predict them.

Each candidate is a plan of the service's own workload at the rate that comes now, on its own kind of machine, with a
part of its layout held: so a change is predicted by the functions, and at the margins, that ranked the layout first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.plan import MachineOption, Plan
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.forced_layout import force_layout
from tonnage.workload.jobs import ServeJob, Workload

ChangeKind = Literal["replicas", "limit", "layout"]
Planner = Callable[[Workload, Catalog], Plan]
MOST_TRIED = 8  # counts of replicas one by one, before the plan's own


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLayout:
    """How a service runs: replicas that take requests, devices of each, requests it works on at once.

    `usd_per_machine_hour` None: no price is known.
    """

    provider: str
    instance_type: str
    replicas: int
    replicas_per_machine: int
    tensor_parallel: int
    limit: int
    rate_per_s: float
    usd_per_machine_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """One change, its predicted 95th percentile, and what its machines cost an hour (None: no price is known)."""

    kind: ChangeKind
    replicas: int
    tensor_parallel: int
    limit: int
    p95_s: Figure
    usd_per_hour: float | None
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChanges:
    """Those that help, the cheapest first; and the layout that runs.

    `now_p95_s`: as predicted of it; None: the plan has no figure for this load (it is over what the replicas carry, or
    no `has_queue`: the plan of an encoder has none).
    """

    promised_s: float
    now_p95_s: Figure | None
    now_usd_per_hour: float | None
    has_queue: bool
    enough: bool  # the plan says that the layout keeps its promise at this load
    changes: tuple[ServiceChange, ...]

    @property
    def best(self) -> ServiceChange | None:
        return self.changes[0] if self.changes else None


def helpful_changes(workload: Workload, catalog: Catalog, now: RunningLayout, planner: Planner) -> ServiceChanges:
    """What would bring the promised p95 latency about at the rate of now. Of equal cost the smallest change is first.

    InputError where the workload promises no p95 latency, or is no service.
    """
    job = workload.job
    if not isinstance(job, ServeJob) or job.p95_latency_s is None:
        raise InputError(f"'{workload.name}' promises no p95 latency", hint="serve: {p95_latency: 500ms}")
    asked = _ServicePlans(workload, job, catalog, now, planner)
    kept = asked.plan(asked.held(limit=now.limit, replicas=now.replicas))
    enough = kept is not None and _count(kept) <= now.replicas
    found = [] if enough else [*asked.more_replicas(), *asked.smaller_limits(), *asked.other_layouts()]
    order: dict[ChangeKind, int] = {"replicas": 0, "limit": 1, "layout": 2}
    found.sort(key=lambda one: (one.machines, order[one.kind], one.replicas))
    return ServiceChanges(
        promised_s=job.p95_latency_s, has_queue=asked.generates, now_p95_s=asked.predicted_now(), enough=enough,
        now_usd_per_hour=asked.usd(asked.machines(now.replicas, now.replicas_per_machine)), changes=tuple(found),
    )  # fmt: skip


class _ServicePlans:
    """Plans at the rate of now, on the machines of now."""

    def __init__(
        self, workload: Workload, job: ServeJob, catalog: Catalog, now: RunningLayout, planner: Planner
    ) -> None:
        self.now, self._planner = now, planner
        self.generates = job.requests.output_tokens is not None
        self._limit_key = "concurrency" if self.generates and job.batch is None else "batch"
        self._job = replace(
            job, rate_per_s=now.rate_per_s, traffic=None, replicas=None, concurrency=None,
            batch=None if self._limit_key == "concurrency" or not self.generates else job.batch,
            tensor_parallel=None, spare_replicas=0,
        )  # fmt: skip
        self._workload = workload
        here = (now.provider, now.instance_type)
        offers = tuple(one for one in catalog.offers if (one.provider, one.instance_type) == here)
        if not offers:
            raise InputError(f"the catalog has no price of {now.instance_type} at {now.provider} any more",
                             hint="tonnage plan FILE shows what it has")  # fmt: skip
        self._catalog = replace(catalog, offers=offers)

    def held(self, *, limit: int | None = None, replicas: int | None = None, tensor: int | None = None) -> str:
        """The layout as text. Replicas of an encoder are counted by its plan alone, never given."""
        parts = [f"tensor_parallel={tensor or self.now.tensor_parallel}"]
        parts += [] if limit is None else [f"{self._limit_key}={limit}"]
        parts += [] if replicas is None or not self.generates else [f"replicas={replicas}"]
        return ",".join(parts)

    def plan(self, layout: str, *, promised: bool = True) -> MachineOption | None:
        """The cheapest plan with this layout; None: none keeps its limits, or the layout cannot be."""
        job = self._job
        if not promised:
            job = replace(job, p95_latency_s=None, p95_ttft_s=None, p95_tpot_s=None)
        asked = replace(self._workload, job=job)
        try:
            made = self._planner(force_layout(asked, layout), self._catalog)
        except InputError:  # more devices than a machine has, a degree that the heads do not allow
            return None
        return next((one for one in made.options if isinstance(one, MachineOption)), None)

    def predicted_now(self) -> Figure | None:
        """Of the layout that runs at the rate of now, whatever was promised; an encoder's plan has no queue."""
        if not self.generates:
            return None
        found = self.plan(self.held(limit=self.now.limit, replicas=self.now.replicas), promised=False)
        return None if found is None else found.latency_p95_s

    def more_replicas(self) -> Iterator[ServiceChange]:
        """The fewest more that keep the promise."""
        now = self.now
        for count in range(now.replicas + 1, now.replicas + 1 + MOST_TRIED) if self.generates else ():
            if (found := self.plan(self.held(limit=now.limit, replicas=count))) is not None:
                yield self._change("replicas", found, count, now.tensor_parallel, now.limit)
                return
        found = self.plan(self.held(limit=now.limit))
        if found is not None and _count(found) > now.replicas:
            yield self._change("replicas", found, _count(found), now.tensor_parallel, now.limit)

    def smaller_limits(self) -> Iterator[ServiceChange]:
        """Half as many requests at a time, and half again, with the replicas of now: the largest that helps. An
        encoder's server bounds its batches by the promise itself."""
        if not self.generates:
            return
        limit = self.now.limit // 2
        while limit >= 1:
            found = self.plan(self.held(limit=limit, replicas=self.now.replicas))
            if found is not None and _count(found) <= self.now.replicas:
                yield self._change("limit", found, self.now.replicas, self.now.tensor_parallel, limit)
                return
            limit //= 2

    def other_layouts(self) -> Iterator[ServiceChange]:
        """Replicas of more or fewer devices, as many as the plan has of them."""
        for tensor in (1, 2, 4, 8):
            if tensor == self.now.tensor_parallel:
                continue
            found = self.plan(self.held(tensor=tensor))
            if found is not None:
                limit = int(dict(found.run.layout_fields)["concurrency"])
                yield self._change("layout", found, _count(found), tensor, limit)

    def machines(self, replicas: int, each: int) -> int:
        return math.ceil(replicas / max(each, 1))

    def usd(self, machines: int) -> float | None:
        price = self.now.usd_per_machine_hour
        return None if price is None else price * machines

    def _change(self, kind: ChangeKind, option: MachineOption, replicas: int, tensor: int, limit: int) -> ServiceChange:
        each = int(dict(option.run.layout_fields).get("replicas_per_node", 1))
        machines, p95 = self.machines(replicas, each), option.latency_p95_s
        assert p95 is not None  # a service's option has one
        return ServiceChange(
            kind=kind, replicas=replicas, tensor_parallel=tensor, limit=limit, p95_s=p95, machines=machines,
            usd_per_hour=self.usd(machines),
        )  # fmt: skip


def _count(option: MachineOption) -> int:
    return int(dict(option.run.layout_fields)["replicas"])
