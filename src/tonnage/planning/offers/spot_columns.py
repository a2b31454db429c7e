"""Spot in a plan: how long each deal's machine is known to last, what a save takes, and the runs that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import exp
from typing import Final

import numpy as np

from tonnage.catalog.market import InstanceType
from tonnage.planning.sized import IntArray, Sized, group_numbers
from tonnage.pricing.deals import Deal
from tonnage.pricing.spot_runs import SpotRuns, SpotTerms, expected_spot_runs, mean_life_to, save_interval_h
from tonnage.sizing.estimates import Array, Figure
from tonnage.spot_instances.detail import SpotDetail
from tonnage.spot_instances.drawing import mean_h
from tonnage.spot_instances.hazards import AGES_H, NODES_EXPONENT
from tonnage.spot_instances.knowledge import SpotHazard, spot_hazard
from tonnage.spot_instances.saves import SaveRates, restore_s, save_rates, save_s, state_bytes
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

Z80: Final = 1.2816  # standard deviations to either end of an 80 % interval
ENDS: Final = {"value": 0.0, "low": -Z80, "high": Z80}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRows:
    """Sized runs on deals that may be interrupted, in columns."""

    deal: IntArray
    work_s: Array
    nodes: Array
    in_flight_s: Array  # NaN where work is saved at checkpoints
    writers: Array  # machines that each hold, and save, their part of the state

    def take(self, rows: IntArray) -> SpotRows:
        return SpotRows(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotColumns:
    """Terms of all deals (those that are not spot have terms too, unused)."""

    workload: Workload
    hazards: tuple[SpotHazard, ...]  # each kind once
    hazard: IntArray  # of each deal
    state_bytes: float
    rates: SaveRates  # of each deal's machine
    startup_s: float  # of any machine, before it reads the state

    def runs(self, rows: SpotRows, end: str = "value") -> SpotRuns:
        """Expected runs of each row; `end`: of the hazards' interval. Most rows are alike (one machine in many
        regions): each distinct one is worked out once."""
        kind = group_numbers(
            self.hazard[rows.deal],
            self.startup_h(rows.deal, rows.nodes, rows.writers),
            self.save_h(rows.deal, rows.writers),
            rows.work_s,
            rows.nodes,
            np.nan_to_num(rows.in_flight_s, nan=-1.0),
        )
        _, first = np.unique(kind, return_index=True)
        return self._distinct_runs(rows.take(first.astype(np.intp)), end).take(kind)

    def _distinct_runs(self, rows: SpotRows, end: str) -> SpotRuns:
        deal, work_s, nodes, in_flight_s = rows.deal, rows.work_s, rows.nodes, rows.in_flight_s
        keeps = np.isfinite(in_flight_s)
        terms = self._terms(rows, np.where(keeps, 1.0, nodes), keeps, end)
        work_h = work_s / SECONDS_PER_HOUR
        found = expected_spot_runs(work_h, terms, interval_h=self._interval_h(work_h, terms, keeps, in_flight_s))
        shared = keeps & (nodes > 1)
        if not shared.any():
            return found
        return replace(found, waiting_h=np.where(shared, self._shared_wait_h(deal, found), found.waiting_h))

    def _shared_wait_h(self, deal: IntArray, found: SpotRuns) -> Array:
        """Waiting of machines that share a queue: the others go on, so an absence counts at most to the end, which is
        half of the time away on average. Against simulated queues the time errs by less than a quarter (tested)."""
        down = np.array([_down_per_h(one) for one in self.hazards]).reshape(len(self.hazards), len(AGES_H))
        away = SpotTerms(
            ages_h=AGES_H, hazard_per_h=down[self.hazard[deal]], startup_h=found.billed_h, save_h=found.billed_h,
            wait_h=found.billed_h,
        )  # fmt: skip
        half = np.where(np.isfinite(found.billed_h), found.billed_h / 2.0, 0.0)
        return np.asarray(found.preemptions * mean_life_to(away, half[:, None])[:, 0])

    def _interval_h(self, work_h: Array, terms: SpotTerms, keeps: np.ndarray, in_flight_s: Array) -> Array | None:
        stated = self.workload.buy.checkpoint_interval_s
        if stated is None and not keeps.any():
            return None
        own = save_interval_h(work_h, terms) if stated is None else np.full(len(work_h), stated / SECONDS_PER_HOUR)
        return np.where(keeps, np.maximum(in_flight_s / SECONDS_PER_HOUR, 1e-6), own)

    def startup_h(self, deal: IntArray, nodes: Array, writers: Array) -> Array:
        """Hours of a start with the state read back."""
        return (self.startup_s + restore_s(self.state_bytes, self.rates.take(deal), nodes, writers)) / SECONDS_PER_HOUR

    def save_h(self, deal: IntArray, writers: Array) -> Array:
        """Hours of one save."""
        return save_s(self.state_bytes, self.rates.take(deal), writers) / SECONDS_PER_HOUR

    def _terms(self, rows: SpotRows, nodes: Array, keeps: np.ndarray, end: str) -> SpotTerms:
        kind = self.hazard[rows.deal]
        levels = np.array([_per_h(one, ENDS[end]) for one in self.hazards]).reshape(len(self.hazards), len(AGES_H))
        waits = np.array([mean_h(one.model.down, 0.0) for one in self.hazards])
        return SpotTerms(
            ages_h=AGES_H,
            hazard_per_h=levels[kind] * (nodes**NODES_EXPONENT)[:, None],
            startup_h=self.startup_h(rows.deal, rows.nodes, rows.writers),
            save_h=np.where(keeps, 0.0, self.save_h(rows.deal, rows.writers)),
            wait_h=waits[kind],
        )

    def details(self, rows: SpotRows, runs: SpotEnds, places: IntArray) -> list[SpotDetail]:
        """Columns about options, one a row, whose runs are at `places` of the columns."""
        ends = (runs.value, runs.low, runs.high)
        keeps = np.isfinite(rows.in_flight_s)
        columns = (
            self.hazard[rows.deal],
            rows.work_s / SECONDS_PER_HOUR,
            self.startup_h(rows.deal, rows.nodes, rows.writers),
            np.where(keeps, 0.0, self.save_h(rows.deal, rows.writers)),
            runs.value.interval_h[places],
            np.where(keeps, 1.0, rows.nodes),
            np.stack([one.preemptions[places] for one in ends], axis=1),
            np.stack([one.waiting_h[places] for one in ends], axis=1),
            keeps,
        )
        return [
            SpotDetail(
                hazard=self.hazards[hazard],
                work_h=work_h,
                startup_h=startup_h,
                save_h=save_h,
                interval_h=interval_h,
                nodes=int(nodes),
                preemptions=_figure(*preemptions),
                waiting_h=_figure(*waiting_h),
                keeps_items=keeps_items,
            )
            for hazard, work_h, startup_h, save_h, interval_h, nodes, preemptions, waiting_h, keeps_items in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotEnds:
    """Runs as expected, and at the ends of the 80 % interval of work and hazard together."""

    value: SpotRuns
    low: SpotRuns
    high: SpotRuns


def _per_h(hazard: SpotHazard, deviations: float) -> Array:
    up = hazard.model.up
    return exp(up.log_mean + deviations * up.log_spread) * np.array(up.per_h)


def _down_per_h(hazard: SpotHazard) -> Array:
    down = hazard.model.down
    return exp(down.log_mean) * np.array(down.per_h)


def _figure(value: float, low: float, high: float) -> Figure:
    return Figure(value=value, low=min(low, value), high=max(high, value), basis="assumed")


def spot_columns(
    deals: Sequence[Deal], instances: Mapping[tuple[str, str], InstanceType], workload: Workload, startup_s: float
) -> SpotColumns:
    """The columns of `deals`; what holds for a machine and a region is looked up once."""
    found: dict[SpotHazard, int] = {}
    hazard = []
    known: dict[tuple[str, str, str], int] = {}
    for deal in deals:
        offer = deal.offer
        place = (offer.provider, offer.instance_type, offer.region)
        if place not in known:
            one = spot_hazard(*place, instances[place[:2]].accelerator, workload.buy)
            known[place] = found.setdefault(one, len(found))
        hazard.append(known[place])
    keys = [(deal.offer.provider, deal.offer.instance_type) for deal in deals]
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    rates = save_rates([instances[key] for key in number])
    return SpotColumns(
        workload=workload,
        hazards=tuple(found),
        hazard=np.array(hazard, dtype=np.intp),
        state_bytes=state_bytes(workload.job),
        rates=rates.take(np.array([number[key] for key in keys], dtype=np.intp)),
        startup_s=startup_s,
    )


def spot_rows(sized: Sized, run: IntArray, deal: IntArray) -> SpotRows:
    """The columns of sized runs on deals, a row each."""
    flying = np.full(len(sized.machine), np.nan) if sized.in_flight_s is None else sized.in_flight_s
    writers = np.ones(len(sized.machine)) if sized.state_parts is None else sized.state_parts
    return SpotRows(
        deal=deal, work_s=sized.work_s[run], nodes=sized.nodes[run], in_flight_s=flying[run], writers=writers[run]
    )
