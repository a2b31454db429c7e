"""Scores, weights and the migration as charts; money, time and memory are in `figure_charts` and `volume_charts`."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.criteria import HIGHEST
from tonnage.comparison.migration import Migration
from tonnage.comparison.scoring import WeightFlip
from tonnage.reports.comparison.drawings import ScoreBar, ScoreBars, Shift, Shifts, TaskSpan, TaskSpans
from tonnage.reports.comparison.sections import Chart
from tonnage.reports.listing import Field, Fields, cell, field_table
from tonnage.reports.wording import short
from tonnage.sizing.estimates import Figure

MOST_SHIFTS: Final = 12


def score_chart(comparison: Comparison) -> Chart | None:
    """Weighted scores with what the unknown could change; None where nothing is ranked."""
    bars = tuple(
        ScoreBar(
            name=comparison.title_of[one.alternative],
            value=Figure(value=one.total, low=one.low, high=one.high),
            label=f"{one.total:.2f} ({one.low:.2f}–{one.high:.2f})",
        )
        for one in comparison.ranking
    )
    if not bars:
        return None
    return Chart(
        key="chart-scores",
        title="Weighted scores",
        note="Whiskers: everything unknown at 1, and at 5.",
        text="; ".join(f"{bar.name}: {bar.label}" for bar in bars),
        drawing=ScoreBars(bars=bars, highest=HIGHEST, x_title="score, 1 to 5"),
    )


def sensitivity_chart(comparison: Comparison) -> Chart | None:
    """The weights nearest to changing the winner; None where none does."""
    criteria = {criterion.key: criterion.title for criterion in comparison.criteria}
    flips = comparison.flips[:MOST_SHIFTS]
    if not flips:
        return None
    shifts = tuple(
        Shift(
            name=criteria[one.criterion], label=_shift_words(comparison, one), now=one.weight_now, tie=one.weight_at_tie
        )
        for one in flips
    )
    return Chart(
        key="chart-weights",
        title="How far each weight is from changing the winner",
        note="Ring: the weight as it is. Diamond: the weight at which another wins.",
        text="; ".join(f"{one.name}: {one.label}" for one in shifts),
        drawing=Shifts(shifts=shifts, x_title="weight"),
        figures=field_table(flip_fields(comparison), flips),
    )


def flip_fields(comparison: Comparison) -> Fields[WeightFlip]:
    """A weight at which another wins."""
    criteria = {criterion.key: criterion.title for criterion in comparison.criteria}
    return (
        Field("aspect", lambda one: one.criterion, title="Criterion", show=criteria.__getitem__, wraps=True),
        Field("rival", lambda one: one.rival),
        Field("weight_now", lambda one: one.weight_now, title="Weight now", show=short, right=True),
        Field("weight_at_tie", lambda one: one.weight_at_tie),
        cell("Another wins", lambda one: f"{one.side} {short(one.weight_at_tie)}", right=True),
        cell("Which", lambda one: comparison.title_of[one.rival], wraps=True),
        Field("rival_wins", lambda one: one.side),
    )


def _shift_words(comparison: Comparison, one: WeightFlip) -> str:
    rival = comparison.title_of[one.rival]
    return f"{one.side} {short(one.weight_at_tie)} {rival} wins (now {short(one.weight_now)})"


def migration_chart(migration: Migration) -> Chart:
    """Tasks over the calendar, each with its end if all goes fast and if all goes slowly."""
    titles = {key: title for key, title, _ in migration.phases}
    spans = []
    for task in migration.tasks:
        first, last = migration.dates(task.id)
        spans.append(
            TaskSpan(
                name=task.title,
                phase=titles[task.phase],
                start=first,
                end=last,
                end_fast=migration.dates(task.id, "low")[1],
                end_slow=migration.dates(task.id, "high")[1],
                critical=task.id in migration.critical,
            )
        )
    return Chart(
        key="chart-migration",
        title="Migration over time",
        note="Outlined: it holds up the end. Whiskers: its end if all goes fast, and if all goes slowly.",
        text="; ".join(
            f"{one.name}: {one.start.isoformat()} to {one.end.isoformat()} (between {one.end_fast.isoformat()} and "
            f"{one.end_slow.isoformat()}){', holds up the end' if one.critical else ''}"
            for one in spans
        ),
        drawing=TaskSpans(spans=tuple(spans), x_title=f"day, from {migration.start.isoformat()}"),
        mermaid=gantt_mermaid(migration),
    )


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
