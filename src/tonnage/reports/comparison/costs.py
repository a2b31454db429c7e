"""Cost structure, cost by volume, break-even, performance."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import Total, WorkRow
from tonnage.comparison.crossings import CostCrossing, cost_at
from tonnage.planning.plan import MachineOption
from tonnage.reports.blocks import Column, Paragraph, Table
from tonnage.reports.comparison.alike_words import alike_parts
from tonnage.reports.comparison.figure_charts import (
    cost_stack_chart,
    front_charts,
    memory_charts,
)
from tonnage.reports.comparison.figures import UNKNOWN, duration, money, rate, volume
from tonnage.reports.comparison.guidance import owned_parts, speed_parts
from tonnage.reports.comparison.sections import Part, Section, Subheading
from tonnage.reports.comparison.volume_charts import counts_people, volume_charts
from tonnage.reports.ledger_blocks import source_words
from tonnage.reports.listing import Field, Fields, cell, field_table
from tonnage.reports.reasons.why_not import why_not_words
from tonnage.reports.wording import (
    render_date,
    render_gpus,
    render_machines,
    render_money,
    render_purchase,
    short,
)
from tonnage.sizing.estimates import Figure

LEAST_SHOWN_USD: Final = Decimal("0.01")


def cost_section(comparison: Comparison) -> Section:
    """Totals a month, then the lines they are made of, then what set-up costs."""
    parts: list[Part] = [
        Paragraph(
            text="Dollars with 80 % intervals. Machines, fees and tokens are computed by the planner; people-hours are "
            "judgements with their range, at the team's rate.",
            tone="faint",
        ),
        _total_table(comparison),
        *((stack,) if (stack := cost_stack_chart(comparison)) is not None else ()),
        Subheading(text="Lines of the cheapest way"),
        Paragraph(text="Dollars of one job; of a month of a service.", tone="faint"),
        _line_table(comparison),
    ]
    missing = [(name, row) for name, total in comparison.totals.items() for row in total.rows if row.option is None]
    if missing:
        rows = tuple((comparison.title_of[name], row.work, why_not_words(row.why_not)) for name, row in missing)
        columns = (Column(title="Alternative"), Column(title="Work"), Column(title="Why", wraps=True))
        parts += [Subheading(text="Not computed"), Table(columns=columns, rows=rows)]
    parts += owned_parts(comparison)
    return Section(key="costs", title="Cost structure", parts=tuple(parts))


def _total_table(comparison: Comparison) -> Table:
    fields: Fields[Total] = (
        cell("Alternative", lambda one: comparison.title_of[one.alternative]),
        cell("Run a month", lambda one: money(one.run_usd_per_month), right=True),
        cell("People a month", lambda one: money(one.people_usd_per_month), right=True),
        cell("Together a month", lambda one: money(one.usd_per_month), right=True),
        cell("Set-up, once", lambda one: money(one.setup_usd), right=True),
        cell("Oldest price", _oldest, right=True, wraps=True),
    )
    return field_table(fields, list(comparison.totals.values()))


def _oldest(total: Total) -> str:
    """The earliest day a price of the cheapest options was read; how many lines carry no date."""
    days = [line.read_on for row in total.rows if row.option for line in row.option.ledger.lines]
    known = [day for day in days if day is not None]
    undated = f"{len(days) - len(known)} of {len(days)} lines undated" if len(known) < len(days) else ""
    return ", ".join(filter(None, (min(known).isoformat() if known else "", undated))) or UNKNOWN


def _line_table(comparison: Comparison) -> Table:
    """The lines of the cheapest way, each with its price's day and source; those under a cent together."""
    rows = []
    for alternative in comparison.request.alternatives:
        for row in comparison.totals[alternative.name].rows:
            lines = row.option.ledger.lines if row.option else ()
            rows += [
                (
                    alternative.title,
                    row.work,
                    line.what,
                    f"{short(float(line.quantity), 4)} {line.unit}",
                    f"${line.usd_per_unit:,}",
                    render_money(float(line.usd)),
                    render_date(line.read_on),
                    source_words(line),
                )
                for line in lines
                if line.usd >= LEAST_SHOWN_USD
            ]
            rest = [line.usd for line in lines if line.usd < LEAST_SHOWN_USD]
            if rest and sum(rest) >= LEAST_SHOWN_USD:
                left = render_money(float(sum(rest)))
                rows.append((alternative.title, row.work, f"{len(rest)} lines under a cent", "", "", left, "", ""))
    titles = ("Alternative", "Work", "Line", "Quantity", "A unit", "Dollars", "Price read", "Source")
    right = {"Quantity", "A unit", "Dollars"}
    columns = tuple(
        Column(title=title, align="right" if title in right else "left", wraps=title in ("Line", "Source"))
        for title in titles
    )
    return Table(columns=columns, rows=tuple(rows))


def volume_section(comparison: Comparison) -> Section:
    """Cost at other volumes, and where the cheaper one changes."""
    factors = comparison.request.volume_factors
    rows = []
    for name in comparison.able:
        total = comparison.totals[name]
        rows.append((comparison.title_of[name], *(_at(total_figure(comparison, name, factor)) for factor in factors)))
        assert total.can_do
    columns = (Column(title="Dollars a month"), *(Column(title=volume(factor), align="right") for factor in factors))
    parts: list[Part] = [
        Paragraph(
            text=f"People {'included' if counts_people(comparison) else 'not counted'}. A service is planned again at "
            "each volume; a job runs so many times more often.",
            tone="faint",
        )
    ]
    if rows:
        parts.append(Table(columns=columns, rows=tuple(rows)))
    parts += [*volume_charts(comparison), Subheading(text="Break-even"), *_break_even_parts(comparison)]
    return Section(key="volume", title="Cost by volume and break-even", parts=tuple(parts))


