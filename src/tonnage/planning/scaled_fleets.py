"""Services whose traffic is stated: machines that come and go by the control law, where that is cheaper and holds.

A fixed fleet is sized first, for the busy rate. Each fleet that may be had is then simulated under the law
(`scaling.planned`); where at least as many requests as promised find a machine below its most, and fewer machine-hours
are paid, the fleet is priced by those. Else it stays as it is, so no plan is dearer than without a law.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tonnage.planning.chosen import Choice
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.plan import RunDetail
from tonnage.planning.priced_runs import PricedRuns
from tonnage.planning.reasons.notes import FixedFleetNote, ScaledFleetNote
from tonnage.planning.sized import Sized
from tonnage.planning.terms import terms_of
from tonnage.scaling.planned import FleetNeed, ScaledFleet, long_enough, scaled_fleets
from tonnage.workload.jobs import ServeJob, Traffic

MOST_SIMULATED: Final = 24  # fleets that carry differently, those that may become the cheapest first


def with_scaling(choice: Choice, priced: PricedRuns, *, used: float) -> Sized:
    """The table of the sized machines with the fleets that the law runs for less. `priced`: the table with fixed
    fleets; `used`: the part of a machine's capacity that plans fill."""
    sized, job = choice.sized_machines.sized, choice.workload.job
    traffic = job.traffic if isinstance(job, ServeJob) else None
    start_up_s = terms_of(choice.workload.buy).startup_s
    if traffic is None or not isinstance(job, ServeJob) or job.replicas or not long_enough(traffic, start_up_s):
        return sized
    simulated = _simulated(choice, priced, job, traffic, used)
    scaled = {row: fleet for row, fleet in simulated.items() if _pays(fleet, int(sized.nodes[row]))}
    work_s = sized.work_s.copy()
    for row, fleet in scaled.items():
        work_s[row] *= fleet.share_of(int(sized.nodes[row]))

    def detail(row: int) -> RunDetail:
        found = sized.detail(row)
        if row not in simulated:
            return found
        fleet, machines = simulated[row], int(sized.nodes[row])
        if row not in scaled:
            return replace(found, notes=(*found.notes, _held(fleet, machines)))
        layout = f"{found.layout}; {fleet.least} to {fleet.most} machines by the traffic"
        return replace(found, layout=layout, notes=(*found.notes, _followed(fleet, machines)))

    return replace(sized, work_s=work_s, breakdown=detail, scaled=scaled)


def _pays(fleet: ScaledFleet, machines: int) -> bool:
    return fleet.keeps and fleet.share_of(machines) < 1.0 - 1e-6


def _held(fleet: ScaledFleet, machines: int) -> FixedFleetNote:
    return FixedFleetNote(machines=machines, kept_fraction=fleet.kept_fraction, start_up_s=fleet.start_up_s)


def _followed(fleet: ScaledFleet, machines: int) -> ScaledFleetNote:
    return ScaledFleetNote(
        least_machines=fleet.least, most_machines=fleet.most, machine_hours_per_day=fleet.machine_hours_per_day,
        fixed_machines=machines, fixed_machine_hours_per_day=24.0 * machines, kept_fraction=fleet.kept_fraction,
        start_up_s=fleet.start_up_s,
    )  # fmt: skip


def _simulated(
    choice: Choice, priced: PricedRuns, job: ServeJob, traffic: Traffic, used: float
) -> dict[int, ScaledFleet]:
    """Rows of the table with their fleet under the law, from the least that a fleet might cost: its machines follow the
    mean rate at once. Fleets that carry as much are simulated once."""
    rows = choice.available(priced)
    bound = priced.cost_usd[rows] * np.maximum(traffic.mean, 1.0 / priced.nodes[rows])
    may_follow = (priced.nodes[rows] > 1) & (priced.rates.term_h[rows] == 0)
    needs = dict[int, FleetNeed]()
    known, done = set[FleetNeed](), set[int]()
    for place in np.argsort(bound, kind="stable").tolist():
        row = int(priced.run[rows[place]])
        if not may_follow[place] or row in done:
            continue
        done.add(row)
        need = _need(choice, job, row, used)
        if need is None or (need not in known and len(known) == MOST_SIMULATED):
            continue
        known.add(need)
        needs[row] = need
    return dict(zip(needs, scaled_fleets(traffic, tuple(needs.values())), strict=True))


def _need(choice: Choice, job: ServeJob, row: int, used: float) -> FleetNeed | None:
    """None where one machine does the work, and of two pools: one that reads prompts and one that writes answers grow
    apart, which the law does not."""
    sized = choice.sized_machines.sized
    fleet = sized.detail(row).fleet
    if fleet is None or len(fleet.pools) != 1:
        return None
    each = fleet.pools[0].value
    working = int(machines_for(replicas_for(job.rate_per_s, each, used=used, spare=0), fleet.per_machine))
    machines = int(sized.nodes[row])
    if not 2 <= working <= machines:
        return None
    return FleetNeed(
        busy_per_s=job.rate_per_s, carries_per_s=each * fleet.per_machine, used=used, machines=machines,
        spare=machines - working, start_up_s=terms_of(choice.workload.buy).startup_s,
    )  # fmt: skip
