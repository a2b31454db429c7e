"""Offers x sized runs: what each would cost and when it would finish, in columns over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.planning.sized import IntArray, Sized
from tonnage.pricing.deals import Deal
from tonnage.pricing.interruptions import InterruptedRun, Terms, expected_run
from tonnage.pricing.rates import Rates, total_usd
from tonnage.pricing.usage import Sessions, run_sessions
from tonnage.sizing.estimates import Array
from tonnage.workload.jobs import ServeJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One row per deal x node count. Wall seconds include start-up, on spot checkpoints and re-done work, and the hours
    between the days of a schedule."""

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
    interrupted: InterruptedRun  # of the spot rows alone
    interrupted_row: IntArray  # where a spot row stands there
    sessions: Sessions
    rates: Rates


def join(
    deals: Sequence[Deal],
    machine_of_deal: IntArray,
    rates: Rates,
    sized: Sized,
    *,
    terms: Terms,
    workload: Workload,
) -> Joined:
    """All pairs of a deal and a node count its machine was sized for, with time and cost."""
    order = np.argsort(sized.machine, kind="stable")
    machines = sized.machine[order]
    start = np.searchsorted(machines, machine_of_deal, side="left")
    stop = np.searchsorted(machines, machine_of_deal, side="right")
    lengths = stop - start
    deal = np.repeat(np.arange(len(deals)), lengths).astype(np.intp)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    run = order[np.repeat(start, lengths) + within].astype(np.intp)

    nodes, work = sized.nodes[run], sized.work_s[run]
    spot = np.array([one.offer.purchase == "spot" for one in deals], dtype=bool)[deal]
    service = isinstance(workload.job, ServeJob)

    taken = np.flatnonzero(spot)  # rows that may be interrupted

    def interrupted(factor: Array | float, per_hour: float) -> InterruptedRun:
        share = factor if isinstance(factor, float) else factor[taken]
        return expected_run(work[taken] * share, nodes[taken], terms, interruptions_per_hour=per_hour)

    def sessions(factor: Array | float, run: InterruptedRun | None) -> Sessions:
        if run is None:
            return Sessions(count=np.ones_like(work), on_s=work, wall_s=work)
        whole = work * factor
        whole[taken] = run.expected_s
        return run_sessions(whole, terms.startup_s, workload.buy.schedule)

    lows, highs = sized.low_factor[run], sized.high_factor[run]
    expected = interrupted(1.0, terms.interruptions_per_hour)
    middle = sessions(1.0, None if service else expected)
    low = sessions(lows, None if service else interrupted(lows, terms.interruptions_low_per_hour))
    high = sessions(highs, None if service else interrupted(highs, terms.interruptions_high_per_hour))
    row_rates = rates.take(deal)
    return Joined(
        offer=deal,
        run=run,
        nodes=nodes,
        wall_s=middle.wall_s,
        wall_low_s=low.wall_s,
        wall_high_s=high.wall_s,
        cost_usd=total_usd(row_rates, nodes, middle, workload),
        cost_low_usd=total_usd(row_rates, sized.nodes_low[run], low, workload),
        cost_high_usd=total_usd(row_rates, sized.nodes_high[run], high, workload),
        spot=spot,
        interrupted=expected,
        interrupted_row=np.cumsum(spot) - 1,
        sessions=middle,
        rates=row_rates,
    )
