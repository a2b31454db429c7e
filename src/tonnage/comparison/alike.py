"""Speed like with like: on as many devices each, and for the same money; what each costs bought the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tonnage.comparison.computed import Total, WorkRow
from tonnage.planning.plan import Option
from tonnage.sizing.estimates import Figure, add_figures
from tonnage.values import dataclass

MOST_DEVICES: Final = 8.0  # one usual machine; of what all have up to here the most is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """One job on every alternative that can do it. None: nothing there has so many devices, or none costs so little."""

    work: str
    budget_usd: float  # a job
    within_budget: Mapping[str, Option | None]  # the fastest for that money
    devices: float | None  # None: there is no number that all with accelerators offer
    on_devices: Mapping[str, Option | None]  # the fastest on so many


def speeds_alike(totals: Mapping[str, Total]) -> tuple[Alike, ...]:
    """Each job that two alternatives or more can do, all of whose ways have a time."""
    out = []
    for place in range(len(next(iter(totals.values())).rows)):
        rows = {name: total.rows[place] for name, total in totals.items()}
        timed = {name: row for name, row in rows.items() if row.option is not None and row.time_s is not None}
        if len(timed) > 1:
            out.append(_alike(timed))
    return tuple(out)


def _alike(rows: Mapping[str, WorkRow]) -> Alike:
    """The budget is what the dearest of the cheapest ways costs, so that every alternative has one."""
    budget = max(row.option.cost_usd.value for row in rows.values() if row.option is not None)
    counts = [set(row.by_devices) for row in rows.values() if row.by_devices]
    common = sorted(set.intersection(*counts)) if len(counts) > 1 else []
    few = [count for count in common if count <= MOST_DEVICES]
    devices = few[-1] if few else (common[0] if common else None)
    return Alike(
        work=next(iter(rows.values())).work,
        budget_usd=budget,
        within_budget={name: _fastest_within(row, budget) for name, row in rows.items()},
        devices=devices,
        on_devices={name: None if devices is None else row.by_devices.get(devices) for name, row in rows.items()},
    )


def _fastest_within(row: WorkRow, budget: float) -> Option | None:
    known = [(one.time_s.value, place) for place, one in enumerate(row.front)
             if one.time_s is not None and one.cost_usd.value <= budget * (1 + 1e-9)]  # fmt: skip
    return row.front[min(known)[1]] if known else None


def with_speeds(totals: Mapping[str, Total], alike: tuple[Alike, ...]) -> dict[str, Total]:
    """The totals with the times that speed is scored by: of all jobs one after another."""
    return {
        name: replace(
            total,
            time_at_budget_s=_sum([one.within_budget.get(name) for one in alike]),
            time_on_equal_devices_s=_sum([one.on_devices.get(name) for one in alike]),
        )
        for name, total in totals.items()
    }


def _sum(options: list[Option | None]) -> Figure | None:
    return add_figures(None if one is None else one.time_s for one in options) if options else None


def bought_as(row: WorkRow, purchase: str) -> Option | None:
    """The cheapest way of a row under one purchase; None where there is none."""
    return next((one for one in row.purchases if one.purchase == purchase), None)
