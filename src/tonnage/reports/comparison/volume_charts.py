"""Cost by volume as charts: lines with their bands, and where the cheapest of all changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import Total
from tonnage.comparison.crossings import CostCrossing, cost_at, of_work
from tonnage.reports.blocks import Column, Table
from tonnage.reports.comparison.drawings import ChartMark, Curve, Curves
from tonnage.reports.comparison.figures import money, volume
from tonnage.reports.comparison.plots import shorten
from tonnage.reports.comparison.sections import Chart
from tonnage.reports.wording import render_money, short
from tonnage.sizing.estimates import Figure

STEPS: Final = 40  # of a curve
LONGEST_NAME: Final = 34


def counts_people(comparison: Comparison) -> bool:
    """Whether people's hours are in the cost of anything that can do all the work."""
    return any(comparison.totals[name].people_usd_per_month is not None for name in comparison.able)


def volume_charts(comparison: Comparison) -> Iterator[Chart]:
    """Cost by volume of all the work, people included; then of each workload by itself where lines cross there."""
    totals = {name: comparison.totals[name] for name in comparison.able}
    title = "Cost by volume, people included" if counts_people(comparison) else "Cost by volume"
    if (chart := _curves(comparison, totals, "", "chart-volume", title)) is not None:
        yield chart
    for place, work in enumerate(comparison.works if len(comparison.works) > 1 else ()):
        if any(one.work == work.name and one.factor is not None for one in comparison.crossings):
            alone = {
                name: of_work(total, place)
                for name, total in comparison.totals.items()
                if total.rows[place].option is not None
            }
            title = f"Cost by volume of {work.name} by itself"
            if (chart := _curves(comparison, alone, work.name, f"chart-volume-{place + 1}", title)) is not None:
                yield chart


def _curves(comparison: Comparison, totals: Mapping[str, Total], work: str, key: str, title: str) -> Chart | None:
    crossings = [one for one in comparison.crossings if one.work == work and _is_turn(totals, one)]
    grid = _grid(comparison, totals, [one.factor for one in crossings if one.factor])
    curves = []
    for name, total in totals.items():
        found = [(at, cost_at(total, at), cost_at(total, at, "low"), cost_at(total, at, "high")) for at in grid]
        known = tuple(point for point in found if all(math.isfinite(value) and value > 0 for value in point))
        if known:
            curves.append(Curve(name=comparison.title_of[name], points=known))
    if not curves:
        return None
    marks = tuple(
        ChartMark(x=one.factor, y=cost_at(totals[one.first], one.factor), label=_turn_words(comparison, one))
        for one in crossings if one.factor is not None
    )  # fmt: skip
    factors = comparison.request.volume_factors
    said = [
        f"{comparison.title_of[name]}: "
        + ", ".join(f"{render_money(cost_at(total, at))} at {volume(at)}" for at in factors
                    if math.isfinite(cost_at(total, at)))
        for name, total in totals.items()
    ]  # fmt: skip
    return Chart(
        key=key,
        title=title,
        note="Bands: 80 % interval. Dashed upright: from there on the one named costs least." if marks
        else "Bands: 80 % interval. The cheapest of all stays the same at every volume shown.",
        text="; ".join([*said, *(mark.label for mark in marks)]),
        drawing=Curves(
            curves=tuple(curves), marks=marks, x_title="multiple of the stated volume",
            y_title="dollars a month",
        ),
        figures=None if not work else _volume_table(comparison, totals),
    )  # fmt: skip


def _volume_table(comparison: Comparison, totals: Mapping[str, Total]) -> Table:
    factors = comparison.request.volume_factors
    rows = tuple((comparison.title_of[name], *(_at(total, factor) for factor in factors))
                 for name, total in totals.items())  # fmt: skip
    columns = (
        Column(title="Dollars a month", wraps=True),
        *(Column(title=volume(at), align="right") for at in factors),
    )
    return Table(columns=columns, rows=rows)


def _at(total: Total, factor: float) -> str:
    value, low, high = (cost_at(total, factor, end) for end in ("value", "low", "high"))
    return money(Figure(value=value, low=low, high=high)) if math.isfinite(value + low + high) else "cannot carry it"


def _is_turn(totals: Mapping[str, Total], one: CostCrossing) -> bool:
    """Whether the cheapest of all changes there, and not only the cheaper of two dear ones."""
    if one.factor is None or one.first not in totals or one.second not in totals:
        return False
    here = cost_at(totals[one.first], one.factor)
    return here <= min(cost_at(total, one.factor) for total in totals.values()) * (1 + 1e-6)


def _grid(comparison: Comparison, totals: Mapping[str, Total], turns: list[float]) -> list[float]:
    """Volumes at which the curves are computed: evenly by logarithm, and where a service was planned."""
    factors = [*comparison.request.volume_factors, *(factor * step for factor in turns for step in (0.5, 2.0))]
    low, high = min(factors), max(factors)
    planned = {one.factor for total in totals.values() for row in total.rows for one in row.at_volumes}
    services = [row for total in totals.values() for row in total.rows if row.is_service]
    if services:
        low, high = max(low, min(planned)), min(high, max(planned))
    even = [low * (high / low) ** (step / STEPS) for step in range(STEPS + 1)]
    even[-1] = high
    return sorted({*even, *(factor for factor in planned if low <= factor <= high)})


def _turn_words(comparison: Comparison, one: CostCrossing) -> str:
    cheaper = shorten(comparison.title_of[one.cheaper_above], LONGEST_NAME)
    assert one.factor is not None
    interval = " (interval open)" if one.low is None or one.high is None else f" ({short(one.low)}–{short(one.high)}x)"
    if one.low is not None and one.low == one.high:
        interval = ""
    return f"{short(one.factor)}x{interval}: {cheaper}"
