"""Offers x sized runs: what each would cost and when it would finish, in columns over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.catalog.market import Offer
from tonnage.planning.sized import IntArray, Sized
from tonnage.pricing.interruptions import InterruptedRun, Terms, expected_run
from tonnage.sizing.estimates import Array
from tonnage.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One row per offer x node count. Wall seconds include start-up and, on spot, checkpoints and re-done work."""

    offer: IntArray
    run: IntArray  # row of the Sized columns
    nodes: Array
    wall_s: Array
    wall_low_s: Array
    wall_high_s: Array
    cost_usd: Array
    cost_low_usd: Array
    cost_high_usd: Array
    spot: np.ndarray
    interrupted: InterruptedRun


def join(
    offers: Sequence[Offer],
    machine_of_offer: IntArray,
    price: Array,
    sized: Sized,
    *,
    terms: Terms,
    service: bool,
) -> Joined:
    """All pairs of an offer and a node count its machine was sized for; prices in USD per instance-hour."""
    order = np.argsort(sized.machine, kind="stable")
    machines = sized.machine[order]
    start = np.searchsorted(machines, machine_of_offer, side="left")
    stop = np.searchsorted(machines, machine_of_offer, side="right")
    lengths = stop - start
    offer = np.repeat(np.arange(len(offers)), lengths).astype(np.intp)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    run = order[np.repeat(start, lengths) + within].astype(np.intp)

    nodes, work = sized.nodes[run], sized.work_s[run]
    spot = np.array([o.purchase == "spot" for o in offers], dtype=bool)[offer]
    expected = expected_run(work, nodes, terms)

    def wall(factor: Array | float, interruptions_per_hour: float) -> Array:
        run = expected_run(work * factor, nodes, terms, interruptions_per_hour=interruptions_per_hour)
        steady = work if service else work * factor + terms.startup_s
        return np.where(spot & (not service), run.expected_s + terms.startup_s, steady)

    middle = wall(1.0, terms.interruptions_per_hour)
    low = wall(sized.low_factor[run], terms.interruptions_low_per_hour)
    high = wall(sized.high_factor[run], terms.interruptions_high_per_hour)
    hourly = price[offer] / SECONDS_PER_HOUR
    return Joined(
        offer=offer,
        run=run,
        nodes=nodes,
        wall_s=middle,
        wall_low_s=low,
        wall_high_s=high,
        cost_usd=hourly * nodes * middle,
        cost_low_usd=hourly * sized.nodes_low[run] * low,
        cost_high_usd=hourly * sized.nodes_high[run] * high,
        spot=spot,
        interrupted=expected,
    )
