"""Chosen rows -> options: ledger, intervals, risks, and what each loser would need to win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog.capacity import CapacityRule
from tonnage.catalog.expected_prices import ExpectedPrices, PriceDoubt
from tonnage.catalog.market import InstanceType
from tonnage.catalog.services import ServicePrices
from tonnage.planning.offers.spot_columns import SpotColumns, spot_rows
from tonnage.planning.plan import MachineOption, RunDetail
from tonnage.planning.priced_runs import PricedRuns
from tonnage.planning.risks import risks_of
from tonnage.planning.sized import IntArray, Sized
from tonnage.pricing.deals import Deal
from tonnage.pricing.fee_estimates import Estimate
from tonnage.pricing.ledger import Ledger, Part
from tonnage.pricing.lines import MachineHours, machine_ledger
from tonnage.pricing.rates import idle_s
from tonnage.pricing.usage import billed_hours, unused_hours
from tonnage.sizing.estimates import Figure
from tonnage.spot_instances.detail import SpotDetail
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionBuilder:
    """Everything an option is built from; `built` builds them in order, without ranks."""

    workload: Workload
    deals: Sequence[Deal]
    instances: Mapping[tuple[str, str], InstanceType]
    sized: Sized
    priced: PricedRuns
    startup_s: float
    spots: SpotColumns
    service: bool
    max_age_days: int
    expected: ExpectedPrices
    services: ServicePrices
    vendors: Mapping[str, str]  # of each device
    capacity: Mapping[tuple[str, str, str], CapacityRule]  # by provider, machine and purchase

    def built(self, rows: IntArray, front: np.ndarray) -> list[MachineOption]:
        """Options for `rows`, in their order."""
        billed = billed_hours(
            self.priced.sessions,
            idle_s=idle_s(self.workload),
            quantum_s=self.priced.rates.quantum_s,
            minimum_s=self.priced.rates.minimum_s,
        )
        unused = unused_hours(billed, self.priced.rates.term_h, self.workload.buy, service=self.service)
        hourly = self.priced.rates.all_in_usd_per_h
        details = {run: self.sized.detail(run) for run in set(self.priced.run[rows].tolist())}
        doubts = {deal: self.expected.doubt(self.deals[deal].offer) for deal in set(self.priced.offer[rows].tolist())}
        reading_s, spots = self._starts_reading_s(rows), self._spots(rows)
        return [
            self._option(
                row,
                self._ledger(row, float(billed[row]), float(unused[row]), reading_s.get(row, 0.0)),
                details[int(self.priced.run[row])],
                doubts[int(self.priced.offer[row])],
                spots.get(row),
                hourly=float(hourly[row]),
                on_front=bool(front[row]),
            )
            for row in rows.tolist()
        ]

    def _option(
        self,
        row: int,
        ledger: Ledger,
        run: RunDetail,
        doubt: PriceDoubt | None,
        spot: SpotDetail | None,
        *,
        hourly: float,
        on_front: bool,
    ) -> MachineOption:
        priced = self.priced
        deal = self.deals[int(priced.offer[row])]
        offer = deal.offer
        instance = self.instances[offer.provider, offer.instance_type]
        time = self._time(row, run)
        cost = self._cost(row, ledger, deal, time)
        return MachineOption(
            rank=0,
            provider=offer.provider,
            instance_type=offer.instance_type,
            region=offer.region,
            purchase=offer.purchase,
            count=int(priced.nodes[row]),
            gpu=instance.accelerator,
            gpu_count=instance.accelerator_count,
            usd_per_instance_hour=hourly,
            price_read_on=deal.read_on,
            time_s=time,
            cost_usd=cost,
            ledger=ledger,
            run=run,
            risks=risks_of(
                self.workload,
                deal,
                instance,
                run,
                time,
                self.max_age_days,
                doubt,
                count=int(priced.nodes[row]),
                vendor=self.vendors.get(instance.accelerator or ""),
                capacity=self.capacity.get((offer.provider, offer.instance_type, offer.purchase)),
            ),
            pareto=on_front,
            loses_by=None,
            platform=deal.platform,
            spot=spot,
        )

    def _time(self, row: int, run: RunDetail) -> Figure | None:
        """Seconds on the wall, waits and sessions included; None for a service."""
        if self.service:
            return None
        priced = self.priced
        return Figure(
            value=float(priced.wall_s[row]),
            low=float(priced.wall_low_s[row]),
            high=float(priced.wall_high_s[row]),
            basis=run.time_s.basis if run.time_s else "computed",
        )

    def _cost(self, row: int, ledger: Ledger, deal: Deal, time: Figure | None) -> Figure:
        """The ledger's total in dollars, with the ends of time and of an estimated fee."""
        total = float(ledger.total_usd)
        cost = Figure(
            value=total,
            low=min(float(self.priced.cost_low_usd[row]), total),
            high=max(float(self.priced.cost_high_usd[row]), total),
            basis=time.basis if time else "computed",
        )
        if deal.fee is not None and deal.fee.estimate is not None:
            cost = with_fee_range(cost, ledger, deal.fee.estimate)
        return cost

    def _spots(self, rows: IntArray) -> dict[int, SpotDetail]:
        """Figures of the rows on spot, by row; nothing of a service."""
        priced = self.priced
        if priced.interrupted is None:
            return {}
        taken = rows[priced.spot[rows]]
        columns = spot_rows(self.sized, priced.run[taken], priced.offer[taken])
        found = self.spots.details(columns, priced.interrupted, priced.interrupted_row[taken])
        return dict(zip(taken.tolist(), found, strict=True))

    def _starts_reading_s(self, rows: IntArray) -> dict[int, float]:
        """What a start on spot takes beyond that of any machine, by row: reading the state."""
        taken = rows[self.priced.spot[rows]]
        on = spot_rows(self.sized, self.priced.run[taken], self.priced.offer[taken])
        seconds = self.spots.startup_h(on.deal, on.nodes, on.writers) * SECONDS_PER_HOUR - self.startup_s
        return dict(zip(taken.tolist(), seconds.tolist(), strict=True))

    def _ledger(self, row: int, billed_h: float, unused_h: float, reading_s: float) -> Ledger:
        """The hours of one machine by what they are spent on, then everything else."""
        priced = self.priced
        run = int(priced.run[row])
        fleet = self.sized.scaled.get(run)
        what = "compute" if fleet is None else f"compute of {fleet.least} to {fleet.most} machines, simulated"
        spent: list[tuple[str, Part, float]] = [(what, "machines", float(self.sized.work_s[run]))]
        if not self.service:
            starts = self.startup_s * float(priced.sessions.count[row])
            spent.append(("start-up", "start-up", starts + reading_s))
            if priced.spot[row]:
                place, taken_back = int(priced.interrupted_row[row]), priced.interrupted
                assert taken_back is not None
                spent.append(
                    ("saving checkpoints", "interruptions", float(taken_back.value.saving_h[place]) * SECONDS_PER_HOUR)
                )
                spent.append(
                    (
                        "re-done work and restarts",
                        "interruptions",
                        float(taken_back.value.redone_h[place]) * SECONDS_PER_HOUR,
                    )
                )
            spent.append(
                ("idle after the work", "unused hours", self.workload.buy.idle_s * float(priced.sessions.count[row]))
            )
        used = MachineHours(
            spent=tuple((what, part, seconds / SECONDS_PER_HOUR) for what, part, seconds in spent if seconds > 0),
            billed_h=billed_h,
            unused_h=unused_h,
            wall_h=float(priced.wall_s[row]) / SECONDS_PER_HOUR,
        )
        return machine_ledger(
            self.deals[int(priced.offer[row])], int(priced.nodes[row]), used, self.workload, self.services
        )


def with_fee_range(cost: Figure, ledger: Ledger, estimate: Estimate) -> Figure:
    """The cost with an interval as wide as the estimate of its platform's fee leaves it: the fee of the ledger at the
    low and high end of its dollars an hour, at the expected hours."""
    if estimate.usd_per_instance_hour <= 0:
        return cost
    fee = sum(float(line.usd) for line in ledger.lines if line.part == "platform fee")
    less = fee * (estimate.low_usd_per_instance_hour / estimate.usd_per_instance_hour - 1)
    more = fee * (estimate.high_usd_per_instance_hour / estimate.usd_per_instance_hour - 1)
    return replace(cost, low=cost.low + less, high=cost.high + more, basis="assumed")
