"""The parameters of «what would it take»: one dimension each, and the smallest change of it that is enough."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, log10
from typing import Literal

from tonnage.catalog import Catalog
from tonnage.planning.plan import MachineOption, Option, Plan, Refusal
from tonnage.planning.reasons.changes import (
    AnyChange,
    Discount,
    FasterGpus,
    MoreMemory,
    MoveBudget,
    MoveDeadline,
    MovePrice,
    MovePromise,
    MoveRate,
)
from tonnage.planning.reasons.flips import Dimension
from tonnage.planning.reasons.risks import Promise
from tonnage.planning.whatif.changes import edit_of
from tonnage.planning.whatif.scenario import (
    Edit,
    GroupKey,
    Scenario,
    billed_times,
    memory_times,
    price_times,
    speed_times,
    with_workload,
)
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

STEPS_PER_DOUBLING = 8  # how finely a bracket is halved: to 2^(1/2^8), 0.3 %
DIGITS = 3  # figures are proposed to three digits, rounded to the side that is enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Multiply one dimension by `factor` (above 1 or below 1, away from 1 in the direction of `limit`)."""

    dimension: Dimension
    limit: float  # the furthest factor tried
    edit: Callable[[float], Edit]
    change: Callable[[float], AnyChange]  # what `edit` does
    figure: float  # what is multiplied, in the unit that is shown: the proposed figure is rounded in that unit


def smallest_change(parameter: Parameter, is_enough: Callable[[float], bool]) -> float | None:
    """The factor nearest to 1 (to 0.3 %, then rounded outward in what is shown) that is enough; None if none is.

    Supposes that more of the parameter never undoes what less of it did; the factor returned was itself tried.
    """
    up = parameter.limit > 1
    nearer = min if up else max
    near, far = 1.0, nearer(2.0 if up else 0.5, parameter.limit)
    while not is_enough(far):
        if far == parameter.limit:
            return None
        near, far = far, nearer(far * far, parameter.limit)
    while abs(log10(far / near)) > log10(2) / 2**STEPS_PER_DOUBLING:
        middle = (near * far) ** 0.5
        near, far = (near, middle) if is_enough(middle) else (middle, far)
    rounded = round_outward(parameter.figure * far, up=up) / parameter.figure
    return rounded if is_enough(rounded) else far


def round_outward(figure: float, *, up: bool) -> float:
    """To three digits, never to the side of less.

    >>> round_outward(1234.1, up=True), round_outward(0.98765, up=False)
    (1240.0, 0.987)
    """
    if figure == 0:
        return 0.0
    scale = 10.0 ** (DIGITS - 1 - floor(log10(abs(figure))))
    return (ceil(figure * scale - 1e-9) if up else floor(figure * scale + 1e-9)) / scale


def parameters_for(loser: Option | Refusal, plan: Plan, scenario: Scenario) -> tuple[Parameter, ...]:
    """The parameters that can matter to this loser, the most telling first."""
    group: GroupKey = (loser.provider, loser.instance_type, loser.purchase, loser.platform)
    if isinstance(loser, Option):
        return _to_win(loser, group, plan)
    return _to_enter(loser, group, scenario)


def _to_win(option: Option, group: GroupKey, plan: Plan) -> tuple[Parameter, ...]:
    speed = (_speed(group),) if option.gpu else ()
    if plan.objective == "time" and plan.horizon == "job":
        return speed
    return (*_cheaper(option, group), *speed, *_sooner(option, plan))


def _cheaper(option: Option, group: GroupKey) -> tuple[Parameter, ...]:
    """A lower price of the machine; of what a platform bills by itself for it, where that is a price of its own."""
    if isinstance(option, MachineOption) and option.platform == "vm":
        return (_price(group, option.usd_per_instance_hour),)
    sku = {"bedrock": option.instance_type, "sagemaker": f"ml.{option.instance_type}"}.get(option.platform)
    if sku is None:
        return ()
    platform = option.platform
    return (
        Parameter(
            dimension="price", limit=0.001, edit=lambda x: billed_times(platform, sku, x), figure=100.0,
            change=lambda x: Discount(platform=platform, sku=sku, off_fraction=1 - x),
        ),
    )  # fmt: skip


def machine_price(option: Option, group: GroupKey, catalog: Catalog) -> tuple[Parameter, ...]:
    """Through a platform that adds a fee: a lower price of the machine in that region, the fee as it is."""
    prices = [
        float(one.usd_per_instance_hour)
        for one in catalog.offers
        if (one.provider, one.instance_type, one.purchase) == group[:3] and one.region == option.region
    ]
    if not prices:
        return ()
    usd = min(prices)
    return (
        Parameter(
            dimension="price", limit=0.001, edit=lambda x: price_times(group, x), figure=usd,
            change=lambda x: _moved_price(usd, x, "machine without fee"),
        ),
    )  # fmt: skip


