"""Chosen rows -> options: ledger, intervals, risks, and what each loser would need to win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType, Offer
from tonnage.planning.joined import Joined
from tonnage.planning.plan import Objective, Option
from tonnage.planning.risks import risks_of
from tonnage.planning.sized import IntArray, Sized
from tonnage.pricing.interruptions import Terms
from tonnage.pricing.ledger import Ledger, LedgerLine, hours
from tonnage.sizing.estimates import Figure
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionBuilder:
    """Everything an option is built from; `ranked` builds them in order."""

    workload: Workload
    offers: Sequence[Offer]
    instances: Mapping[tuple[str, str], InstanceType]
    sized: Sized
    joined: Joined
    price: np.ndarray
    terms: Terms
    service: bool
    max_age_days: int
    expected: ExpectedPrices

    def ranked(self, rows: IntArray, front: np.ndarray, objective: Objective) -> tuple[Option, ...]:
        """Options for `rows` (best first), ranks and the losers' distance to the winner filled in.

        Ledgers round each line to the cent, so equal-looking options are put in the order of their printed totals.
        """
        built = [self._option(int(row), bool(front[row])) for row in rows]
        if objective == "cost":
            built.sort(key=lambda option: option.cost_usd.value)
        if not built:
            return ()
        winner = built[0]
        return tuple(
            replace(option, rank=rank, loses_by="" if rank == 1 else _loses_by(option, winner, objective))
            for rank, option in enumerate(built, start=1)
        )

    def _option(self, row: int, on_front: bool) -> Option:
        joined = self.joined
        offer = self.offers[int(joined.offer[row])]
        instance = self.instances[offer.provider, offer.instance_type]
        ledger = self._ledger(row, offer)
        total = float(ledger.total_usd)
        run = self.sized.detail(int(joined.run[row]))
        time = None
        if not self.service:
            time = Figure(
                value=float(joined.wall_s[row]),
                low=float(joined.wall_low_s[row]),
                high=float(joined.wall_high_s[row]),
                basis=run.time_s.basis if run.time_s else "computed",
            )
        cost = Figure(
            value=total,
            low=min(float(joined.cost_low_usd[row]), total),
            high=max(float(joined.cost_high_usd[row]), total),
            basis=time.basis if time else "computed",
        )
        return Option(
            rank=0,
            provider=offer.provider,
            instance_type=offer.instance_type,
            region=offer.region,
            purchase=offer.purchase,
            count=int(joined.nodes[row]),
            gpu=instance.accelerator,
            gpu_count=instance.accelerator_count,
            usd_per_instance_hour=float(self.price[int(joined.offer[row])]),
            price_read_on=offer.read_on,
            time_s=time,
            cost_usd=cost,
            ledger=ledger,
            run=run,
            risks=risks_of(self.workload, offer, instance, run, time, self.max_age_days, self.expected.doubt(offer)),
            pareto=on_front,
            loses_by="",
        )

    def _ledger(self, row: int, offer: Offer) -> Ledger:
        """Instance-hours by what they are spent on, at the discounted price."""
        joined, nodes = self.joined, float(self.joined.nodes[row])
        work = float(self.sized.work_s[int(joined.run[row])])
        spent = [("compute", work)]
        if not self.service:
            spent.append(("start-up", self.terms.startup_s))
            if joined.spot[row]:
                spent.append(("saving checkpoints", float(joined.interrupted.checkpoint_s[row])))
                spent.append(("re-done work and restarts", float(joined.interrupted.redone_s[row])))
        percent = Decimal(repr(dict(self.workload.buy.discount_percent).get(offer.provider, 0.0)))
        price = offer.usd_per_instance_hour * (Decimal(100) - percent) / Decimal(100)
        return Ledger(
            lines=tuple(
                LedgerLine(
                    what=f"{what}, {offer.instance_type} {offer.purchase.replace('_', '-')}",
                    quantity=hours(seconds * nodes / SECONDS_PER_HOUR),
                    unit="instance-hour",
                    usd_per_unit=price,
                    source=offer.source.text,
                    read_on=offer.read_on,
                    discount_percent=percent,
                )
                for what, seconds in spent
                if seconds > 0
            )
        )


def _loses_by(option: Option, winner: Option, objective: Objective) -> str:
    """How far an option is from winning, and the smallest change of its price (or speed) that would make it win."""
    if objective == "time" and option.time_s and winner.time_s:
        ratio = option.time_s.value / winner.time_s.value
        return f"takes {ratio:.2f}x the winner's time; wins if it ran {ratio:.2f}x as fast"
    cost, best = option.cost_usd.value, winner.cost_usd.value
    if cost <= best:
        return "costs the same; the winner is faster or named first"
    wanted = option.usd_per_instance_hour * best / cost
    percent = 100 * (1 - best / cost)
    faster = " (faster: on the Pareto front)" if option.pareto else ""
    return (
        f"costs {cost / best:.2f}x the winner{faster}; wins below ${wanted:.4g} an instance-hour "
        f"(now ${option.usd_per_instance_hour:.4g}, -{percent:.0f} %)"
    )
