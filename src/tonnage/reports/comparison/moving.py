"""The migration plan as sections, and its exports: CSV, iCalendar, Markdown check-boxes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.migration import Migration, Task
from tonnage.reports.blocks import Bullets, Column, Pairs, Paragraph, Table
from tonnage.reports.comparison.charts import migration_chart
from tonnage.reports.comparison.figures import counted, money
from tonnage.reports.comparison.sections import Checks, CodePart, Part, Section, Subheading
from tonnage.reports.comparison.verdict_words import payback_words
from tonnage.reports.listing import Field, Fields, field_keys, field_rows
from tonnage.reports.markdown import escape
from tonnage.reports.plain import dump_csv
from tonnage.reports.wording import short


def migration_section(migration: Migration, comparison: Comparison) -> Section:
    """What the move gains and loses; phases, tasks in order, time, checks, the way back, action items."""
    weeks = [migration.weeks(end) for end in ("low", "likely", "high")]
    hours = migration.hours
    last = max(migration.dates(task.id)[1] for task in migration.tasks)
    pairs = (
        ("from, to", f"{migration.origin} -> {migration.target}"),
        ("people", f"{migration.move.people}, {counted(migration.move.hours_per_day, 'hour')} a day"),
        ("effort", f"{short(hours.likely)} people-hours ({short(hours.low)}–{short(hours.high)}), judgements by task"),
        ("time", f"{weeks[1]:.1f} weeks ({weeks[0]:.1f}–{weeks[2]:.1f})"),
        ("start, end", f"{migration.start.isoformat()}, {last.isoformat()}"),
        ("longest way", " -> ".join(migration.critical)),
    )
    parts: list[Part] = [
        Pairs(rows=(*pairs, *_gains(migration, comparison))),
        migration_chart(migration),
        _task_table(migration),
    ]
    checks = [f"# {task.title}\n{check}" for task in migration.tasks for check in task.checks]
    parts += [
        Subheading(text="Acceptance checks"),
        Paragraph(
            text="Each is a command; it is met when the command ends with 0. What they read: data/ and data.sha256 as "
            "copied; under target/, for each work, NAME-measured.csv in the columns of tonnage validate, and "
            "NAME-billed-usd.json, the dollars billed for one job or for a month of the service.",
            tone="faint",
        ),
        CodePart(text="\n".join(checks) + "\n", language="sh"),
        Subheading(text="The way back"),
        Bullets(items=migration.rollback),
        Subheading(text="Action items"),
        Checks(items=tuple(_item(migration, task) for task in migration.tasks)),
        Paragraph(text=f"Hours: {migration.source}.", tone="faint"),
    ]
    return Section(key="migration", title="Migration plan", parts=tuple(parts))


def _gains(migration: Migration, comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Criteria whose score the move changes by a point or more, and what it changes a month."""
    before, after = comparison.scores[migration.move.origin], comparison.scores[migration.move.target]
    criteria = {one.key: one.title for one in comparison.criteria}
    moved = [(key, after[key].value - before[key].value) for key in criteria if key in before and key in after]
    gained = ", ".join(f"{criteria[key]} (+{change:.1f})" for key, change in moved if change >= 1)
    lost = ", ".join(f"{criteria[key]} ({change:.1f})" for key, change in moved if change <= -1)
    costs = [comparison.totals[name].usd_per_month for name in (migration.move.origin, migration.move.target)]
    once = comparison.entries[migration.move.target].usd
    return (
        ("gains", gained or "no criterion by a point or more"),
        ("losses", lost or "no criterion by a point or more"),
        ("cost a month, before and after", f"{money(costs[0])}; {money(costs[1])}"),
        ("cost of the move, once", money(once)),
        ("the move", payback_words(comparison, migration.move.target)),
    )


def _item(migration: Migration, task: Task) -> str:
    first, last = migration.dates(task.id)
    return f"{task.title} ({first.isoformat()} to {last.isoformat()})"


