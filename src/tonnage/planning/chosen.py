"""Rows of deals and node counts -> options: what may be relied on, the best of each group, what a risk would save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType
from tonnage.planning.options import OptionBuilder
from tonnage.planning.plan import MachineOption, Objective, Refusal
from tonnage.planning.priced_runs import PricedRuns, join
from tonnage.planning.quotas import covering, most_machines
from tonnage.planning.ranking import OptionLimits, choose, pareto_rows, score, within
from tonnage.planning.risks import price_risks
from tonnage.planning.shortfalls import Quotas, limit_misses
from tonnage.planning.sized import IntArray, Sized
from tonnage.planning.sized_machines import SizedMachines
from tonnage.planning.spot_columns import SpotColumns
from tonnage.planning.terms import terms_of
from tonnage.pricing.deals import Deal
from tonnage.pricing.rates import Rates
from tonnage.values import dataclass
from tonnage.workload.jobs import Constraints, ServeJob, Workload
from tonnage.workload.quotas import tightest


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a plan chooses from. `relied`: deals whose price one can rely on; `machine`: the park's index of each."""

    workload: Workload
    objective: Objective
    deals: Sequence[Deal]
    instances: Mapping[tuple[str, str], InstanceType]
    spots: SpotColumns
    machine: IntArray
    rates: Rates
    park: SizedMachines
    max_age_days: int
    expected: ExpectedPrices
    catalog: Catalog
    relied: np.ndarray

    @property
    def service(self) -> bool:
        return isinstance(self.workload.job, ServeJob)

    def options(self, priced: PricedRuns) -> tuple[list[MachineOption], list[Refusal]]:
        """The options on machines, and a refusal for each group whose every row breaks a limit. `priced`: the park's
        own table."""
        allowed = self._allowed(priced)
        built = self._built(self.park.sized, priced, np.flatnonzero(allowed).astype(np.intp))
        rejected = limit_misses(
            self.deals, self.instances, priced, self._groups(), allowed, limits_of(self.workload.constraints),
            self._quotas(), service=self.service, startup_s=terms_of(self.workload.buy).startup_s,
        )  # fmt: skip
        return built, rejected

    def best_of(
        self, sized: Sized | None, priced: PricedRuns | None = None, *, relied: bool = True
    ) -> MachineOption | None:
        """The best option of a table of the park's machines (`priced`, where it has been), at a price one can rely on,
        or at one that one cannot."""
        if sized is None:
            return None
        priced = priced or self.priced(sized)
        rows = np.flatnonzero(self._allowed(priced) & (self._relied(sized, priced) == relied)).astype(np.intp)
        if not len(rows):
            return None
        value = score(priced, self.objective, service=self.service)
        best = rows[[int(np.argmin(value[rows]))]]
        return self._builder(sized, priced).built(best, np.zeros(len(priced.run), dtype=bool))[0]

    def priced(self, sized: Sized) -> PricedRuns:
        """What a table of the park's machines costs on each deal."""
        return join(
            self.deals, self.machine, self.rates, sized, startup_s=terms_of(self.workload.buy).startup_s,
            spots=self.spots, workload=self.workload,
        )  # fmt: skip

    def _allowed(self, priced: PricedRuns) -> np.ndarray:
        allowed = within(priced, limits_of(self.workload.constraints))
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
        """The best row of each group: of those that can be relied on, where it has such; and the front of all that can,
        or of all where none can."""
        relied = self._relied(sized, priced)
        value = score(priced, self.objective, service=self.service)
        groups = self._groups()
        sure = np.isin(groups[priced.offer[rows]], groups[priced.offer[rows[relied[rows]]]])
        kept = rows[relied[rows] | ~sure]
        judged = kept[relied[kept]] if relied[kept].any() else kept
        front = np.zeros(len(priced.run), dtype=bool)
        front[judged] = pareto_rows(priced.cost_usd[judged], priced.wall_s[judged])
        shown_front = front if self.objective == "pareto" else np.zeros_like(front)
        return self._builder(sized, priced).built(choose(priced, kept, groups, value, shown_front), front)

    def _relied(self, sized: Sized, priced: PricedRuns) -> np.ndarray:
        """Rows whose price can be relied on, and whose host is known to keep up."""
        relied = self.relied[priced.offer]
        if sized.host_in_doubt is None or self.workload.constraints.trust == "any":
            return relied
        return np.asarray(relied & ~sized.host_in_doubt[priced.run])

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


def relied_on(workload: Workload, deals: Sequence[Deal], expected: ExpectedPrices, max_age_days: int) -> np.ndarray:
    """Deals without a risk of their price; all of them where the workload trusts any."""
    if workload.constraints.trust == "any":
        return np.ones(len(deals), dtype=bool)
    return np.array([_sure(workload, deal, expected, max_age_days) for deal in deals], dtype=bool)


def _sure(workload: Workload, deal: Deal, expected: ExpectedPrices, max_age_days: int) -> bool:
    if next(price_risks(workload, deal, max_age_days), None) is not None:
        return False
    return expected.doubt(deal.offer) is None


def limits_of(constraints: Constraints) -> OptionLimits:
    return OptionLimits(
        deadline_s=np.inf if constraints.deadline_s is None else constraints.deadline_s,
        budget_usd=np.inf if constraints.budget_usd is None else constraints.budget_usd,
        hold_deadline=constraints.held("deadline"),
        hold_budget=constraints.held("budget"),
    )
