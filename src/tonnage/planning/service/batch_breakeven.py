"""A batch on k spot machines beside prices per token: finish and cost for each k, and from how many items it pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.grounds import Grounds
from tonnage.planning.plan import CatalogStamp, Option
from tonnage.planning.planner import make_plan, terms_of
from tonnage.planning.service.batch_queue import QueueJob, QueueResult, expected_queue, simulate_queue
from tonnage.planning.service.crossings import find_crossings
from tonnage.planning.service.units import is_machine
from tonnage.pricing.tokens import TokenPrices
from tonnage.workload.jobs import BatchJob, Workload

MACHINES = (1, 2, 4, 8, 16, 32, 64)
CHUNK_S = 300.0  # work handed out at a time: what an interruption loses at most
CHUNKS_EACH = 8  # at least so many chunks a machine, so that none is left with a long last one
SIMULATED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """k machines: the closed form, and the mean of 20 simulated runs beside it."""

    job: QueueJob
    expected: QueueResult
    simulated_finish_s: float
    simulated_usd: float
    in_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchApi:
    """The same items through an API. `from_items`: above so many the machines are cheaper; None: never."""

    prices: TokenPrices
    usd: float
    from_items: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBreakEven:
    """The whole answer for a batch. `chosen` None: no number of machines is in time."""

    workload: Workload
    option: Option | None
    rows: tuple[QueueRow, ...]
    chosen: QueueRow | None
    apis: tuple[BatchApi, ...]
    catalog: CatalogStamp
    refused: int

    @property
    def job(self) -> BatchJob:
        assert isinstance(self.workload.job, BatchJob)
        return self.workload.job


def batch_break_even(
    workload: Workload,
    catalog: Catalog,
    prices: Sequence[TokenPrices],
    *,
    item_failure: float = 0.0,
    batch_prices: bool = True,
    cached_fraction: float = 0.0,
    seed: int = 0,
    grounds: Grounds | None = None,
) -> BatchBreakEven:
    """The cheapest machine of the plan (spot where it may be) as a queue of k machines. InputError on another kind."""
    if not isinstance(workload.job, BatchJob):
        raise InputError(f"{workload.name} is of kind {workload.kind}, not a batch", hint="kind: batch")
    plan = make_plan(workload, catalog, grounds=grounds)
    option = next((one for one in plan.choices if is_machine(one)), None)
    if option is None or option.run.time_s is None:
        return BatchBreakEven(
            workload=workload,
            option=None,
            rows=(),
            chosen=None,
            apis=(),
            catalog=plan.catalog,
            refused=len(plan.refused),
        )
    base = _queue_job(workload, option, item_failure)
    most = workload.constraints.max_nodes
    rows = tuple(_row(workload, _chunked(replace(base, machines=count)), seed) for count in MACHINES if count <= most)
    chosen = min((row for row in rows if row.in_time), key=lambda row: row.expected.usd.value, default=None)
    apis = tuple(_api(workload, workload.job, one, chosen or rows[-1], batch_prices, cached_fraction) for one in prices)
    return BatchBreakEven(
        workload=workload, option=option, rows=rows, chosen=chosen, apis=apis, catalog=plan.catalog,
        refused=len(plan.refused),
    )  # fmt: skip


def _queue_job(workload: Workload, option: Option, item_failure: float) -> QueueJob:
    assert isinstance(workload.job, BatchJob)
    assert option.run.time_s is not None
    terms = terms_of(workload.buy)
    rate = workload.job.items / (option.run.time_s.value * option.count)
    return QueueJob(
        items=workload.job.items,
        items_per_s=rate,
        machines=1,
        usd_per_machine_hour=option.usd_per_instance_hour,
        chunk_items=1,
        interruptions_per_hour=terms.interruptions_per_hour if option.purchase == "spot" else 0.0,
        startup_s=terms.startup_s,
        item_failure=item_failure,
    )


def _chunked(job: QueueJob) -> QueueJob:
    """With chunks of five minutes, smaller where that leaves a machine fewer than eight."""
    return replace(
        job, chunk_items=max(1, round(min(job.items_per_s * CHUNK_S, job.items / (CHUNKS_EACH * job.machines))))
    )


def _row(workload: Workload, job: QueueJob, seed: int) -> QueueRow:
    expected = expected_queue(job)
    runs = [simulate_queue(job, seed=seed + number) for number in range(SIMULATED)]
    deadline = math.inf if workload.constraints.deadline_s is None else workload.constraints.deadline_s
    last = expected.finish_s.high if workload.constraints.held("deadline") else expected.finish_s.value
    return QueueRow(
        job=job,
        expected=expected,
        simulated_finish_s=float(np.mean([run.finish_s.value for run in runs])),
        simulated_usd=float(np.mean([run.usd.value for run in runs])),
        in_time=last <= deadline,
    )


def _api(
    workload: Workload, job: BatchJob, prices: TokenPrices, row: QueueRow, batch_prices: bool, cached: float
) -> BatchApi:
    read, written = workload.buy.tokens.of_request(job.requests)
    each = prices.usd_per_request(input_tokens=read, output_tokens=written, cached_fraction=cached, batch=batch_prices)

    def own(items: float) -> float:
        return expected_queue(_chunked(replace(row.job, items=max(round(items), 1)))).usd.value

    grid = np.geomspace(max(job.items * 1e-4, 1.0), job.items * 1e4, 97)
    found = [items for items, above in find_crossings(own, lambda items: each * items, grid) if above == "own fleet"]
    never = own(job.items * 1e4) > each * job.items * 1e4
    always = not found and not never
    return BatchApi(prices=prices, usd=each * job.items, from_items=1.0 if always else found[0] if found else None)
