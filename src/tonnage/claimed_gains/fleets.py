"""What machines that follow the load save beside the fixed fleet of the busy rate: simulated, as a plan does."""

from __future__ import annotations

from dataclasses import replace

from tonnage.claimed_gains.gain import FollowingFleet, Gain, PromisedGain
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.plan import MachineOption, Plan
from tonnage.planning.terms import terms_of
from tonnage.scaling.planned import FleetNeed, long_enough, scaled_fleet
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import ServeJob, Traffic, Workload


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
