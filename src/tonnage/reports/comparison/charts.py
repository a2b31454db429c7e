"""The drawings of a comparison: cost by volume, weighted scores, the migration over time."""

from __future__ import annotations

import math
from datetime import timedelta

from tonnage.comparison.aspects import HIGHEST
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.crossings import cost_at
from tonnage.comparison.migration import Migration
from tonnage.reports.comparison.sections import Chart
from tonnage.reports.comparison.svg import Bar, Series, Span, bars_chart, gantt_chart, lines_chart
from tonnage.reports.wording import render_money


def cost_chart(comparison: Comparison) -> Chart | None:
    """Dollars a month by volume, people included, of what can do all the work."""
    factors = comparison.request.volume_factors
    series = []
    for name in comparison.able:
        total = comparison.totals[name]
        found = [
            (factor, cost_at(total, factor), cost_at(total, factor, "low"), cost_at(total, factor, "high"))
            for factor in factors
        ]
        known = tuple(point for point in found if all(math.isfinite(value) and value > 0 for value in point))
        if known:
            series.append(Series(name=comparison.title_of[name], points=known))
    if not series:
        return None
    said = "; ".join(
        f"{one.name}: " + ", ".join(f"{render_money(value)} at {factor:g}x" for factor, value, _, _ in one.points)
        for one in series
    )
    svg = lines_chart(
        "cost", "Cost by volume", said, series, x_title="multiple of the stated volume", y_title="dollars a month"
    )
    return Chart(svg=svg)


def score_chart(comparison: Comparison) -> Chart:
    """Weighted scores with what the unknown could change."""
    bars = [
        Bar(name=comparison.title_of[one.thing], value=one.total, low=one.low, high=one.high,
            label=f"{one.total:.2f} ({one.low:.2f}–{one.high:.2f})")
        for one in comparison.ranking
    ]  # fmt: skip
    said = "; ".join(f"{bar.name}: {bar.label}" for bar in bars)
    return Chart(svg=bars_chart("scores", "Weighted scores", said, bars, highest=HIGHEST, x_title="score, 1 to 5"))


def migration_chart(migration: Migration) -> Chart:
    """Tasks over working days with the likely efforts."""
    order = {phase[0]: place for place, phase in enumerate(migration.phases)}
    spans = []
    for task in migration.tasks:
        slot, (first, last) = migration.slots["likely"][task.id], migration.dates(task.id)
        spans.append(
            Span(
                name=task.title,
                start=slot.start_day,
                end=slot.end_day,
                group=order[task.phase],
                label=f"{task.title}: {first.isoformat()} to {last.isoformat()}",
                critical=task.id in migration.critical,
            )
        )
    said = "; ".join(span.label for span in spans)
    svg = gantt_chart("gantt", "Migration over time", said, spans, x_title="working days from the start")
    return Chart(svg=svg, mermaid=gantt_mermaid(migration))


def gantt_mermaid(migration: Migration) -> str:
    """The same for Markdown; what holds up the end is marked as critical."""
    lines = ["gantt", "  dateFormat YYYY-MM-DD", "  excludes weekends"]
    for key, title, _ in migration.phases:
        lines.append(f"  section {title}")
        for task in (one for one in migration.tasks if one.phase == key):
            first, last = migration.dates(task.id)
            mark = "crit, " if task.id in migration.critical else ""
            end = last + timedelta(days=1)
            lines.append(f"  {_gantt_name(task.title)} :{mark}{first.isoformat()}, {end.isoformat()}")
    return "\n".join(lines) + "\n"


def _gantt_name(text: str) -> str:
    """A task's name without the marks that end it in a Gantt chart or begin a tag in a page that draws it."""
    return "".join(" " if letter in ":;#,\n<>" else letter for letter in text)