def _to_enter(refusal: Refusal, group: GroupKey, scenario: Scenario) -> tuple[Parameter, ...]:
    workload, catalog = scenario.workload, scenario.catalog
    prices = [
        float(one.usd_per_instance_hour)
        for one in catalog.offers
        if (one.provider, one.instance_type) == group[:2] and group[2] in (None, one.purchase)
    ]
    cheaper = (_price(group, min(prices)),) if prices else ()
    speed = (_speed(group),) if refusal.gpu else ()
    roomier = _roomier(refusal, group, catalog)
    return {
        "memory": roomier,
        "host memory": roomier,
        "deadline": (*_deadline(workload), *speed),
        "budget": (*_budget(workload), *cheaper, *speed),
        "max_gpus": (*_rate(workload), *speed),
        "latency": (*_promises(workload), *speed),
    }.get(refusal.binding, ())


def _roomier(refusal: Refusal, group: GroupKey, catalog: Catalog) -> tuple[Parameter, ...]:
    holder: Literal["GPU", "machine"] = "GPU"
    gib = catalog.accelerator(refusal.gpu).memory_gib if refusal.gpu else None
    if refusal.gpu is None:
        holder, gib = "machine", next((one.memory_gib for one in catalog.instance_types if one.key == group[:2]), None)
    if gib is None:
        return ()
    return (
        Parameter(
            dimension="memory", limit=4096.0, edit=lambda x: memory_times(group, x), figure=gib,
            change=lambda x: MoreMemory(holder=holder, memory_gib=gib * x, before_gib=gib),
        ),
    )  # fmt: skip


def _price(group: GroupKey, usd: float) -> Parameter:
    return Parameter(
        dimension="price", limit=0.001, edit=lambda x: price_times(group, x), figure=usd,
        change=lambda x: _moved_price(usd, x, "machine"),
    )  # fmt: skip


def _moved_price(usd: float, factor: float, of: Literal["machine", "machine without fee"]) -> MovePrice:
    return MovePrice(usd_per_instance_hour=usd * factor, fall_fraction=1 - factor, of=of)


def _speed(group: GroupKey) -> Parameter:
    return Parameter(
        dimension="speed", limit=64.0, edit=lambda x: speed_times(group, x), figure=1.0,
        change=lambda x: FasterGpus(times=x),
    )  # fmt: skip


def _sooner(option: Option, plan: Plan) -> tuple[Parameter, ...]:
    """A deadline that leaves out all that is cheaper and slower: it wins if nothing cheaper is as fast."""
    if option.time_s is None:
        return ()
    ahead = [one.time_s.value for one in plan.options[: option.rank - 1] if one.time_s is not None]
    own = option.time_s.value
    if not ahead or min(ahead) <= own * 1.01:
        return ()
    first = min(ahead) / SECONDS_PER_HOUR
    return (_limit("deadline", first, own / min(ahead), _to_deadline),)


def _to_deadline(hours: float) -> AnyChange:
    return MoveDeadline(deadline_s=hours * SECONDS_PER_HOUR)


def _deadline(workload: Workload) -> tuple[Parameter, ...]:
    if not workload.constraints.deadline_s:
        return ()
    return (_limit("deadline", workload.constraints.deadline_s / SECONDS_PER_HOUR, 1e6, _to_deadline),)


def _budget(workload: Workload) -> tuple[Parameter, ...]:
    usd = workload.constraints.budget_usd
    if not usd:
        return ()
    return (_limit("budget", usd, 1e9, lambda x: MoveBudget(budget_usd=x)),)


def _rate(workload: Workload) -> tuple[Parameter, ...]:
    if not workload.is_service:
        return ()
    return (_limit("rate", workload.service.rate_per_s, 1e-6, lambda x: MoveRate(rate_per_s=x)),)


def _promises(workload: Workload) -> tuple[Parameter, ...]:
    """Each promised latency, loosened alone."""
    return tuple(_promise(promise, limit_s) for promise, limit_s in workload.job.promises.items() if limit_s)


def _promise(promise: Promise, limit_s: float) -> Parameter:
    return _limit("latency", limit_s, 1e4, lambda x: MovePromise(promise=promise, promised_s=x))


def _limit(dimension: Dimension, figure: float, furthest: float, change: Callable[[float], AnyChange]) -> Parameter:
    """A limit of the workload at `figure`, moved."""

    def edit(factor: float) -> Edit:
        made = edit_of(change(figure * factor))
        assert made is not None
        return with_workload(made)

    return Parameter(dimension=dimension, limit=furthest, edit=edit, figure=figure, change=lambda x: change(figure * x))