def total_figure(comparison: Comparison, name: str, factor: float) -> Figure | None:
    """Dollars a month of one alternative at a multiple of the stated volume; None where it cannot carry it."""
    total = comparison.totals[name]
    value, low, high = (cost_at(total, factor, end) for end in ("value", "low", "high"))
    return Figure(value=value, low=low, high=high) if math.isfinite(value + low + high) else None


def _at(figure: Figure | None) -> str:
    return "cannot carry it" if figure is None else money(figure)


def _break_even_parts(comparison: Comparison) -> list[Part]:
    if not comparison.crossings:
        return [Paragraph(text="Fewer than two of them can do any of the work: there is nothing to cross.")]
    parts: list[Part] = []
    crossing = [one for one in comparison.crossings if one.factor is not None]
    if crossing:
        note = "Intervals: one side at the low end of its cost and the other at its high end, so as wide as it gets."
        parts += [field_table(crossing_fields(comparison), crossing), Paragraph(text=note, tone="faint")]
    never = _never_rows(comparison)
    if never:
        said = (Column(title="Work"), Column(title="Always costs less"), Column(title="Than", wraps=True))
        parts += [Paragraph(text="No break-even at any volume looked at:"), Table(columns=said, rows=never)]
    return parts


def crossing_fields(comparison: Comparison) -> Fields[CostCrossing]:
    """A break-even; `factor` None: there is none at any volume."""
    title = comparison.title_of.__getitem__
    return (
        Field("work", lambda one: one.work or None, title="Work", show=lambda work: work or _whole(comparison)),
        Field("first", lambda one: one.first, title="One", show=title),
        Field("second", lambda one: one.second, title="Other", show=title),
        Field("volume_factor", lambda one: one.factor),
        Field("low", lambda one: one.low),
        Field("high", lambda one: one.high),
        Field("cheaper_above", lambda one: one.cheaper_above),
        cell("Break-even", lambda one: crossing_words(comparison, one), wraps=True),
        Field("method", lambda one: one.method, title="Found"),
    )


def _whole(comparison: Comparison) -> str:
    """What a break-even is of, where it is not one workload by itself."""
    return "all, people included" if counts_people(comparison) else "all"


def _never_rows(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """For each work and each alternative: what costs more than it at every volume."""
    dearer: dict[tuple[str, str], list[str]] = {}
    for one in comparison.crossings:
        if one.factor is None:
            other = one.second if one.cheaper_above == one.first else one.first
            dearer.setdefault((one.work, one.cheaper_above), []).append(comparison.title_of[other])
    return tuple(
        (work or _whole(comparison), comparison.title_of[alternative], ", ".join(others))
        for (work, alternative), others in dearer.items()
    )


def crossing_words(comparison: Comparison, one: CostCrossing) -> str:
    """Where it crosses, in multiples and in requests or jobs a month."""
    cheaper = comparison.title_of[one.cheaper_above]
    assert one.factor is not None
    interval = (
        f" ({short(one.low)}x–{short(one.high)}x)"
        if one.low is not None and one.high is not None
        else " (open: at an end of the intervals there is none)"
    )
    return f"{cheaper} costs less above {short(one.factor)}x the stated volume{interval}{_amount(comparison, one)}"


def _amount(comparison: Comparison, one: CostCrossing) -> str:
    """The volume itself, where it is that of one workload."""
    works = [work for work in comparison.works if one.work in ("", work.name)]
    if len(works) != 1 or one.factor is None:
        return ""
    requests = works[0].requests_per_month
    if requests is not None:
        return f": about {float(f'{requests * one.factor:.3g}'):,.0f} requests a month"
    assert works[0].jobs_per_month is not None
    return f": {short(works[0].jobs_per_month * one.factor)} jobs a month"


def performance_section(comparison: Comparison) -> Section:
    """The cheapest option of each alternative for each work: machine, time, latency, rate."""
    fields: Fields[WorkRow] = (
        cell("Alternative", lambda row: comparison.title_of[row.alternative]),
        cell("Work", lambda row: row.work),
        cell("Cheapest way", _way, wraps=True),
        cell(
            "Time of a job", lambda row: "runs all the time" if row.option and row.is_service else duration(row.time_s)
        ),
        cell("p95", lambda row: duration(row.latency_p95_s) if row.option is None or row.is_service else "—"),
        cell("Rate", lambda row: rate(row.rate)),
        cell("Dollars a job or month", lambda row: UNKNOWN if row.option is None else money(row.option.cost_usd)),
        cell("Options", lambda row: f"{row.options:,}" if row.option else "0"),
    )
    rows = [row for total in comparison.totals.values() for row in total.rows]
    return Section(
        key="performance",
        title="Performance",
        parts=(
            Paragraph(
                text="Predicted, with 80 % intervals. Of a token API no speed is published: its p95 is what the "
                "workload file states, or «not known».",
                tone="faint",
            ),
            field_table(fields, rows),
            *alike_parts(comparison),
            *speed_parts(comparison),
            *front_charts(comparison),
            *memory_charts(comparison),
        ),
    )


def _time(row: WorkRow) -> str:
    return "runs all the time" if row.option is not None and row.is_service else duration(row.time_s)


def _way(row: WorkRow) -> str:
    """The machines of the cheapest option, how they are bought, and where."""
    option = row.option
    if option is None:
        return "none computed (see the costs)"
    machines = render_machines(option.count, option.instance_type)
    where = f"{machines}, {render_purchase(option.purchase)}, {option.provider} {option.region or ''}"
    if isinstance(option, MachineOption):
        where = f"{where.strip()} ({render_gpus(option.gpu, option.gpu_count, option.count)})"
    return where.strip()