def _task_table(migration: Migration) -> Table:
    rows = []
    for key, title, purpose in migration.phases:
        rows.append((f"{title}: {purpose}", "", "", "", ""))
        for task in migration.tasks:
            if task.phase == key:
                first, last = migration.dates(task.id)
                hours = f"{short(task.hours.likely)} ({short(task.hours.low)}–{short(task.hours.high)})"
                wait = f" + {short(task.wait_days.likely)} days of waiting" if task.wait_days else ""
                rows.append((task.title, hours + wait, first.isoformat(), last.isoformat(), ", ".join(task.after)))
    titles = ("Task", "Hours", "Start", "End", "After")
    return Table(
        columns=tuple(Column(title=title, wraps=title in ("Task", "After")) for title in titles), rows=tuple(rows)
    )


def migration_csv(migration: Migration) -> str:
    """One row a task."""
    fields = _task_fields(migration)
    return dump_csv(field_keys(fields), field_rows(fields, migration.tasks))


def _task_fields(migration: Migration) -> Fields[Task]:
    return (
        Field("id", lambda task: task.id),
        Field("phase", lambda task: task.phase),
        Field("task", lambda task: task.title),
        Field("after", lambda task: task.after),
        *(Field(f"hours_{end}", attrgetter(f"hours.{end}"), json=_exact) for end in ("low", "likely", "high")),
        Field("wait_days_likely", lambda task: task.wait_days.likely if task.wait_days else 0, json=_exact),
        Field("start", lambda task: migration.dates(task.id)[0]),
        Field("end", lambda task: migration.dates(task.id)[1]),
        Field("end_if_slow", lambda task: migration.dates(task.id, "high")[1]),
        Field("critical", lambda task: task.id in migration.critical),
        Field("checks", lambda task: "; ".join(task.checks)),
    )


def _exact(value: float) -> float:
    return value


def migration_calendar(migration: Migration, as_of: datetime) -> str:
    """Whole-day events, one a task (RFC 5545)."""
    stamp = as_of.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tonnage//compare//EN", "CALSCALE:GREGORIAN"]
    for task in migration.tasks:
        first, last = migration.dates(task.id)
        said = f"{short(task.hours.likely)} h ({short(task.hours.low)} to {short(task.hours.high)})"
        said += "".join(f"\ncheck: {check}" for check in task.checks)
        lines += [
            "BEGIN:VEVENT",
            f"UID:{_calendar_text(task.id)}.{migration.move.origin}.{migration.move.target}@tonnage",
            f"DTSTAMP:{stamp}",
            f"DTSTART;VALUE=DATE:{first:%Y%m%d}",
            f"DTEND;VALUE=DATE:{last + timedelta(days=1):%Y%m%d}",
            f"SUMMARY:{_calendar_text(task.title)}",
            f"DESCRIPTION:{_calendar_text(said)}",
            "END:VEVENT",
        ]
    lines.append("END:VCALENDAR")
    return "".join(f"{folded}\r\n" for line in lines for folded in _folded(line))


def _calendar_text(text: str) -> str:
    for mark, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\r", ""), ("\n", "\\n")):
        text = text.replace(mark, escaped)
    return text


def _folded(line: str) -> list[str]:
    """Lines of at most 75 bytes; those that follow start with a space."""
    out, rest, room = [], line, 75
    while len(rest.encode()) > room:
        cut = room
        while len(rest[:cut].encode()) > room:
            cut -= 1
        out.append(rest[:cut])
        rest, room = " " + rest[cut:], 75
    return [*out, rest]


def _code_span(text: str) -> str:
    """Code within a line, also where it has backticks."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def migration_checklist(migration: Migration) -> str:
    """Markdown check-boxes, by phase."""
    lines = [f"# Migration: {escape(migration.origin)} to {escape(migration.target)}", ""]
    for key, title, purpose in migration.phases:
        lines += [f"## {escape(title)}: {escape(purpose)}", ""]
        for task in migration.tasks:
            if task.phase == key:
                lines.append(f"- [ ] {escape(_item(migration, task))}")
                lines += [f"  - check: {_code_span(check)}" for check in task.checks]
        lines.append("")
    return "\n".join(lines)
