"""Offers x sized runs: what each would cost and when it would finish, in columns over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.planning.offers.spot_columns import SpotColumns, SpotEnds, spot_rows
from tonnage.planning.sized import IntArray, Sized
from tonnage.pricing.deals import Deal
from tonnage.pricing.rates import Rates, total_usd
from tonnage.pricing.spot_runs import SpotRuns
from tonnage.pricing.usage import Sessions, run_sessions
from tonnage.sizing.estimates import Array
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedRuns:
    """One row per deal x node count. Wall seconds include start-up, on spot saves, re-done work and waiting, and the
    hours between the days of a schedule."""

    offer: IntArray  # row of the deals
    run: IntArray  # row of the Sized columns
    nodes: Array
    wall_s: Array
    wall_low_s: Array
    wall_high_s: Array
    cost_usd: Array
    cost_low_usd: Array
    cost_high_usd: Array
    spot: np.ndarray
    interrupted: SpotEnds | None  # of the spot rows alone; None of a service, which goes on by its spare replicas
    interrupted_row: IntArray  # the place of a spot row there
    sessions: Sessions
    rates: Rates


def join(
    deals: Sequence[Deal],
    machine_of_deal: IntArray,
    rates: Rates,
    sized: Sized,
    *,
    startup_s: float,
    spots: SpotColumns,
    workload: Workload,
) -> PricedRuns:
    """All pairs of a deal and a node count its machine was sized for, with time and cost."""
    deal, run = _pairs(machine_of_deal, sized)
    nodes, work = sized.nodes[run], sized.work_s[run]
    spot = np.array([one.offer.purchase == "spot" for one in deals], dtype=bool)[deal]
    starts, month = _of_service(sized, workload)[:, run]
    taken = np.flatnonzero(spot)  # rows that may be interrupted
    spot_runs = spot_rows(sized, run[taken], deal[taken])

    def interrupted(factor: Array, end: str) -> SpotRuns | None:
        if workload.is_service:
            return None
        return spots.runs(replace(spot_runs, work_s=spot_runs.work_s * factor[taken]), end)

    def sessions(factor: Array, run: SpotRuns | None) -> Sessions:
        if run is None:
            return Sessions(count=starts, on_s=work, wall_s=month)
        whole = work * factor
        whole[taken] = run.billed_h * SECONDS_PER_HOUR - startup_s
        made = run_sessions(whole, startup_s, workload.buy.schedule)
        wall = made.wall_s.copy()
        wall[taken] += run.waiting_h * SECONDS_PER_HOUR
        return replace(made, wall_s=wall)

    lows, highs = sized.low_factor[run], sized.high_factor[run]
    expected = interrupted(np.ones_like(work), "value")
    least, most = interrupted(lows, "low"), interrupted(highs, "high")
    middle = sessions(np.ones_like(work), expected)
    low, high = sessions(lows, least), sessions(highs, most)
    ends = None
    if expected is not None and least is not None and most is not None:
        ends = SpotEnds(value=expected, low=least, high=most)
    row_rates = rates.take(deal)
    return PricedRuns(
        offer=deal, run=run, nodes=nodes, spot=spot, interrupted=ends, interrupted_row=np.cumsum(spot) - 1,
        sessions=middle, rates=row_rates, wall_s=middle.wall_s, wall_low_s=low.wall_s, wall_high_s=high.wall_s,
        cost_usd=total_usd(row_rates, nodes, middle, workload),
        cost_low_usd=total_usd(row_rates, sized.nodes_low[run], low, workload),
        cost_high_usd=total_usd(row_rates, sized.nodes_high[run], high, workload),
    )  # fmt: skip


def _pairs(machine_of_deal: IntArray, sized: Sized) -> tuple[IntArray, IntArray]:
    """(deal, row of the sized columns) of every deal and node count that its machine was sized for."""
    order = np.argsort(sized.machine, kind="stable")
    machines = sized.machine[order]
    start = np.searchsorted(machines, machine_of_deal, side="left")
    lengths = np.searchsorted(machines, machine_of_deal, side="right") - start
    deal = np.repeat(np.arange(len(machine_of_deal)), lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    run = order[np.repeat(start, lengths) + within]
    return deal.astype(np.intp), run.astype(np.intp)


def _of_service(sized: Sized, workload: Workload) -> Array:
    """Columns over the table: how often each machine of a service is started in a month, and the seconds of the month.
    Of other work, one start and the seconds of the work."""
    job = workload.job
    if not isinstance(job, ServeJob):
        return np.array([np.ones_like(sized.work_s), sized.work_s])
    starts = np.ones_like(sized.work_s)
    for row, fleet in sized.scaled.items():
        starts[row] = max(fleet.starts_per_day * job.hours_per_month / 24.0 / sized.nodes[row], 1.0)
    return np.array([starts, np.full_like(sized.work_s, job.hours_per_month * SECONDS_PER_HOUR)])
