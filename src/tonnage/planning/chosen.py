"""Rows of deals and node counts -> options: what may be relied on, the best of each group, what a risk would save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType
from tonnage.planning.broken_limits import Quotas, limit_misses
from tonnage.planning.offers.quotas import covering, most_machines
from tonnage.planning.offers.spot_columns import SpotColumns
from tonnage.planning.options import OptionBuilder
from tonnage.planning.plan import MachineOption, Objective, Refusal
from tonnage.planning.priced_runs import PricedRuns, join
from tonnage.planning.ranking import OptionLimits, choose, pareto_rows, score, within
from tonnage.planning.reasons.risks import doubt_level
from tonnage.planning.risks import price_risks
from tonnage.planning.sized import IntArray, Sized
from tonnage.planning.sized_machines import SizedMachines
from tonnage.planning.terms import terms_of
from tonnage.pricing.deals import Deal
from tonnage.pricing.rates import Rates
from tonnage.values import dataclass
from tonnage.workload.jobs import Constraints, Workload
from tonnage.workload.quotas import tightest

MOST_DOUBT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a plan chooses from. `doubt`: the level of each deal's price (`DoubtLevel`); `machine`: each deal's index in
    `sized_machines`."""

    workload: Workload
    objective: Objective
    deals: Sequence[Deal]
    instances: Mapping[tuple[str, str], InstanceType]
    spots: SpotColumns
    machine: IntArray
    rates: Rates
    sized_machines: SizedMachines
    max_age_days: int
    expected: ExpectedPrices
    catalog: Catalog
    doubt: IntArray

    @property
    def service(self) -> bool:
        return self.workload.is_service

    def options(self, priced: PricedRuns) -> tuple[list[MachineOption], list[Refusal]]:
        """The options on machines, and a refusal for each group whose every row breaks a limit. `priced`: the machines'
        own table."""
        allowed = self._allowed(priced)
        built = self._built(self.sized_machines.sized, priced, np.flatnonzero(allowed).astype(np.intp))
        rejected = limit_misses(
            self.deals, self.instances, priced, self._groups(), allowed, limits_of(self.workload.constraints),
            self._quotas(), service=self.service, startup_s=terms_of(self.workload.buy).startup_s,
        )  # fmt: skip
        return built, rejected

    def best_of(
        self, sized: Sized | None, priced: PricedRuns | None = None, *, least: int = 0, most: int = 0
    ) -> MachineOption | None:
        """The best option of a table of the sized machines (`priced`, where it has been), at a price whose level of
        doubt is from `least` to `most`."""
        if sized is None:
            return None
        priced = priced or self.priced(sized)
        doubt = self._doubt(sized, priced)
        rows = np.flatnonzero(self._allowed(priced) & (doubt >= least) & (doubt <= most)).astype(np.intp)
        if not len(rows):
            return None
        value = score(priced, self.objective, service=self.service)
        best = rows[[int(np.argmin(value[rows]))]]
        return self._builder(sized, priced).built(best, np.zeros(len(priced.run), dtype=bool))[0]

    def available(self, priced: PricedRuns) -> IntArray:
        """Rows of the machines' own table that can be had, inside the quotas, whatever they cost."""
        return np.flatnonzero(np.isfinite(priced.cost_usd) & self._available(priced)).astype(np.intp)

    def priced(self, sized: Sized) -> PricedRuns:
        """What a table of the sized machines costs on each deal."""
        return join(
            self.deals, self.machine, self.rates, sized, startup_s=terms_of(self.workload.buy).startup_s,
            spots=self.spots, workload=self.workload,
        )  # fmt: skip

    def _allowed(self, priced: PricedRuns) -> np.ndarray:
        return np.asarray(within(priced, limits_of(self.workload.constraints)) & self._available(priced))

    def _available(self, priced: PricedRuns) -> np.ndarray:
        allowed = np.ones(len(priced.run), dtype=bool)
        if self.service and getattr(self.workload.job, "spare_replicas", 0) < 1:
            allowed &= ~priced.spot
        return np.asarray(allowed & (priced.nodes <= self._most()[priced.offer]))

    def _quotas(self) -> Quotas:
        quotas = self.workload.constraints.quotas
        return Quotas(
            most=self._most(),
            of=lambda deal: tightest(
                covering(quotas, deal, self.instances, self.catalog),
                self.instances[deal.offer.provider, deal.offer.instance_type],
            )[1],
        )

    def _most(self) -> np.ndarray:
        return most_machines(self.workload.constraints.quotas, self.deals, self.instances, self.catalog)

    def _built(self, sized: Sized, priced: PricedRuns, rows: IntArray) -> list[MachineOption]:
        """The best row of each group, of those least in doubt in it; and the front of those least in doubt of all."""
        doubt = self._doubt(sized, priced)
        value = score(priced, self.objective, service=self.service)
        groups = self._groups()
        least = np.full(groups.max(initial=-1) + 1, MOST_DOUBT)
        np.minimum.at(least, groups[priced.offer[rows]], doubt[rows])
        kept = rows[doubt[rows] == least[groups[priced.offer[rows]]]]
        judged = kept[doubt[kept] == doubt[kept].min(initial=MOST_DOUBT)]
        front = np.zeros(len(priced.run), dtype=bool)
        front[judged] = pareto_rows(priced.cost_usd[judged], priced.wall_s[judged])
        shown_front = front if self.objective == "pareto" else np.zeros_like(front)
        return self._builder(sized, priced).built(choose(priced, kept, groups, value, shown_front), front)

    def _doubt(self, sized: Sized, priced: PricedRuns) -> IntArray:
        """The level of doubt of each row: of its price, and the most where its host is not known to keep up."""
        doubt = self.doubt[priced.offer]
        if sized.host_in_doubt is None or self.workload.constraints.trust == "any":
            return doubt
        return np.where(sized.host_in_doubt[priced.run], MOST_DOUBT, doubt).astype(np.intp)

    def _groups(self) -> np.ndarray:
        """One number per (provider, instance type, purchase, platform), in order of first appearance."""
        numbers: dict[tuple[str, str, str, str], int] = {}
        return np.array([numbers.setdefault(deal.group, len(numbers)) for deal in self.deals], dtype=np.intp)

    def _builder(self, sized: Sized, priced: PricedRuns) -> OptionBuilder:
        return OptionBuilder(
            workload=self.workload,
            deals=self.deals,
            instances=self.instances,
            sized=sized,
            priced=priced,
            startup_s=terms_of(self.workload.buy).startup_s,
            spots=self.spots,
            service=self.service,
            max_age_days=self.max_age_days,
            expected=self.expected,
            services=self.catalog.services,
            vendors={device.name: device.vendor for device in self.catalog.accelerators},
            capacity={key: rule for rule in self.catalog.capacity for key in rule.keys},
        )


def doubt_levels(workload: Workload, deals: Sequence[Deal], expected: ExpectedPrices, max_age_days: int) -> IntArray:
    """The level of doubt of each deal's price; 0 for all where the workload trusts any."""
    if workload.constraints.trust == "any":
        return np.zeros(len(deals), dtype=np.intp)
    return np.array([_level(workload, deal, expected, max_age_days) for deal in deals], dtype=np.intp)


def _level(workload: Workload, deal: Deal, expected: ExpectedPrices, max_age_days: int) -> int:
    level = doubt_level(price_risks(workload, deal, max_age_days))
    return level if level == MOST_DOUBT or expected.doubt(deal.offer) is None else MOST_DOUBT


def limits_of(constraints: Constraints) -> OptionLimits:
    return OptionLimits(
        deadline_s=np.inf if constraints.deadline_s is None else constraints.deadline_s,
        budget_usd=np.inf if constraints.budget_usd is None else constraints.budget_usd,
        hold_deadline=constraints.held("deadline"),
        hold_budget=constraints.held("budget"),
    )
