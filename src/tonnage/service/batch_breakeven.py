"""A batch on k machines beside prices per token: finish and cost for each k as plans have them, and where it pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.layout_grid import node_counts
from tonnage.planning.plan import CatalogStamp, MachineOption
from tonnage.planning.planner import make_plan, terms_of
from tonnage.pricing.tokens import TokenPrices
from tonnage.service.batch_queue import QueueJob, simulate_queue
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, Workload

SIMULATED = 20
HALVINGS = 24  # of the logarithm of the items, where machines begin to be cheaper
FAR = 1e4  # times the items, either way, that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """k machines: the plan's option, and the mean of 20 simulated runs beside it."""

    option: MachineOption
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
    option: MachineOption | None
    rows: tuple[QueueRow, ...]
    chosen: QueueRow | None
    apis: tuple[BatchApi, ...]
    catalog: CatalogStamp
    refused: int

    @property
    def job(self) -> BatchJob:
        return self.workload.batch


def batch_break_even(
    workload: Workload,
    catalog: Catalog,
    prices: Sequence[TokenPrices],
    *,
    item_failure: float = 0.0,
    batch_prices: bool = True,
    cached_fraction: float = 0.0,
    seed: int = 0,
    calibrated: CalibratedModel | None = None,
) -> BatchBreakEven:
    """The best machine of the plan, for each number of them that the plan tries. InputError on another kind.

    A failed item is tried again, so the machines answer items / (1 - `item_failure`).
    """
    job = workload.batch
    if not 0 <= item_failure < 1:
        raise InputError("failures lie in 0 to below 1")
    calibrated = calibrated or CalibratedModel.packaged()
    tried = _with_items(workload, job.items / (1.0 - item_failure))
    plan = make_plan(tried, catalog, calibrated=calibrated)
    option = next((one for one in plan.choices if isinstance(one, MachineOption)), None)
    if option is None or option.run.time_s is None:
        return BatchBreakEven(
            workload=workload, option=None, rows=(), chosen=None, apis=(), catalog=plan.catalog,
            refused=len(plan.refused),
        )  # fmt: skip
    alone = _only(option, catalog)
    every = [_of_count(tried, alone, count, calibrated) for count in node_counts(workload.constraints.max_nodes)]
    options = [option if one.count == option.count else one for one in every if one is not None]
    rows = tuple(_row(workload, one, item_failure, seed) for one in options)
    chosen = next((row for row in rows if row.option is option), None)
    fleet = rows[-1] if chosen is None else chosen
    apis = tuple(
        _api(workload, one, alone, fleet.option.count, calibrated, batch=batch_prices, cached=cached_fraction)
        for one in prices
    )
    return BatchBreakEven(
        workload=workload, option=option, rows=rows, chosen=chosen, apis=apis, catalog=plan.catalog,
        refused=len(plan.refused),
    )  # fmt: skip


def _with_items(workload: Workload, items: float) -> Workload:
    return replace(workload, job=replace(workload.batch, items=max(math.ceil(items - 1e-9), 1)))


def _only(option: MachineOption, catalog: Catalog) -> Catalog:
    """The catalog with the offers of one option."""
    place = (option.provider, option.instance_type, option.region, option.purchase)
    offers = (one for one in catalog.offers if (one.provider, one.instance_type, one.region, one.purchase) == place)
    return replace(catalog, offers=tuple(offers))


def _of_count(workload: Workload, catalog: Catalog, count: int, calibrated: CalibratedModel) -> MachineOption | None:
    """The plan's option of so many machines, whatever the deadline and the budget."""
    limits = replace(workload.constraints, max_nodes=count, deadline_s=None, budget_usd=None)
    plan = make_plan(replace(workload, constraints=limits), catalog, objective="time", calibrated=calibrated)
    return next((one for one in plan.choices if isinstance(one, MachineOption) and one.count == count), None)


def _row(workload: Workload, option: MachineOption, item_failure: float, seed: int) -> QueueRow:
    items = workload.batch.items
    assert option.run.time_s is not None
    assert option.time_s is not None
    rate = items / (1.0 - item_failure) / (option.run.time_s.value * option.count)
    spot = option.spot
    layout = dict(option.run.layout_fields)
    flying = int(layout["concurrency"]) * int(layout["replicas_per_node"])
    job = QueueJob(
        items=items, items_per_s=rate, machines=option.count,
        usd_per_machine_hour=option.usd_per_instance_hour,
        in_flight=max(1, min(flying, items // option.count)),
        hazard=None if spot is None else spot.hazard.model, startup_s=terms_of(workload.buy).startup_s,
        item_failure=item_failure,
    )  # fmt: skip
    runs = [simulate_queue(job, seed=seed + number) for number in range(SIMULATED)]
    limits = workload.constraints
    last = option.time_s.high if limits.held("deadline") else option.time_s.value
    return QueueRow(
        option=option,
        simulated_finish_s=float(np.mean([run.finish_s for run in runs])),
        simulated_usd=float(np.mean([run.usd for run in runs])),
        in_time=last <= (math.inf if limits.deadline_s is None else limits.deadline_s),
    )


def _api(
    workload: Workload,
    prices: TokenPrices,
    alone: Catalog,
    count: int,
    calibrated: CalibratedModel,
    *,
    batch: bool,
    cached: float,
) -> BatchApi:
    job = workload.batch
    read, written = workload.buy.tokens.of_request(job.requests)
    each = prices.usd_per_request(input_tokens=read, output_tokens=written, cached_fraction=cached, batch=batch)

    def dearer(items: float) -> bool:
        """Whether machines cost more than the API for so many items."""
        option = _of_count(_with_items(workload, items), alone, count, calibrated)
        return option is None or option.cost_usd.value > each * items

    low, high = max(job.items / FAR, 1.0), job.items * FAR
    if dearer(high):
        return BatchApi(prices=prices, usd=each * job.items, from_items=None)
    if not dearer(low):
        return BatchApi(prices=prices, usd=each * job.items, from_items=1.0)
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if dearer(middle) else (low, middle)
    return BatchApi(prices=prices, usd=each * job.items, from_items=high)
