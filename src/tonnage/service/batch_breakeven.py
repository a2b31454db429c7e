"""A batch on k machines beside prices per token: finish and cost for each k as plans have them, and where it pays."""

from __future__ import annotations

import heapq
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
from tonnage.spot_instances.drawing import draws
from tonnage.spot_instances.hazards import HazardModel
from tonnage.units import SECONDS_PER_HOUR
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


# A machine takes what it has in flight at a time. A lost machine's items go back to the queue; spot stays away for a
# while, and the next machine starts over. An item fails with probability p and is tried again. Machines are paid while
# they live, till the queue is empty.
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """The work and the machines. Rates are of one machine; `hazard` None: machines stay."""

    items: int
    items_per_s: float
    machines: int
    usd_per_machine_hour: float
    in_flight: int
    hazard: HazardModel | None = None
    startup_s: float = 300.0
    item_failure: float = 0.0  # probability that one try fails

    def __post_init__(self) -> None:
        if min(self.items, self.machines, self.in_flight) < 1 or not self.items_per_s > 0:
            raise InputError("a queue needs items, machines and a rate above 0")
        if not 0 <= self.item_failure < 1 or self.startup_s < 0:
            raise InputError("failures lie in 0 to below 1, start-up at 0 or above")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResult:
    """When the queue is empty, and what was paid till then."""

    finish_s: float
    usd: float


def simulate_queue(job: QueueJob, *, seed: int) -> QueueResult:
    """One run of the queue."""
    return _Queue(job, np.random.default_rng(seed)).run()


class _Queue:
    """Machines, what they hold, and the items left."""

    def __init__(self, job: QueueJob, random: np.random.Generator) -> None:
        self.job, self.random, self.todo = job, random, job.items
        self.launched, self.dies = [0.0] * job.machines, [math.inf] * job.machines
        self.idle: list[int] = []
        self.events: list[tuple[float, int, int, bool]] = []  # (when, machine, items in hand, lost)
        self.paid_s = self.end_s = 0.0
        for machine in range(job.machines):
            self._launch(machine, 0.0)

    def run(self) -> QueueResult:
        working = 0
        while self.events and (self.todo or working):
            now, machine, items, lost = heapq.heappop(self.events)
            working -= items > 0
            if lost:
                self.todo += items
                self.paid_s += now - self.launched[machine]
                self._launch(machine, now + self._away_s())
            else:
                if items:
                    self.end_s = now
                    self.todo += int(self.random.binomial(items, self.job.item_failure)) if self.job.item_failure else 0
                self.idle.append(machine)
            while self.todo and self.idle:
                self._take(self.idle.pop(), now)
                working += 1
        for launched in self.launched:
            self.paid_s += max(self.end_s - launched, 0.0)
        return QueueResult(finish_s=self.end_s, usd=self.paid_s * self.job.usd_per_machine_hour / SECONDS_PER_HOUR)

    def _take(self, machine: int, now: float) -> None:
        items = min(self.job.in_flight, self.todo)
        self.todo -= items
        needs, dies = items / self.job.items_per_s, self.dies[machine]
        lost = dies < now + needs
        heapq.heappush(self.events, (max(dies, now) if lost else now + needs, machine, items, lost))

    def _launch(self, machine: int, at_s: float) -> None:
        self.launched[machine], self.dies[machine] = at_s, at_s + self._life_s()
        ready = at_s + self.job.startup_s
        lost = self.dies[machine] < ready
        heapq.heappush(self.events, (self.dies[machine] if lost else ready, machine, 0, lost))

    def _life_s(self) -> float:
        return math.inf if self.job.hazard is None else self._drawn_s(self.job.hazard, up=True)

    def _away_s(self) -> float:
        assert self.job.hazard is not None
        return self._drawn_s(self.job.hazard, up=False)

    def _drawn_s(self, hazard: HazardModel, *, up: bool) -> float:
        draw = draws(hazard.up if up else hazard.down, 1.0, np.ones(1))
        return float(draw(self.random, np.zeros(1, dtype=np.intp))[0]) * SECONDS_PER_HOUR
