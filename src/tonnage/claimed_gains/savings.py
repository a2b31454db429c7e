"""Savings of a plan: spot beside on-demand, the chosen machine beside others that hold the work, and machines that
follow the load beside the fixed fleet of the busy rate (simulated, as a plan does).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tonnage.claimed_gains.gain import Among, CheapestOnDemand, FollowingFleet, Gain, PromisedGain, Side, saved
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.plan import MachineOption, Plan
from tonnage.planning.terms import terms_of
from tonnage.scaling.planned import FleetNeed, long_enough, scaled_fleet
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import ServeJob, Traffic, Workload

Machine = tuple[str, str, int]  # provider, instance type, instances


def spot_gain(target: PromisedGain, plan: Plan, workload: Workload) -> Gain:
    """What spot saves on the machine that is cheapest so, interruptions and re-done work included.

    `plan` has options of both purchases. The same machine is compared on both; its throughput is one unknown.
    """
    if isinstance(workload.job, ServeJob) or workload.constraints.interruptible is False:
        return Gain(target=target, lack="never on spot")
    spot, on_demand = (_cheapest(plan, purchase) for purchase in ("spot", "on_demand"))
    if not spot:
        return Gain(target=target, lack="no spot price")
    pairs = [(on_demand[key], one) for key, one in spot.items() if key in on_demand]
    if not pairs:
        return Gain(target=target, lack="no on-demand price")
    relied = [pair for pair in pairs if all(one.relied_on for one in pair)]
    if not relied:
        return Gain(target=target, lack="no relied-on option", among=_among(map(_share_saved, pairs)))
    before, after = min(relied, key=lambda pair: pair[1].cost_usd.value)
    best = min((one for one in on_demand.values() if one.relied_on), key=lambda one: one.cost_usd.value)
    figure, each = saved(before.cost_usd, after.cost_usd, same_machine=True), map(_share_saved, relied)
    beside = _share_saved((best, after))
    return Gain(
        target=target, figure=figure, before=_side(before),  after=_side(after), among=_among(each),
        evidence=CheapestOnDemand(name=_name(best), saved=beside),
    )  # fmt: skip


def machine_gain(target: PromisedGain, plan: Plan, against: str | None = None) -> Gain:
    """What the cheapest relied-on machine saves beside `against` (an instance type), both bought on demand.

    Without `against` it is compared with every other machine that holds the work, each at its cheapest: the figure is
    the median, and its interval the middle 80 % of those machines. It says what choosing is worth to a team that could
    have started on any of them.
    """
    options = _cheapest(plan, "on_demand")
    ranked = sorted(
        (one for one in options.values() if one.relied_on), key=lambda one: (one.cost_usd.value, one.identity)
    )
    if not ranked:
        return Gain(target=target, lack="no relied-on option")
    best, others = ranked[0], ranked[1:]
    if against is not None:
        named = [one for one in options.values() if one.instance_type == against]
        if not named:
            return Gain(target=target, lack="not another machine's name", said=against)
        before = min(named, key=lambda one: one.cost_usd.value)
        figure = saved(before.cost_usd, best.cost_usd, same_machine=before is best)
        return Gain(target=target, figure=figure, before=_side(before), after=_side(best))
    if not others:
        return Gain(target=target, lack="no other machine")
    each = [_share_saved((one, best)) for one in others]
    low, middle, high = np.quantile(each, (0.1, 0.5, 0.9)).tolist()
    return Gain(target=target, figure=Figure(value=middle, low=low, high=high), after=_side(best), among=_among(each))


def scaling_gain(target: PromisedGain, plan: Plan, workload: Workload, *, used: float) -> Gain:
    """Machine-hours that the control law saves on the workload's traffic, for the machine of the plan's best option.

    `used`: the part of a machine's capacity that plans fill. The ends of the interval are fleets of machines as slow
    and as fast as the 80 % interval of their capacity allows. A fleet that would break the promise saves nothing, since
    the plan keeps it fixed.
    """
    job = workload.job
    if not isinstance(job, ServeJob):
        return Gain(target=target, lack="not a service")
    if job.traffic is None:
        return Gain(target=target, lack="no traffic")
    start_up_s = terms_of(workload.buy).startup_s
    if not long_enough(job.traffic, start_up_s):
        return Gain(target=target, lack="too short a trace")
    best = plan.best
    if not isinstance(best, MachineOption) or best.run.fleet is None or len(best.run.fleet.pools) != 1:
        return Gain(target=target, lack="no relied-on option")
    capacity, fleet = best.run.fleet.pools[0], best.run.fleet
    needs = [
        _need(job, each, fleet.per_machine, used=used, start_up_s=start_up_s)
        for each in (capacity.value, capacity.low, capacity.high)
    ]
    each = [_saved(job.traffic, need) for need in needs]
    shown = FollowingFleet(machine=best.instance_type, fixed=needs[0].machines)
    if needs[0].working > 1:
        law = scaled_fleet(job.traffic, needs[0])
        shown = replace(shown, least=law.least, most=law.most, kept_fraction=law.kept_fraction)
    return Gain(target=target, figure=Figure(value=each[0], low=min(each), high=max(each)), evidence=shown)


def _cheapest(plan: Plan, purchase: str) -> dict[Machine, MachineOption]:
    """Of each machine the cheapest option that is bought so; those that are relied on go before others."""
    found: dict[Machine, MachineOption] = {}
    machines = [one for one in plan.options if isinstance(one, MachineOption) and one.platform == "vm"]
    for one in sorted(machines, key=lambda one: (not one.relied_on, one.cost_usd.value)):
        if one.purchase == purchase:
            found.setdefault((one.provider, one.instance_type, one.count), one)
    return found


def _share_saved(pair: tuple[MachineOption, MachineOption]) -> float:
    before, after = pair
    return 1.0 - after.cost_usd.value / before.cost_usd.value


def _name(option: MachineOption) -> str:
    count = f"{option.count} x " if option.count > 1 else ""
    where = f" {option.region}" if option.region else ""
    return f"{count}{option.instance_type} ({option.provider}{where})"


def _side(option: MachineOption) -> Side:
    return Side(name=f"{_name(option)}, {option.purchase.replace('_', '-')}", usd=option.cost_usd)


def _among(each: Iterable[float]) -> Among:
    values = np.array(list(each))
    return Among(
        pairs=len(values), least=float(values.min()), median=float(np.median(values)), most=float(values.max())
    )


def _need(job: ServeJob, capacity_per_s: float, per_machine: int, *, used: float, start_up_s: float) -> FleetNeed:
    working = int(machines_for(replicas_for(job.rate_per_s, capacity_per_s, used=used, spare=0), per_machine))
    held = int(machines_for(replicas_for(job.rate_per_s, capacity_per_s, used=used, spare=job.spare_replicas),
                            per_machine))  # fmt: skip
    return FleetNeed(
        busy_per_s=job.rate_per_s, carries_per_s=capacity_per_s * per_machine, used=used, machines=held,
        spare=held - working, start_up_s=start_up_s,
    )  # fmt: skip


def _saved(traffic: Traffic, need: FleetNeed) -> float:
    if need.working < 2:
        return 0.0
    law = scaled_fleet(traffic, need)
    return max(0.0, 1.0 - law.share_of(need.machines)) if law.keeps else 0.0
