"""What hand-written comparisons say beside the matrix: when to choose which, cost levers, practice, moves, commands."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import Total, WorkRow
from tonnage.comparison.decision import Answer, way_to
from tonnage.comparison.migration import Migration
from tonnage.planning.plan import MachineOption
from tonnage.reports.blocks import Bullets, Column, Pairs, Paragraph, Table
from tonnage.reports.comparison.figures import UNKNOWN, amount, counted, duration, money
from tonnage.reports.comparison.sections import CodePart, Part, Section, Subheading
from tonnage.reports.listing import Fields, cell, field_table
from tonnage.reports.reasons.comparison import missing_words
from tonnage.reports.wording import render_machines, render_purchase, short

MOST = 5  # criteria named in one line
YES_NO: Final[Mapping[Answer, str]] = MappingProxyType({"yes": "yes", "no": "no", "unknown": "not known"})
Same = TypeVar("Same", bound=Hashable)


def choosing_section(comparison: Comparison) -> Section:
    """For each alternative: the work it suits, and which answers of the rules lead to it."""
    parts: list[Part] = [
        Paragraph(text="What suits an alternative is judged; answers are of this comparison.", tone="faint")
    ]
    found: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    for alternative in comparison.request.alternatives:
        rows = [
            ("suits", "; ".join(alternative.profile.suits) or UNKNOWN),
            (
                "the rules lead here",
                " Or: ".join(_ways(comparison, alternative.name)) or "by none of their leaves by name",
            ),
        ]
        if comparison.standing.why_not(alternative.name):
            rows.append(("against it", comparison.standing.why_not(alternative.name)))
        found.append((alternative.title, tuple(rows)))
    for titles, same in alike(found):
        parts += [Subheading(text=titles), Pairs(rows=same)]
    return Section(key="when", title="When to choose which", parts=tuple(parts))


def _ways(comparison: Comparison, name: str) -> list[str]:
    """The shortest way to each leaf that means the alternative: by name, or here and now by its figures."""
    rules = comparison.decision.rules
    profile = next(one.profile.name for one in comparison.request.alternatives if one.name == name)
    out = []
    for leaf in rules.leaves.values():
        now = comparison.decision.leaf is not None and comparison.decision.leaf.name == leaf.name
        if leaf.choose in (name, profile) or (now and comparison.answer.choice == name):
            way = (
                [(step.question, step.answer) for step in comparison.decision.steps]
                if now
                else way_to(rules, leaf.name)
            )
            out.append(" ".join(f"{question.ask} {YES_NO[answer]}." for question, answer in way))
    return out


def levers_section(comparison: Comparison) -> Section:
    """What each way of buying costs, computed; then what else lowers the cost there."""
    rows = []
    for alternative in comparison.request.alternatives:
        for row in comparison.totals[alternative.name].rows:
            for one in row.purchases:
                machines = render_machines(one.count, one.instance_type)
                least = row.purchases[0].cost_usd.value
                ratio = f"{short(one.cost_usd.value / least)}x" if least > 0 else UNKNOWN
                rows.append(
                    (alternative.title, row.work, render_purchase(one.purchase), machines, money(one.cost_usd), ratio)
                )
    columns = (
        Column(title="Alternative"),
        Column(title="Work"),
        Column(title="Bought"),
        Column(title="Cheapest machine", wraps=True),
        Column(title="Dollars a job or month", align="right"),
        Column(title="Beside the cheapest", align="right"),
    )
    parts: list[Part] = [Table(columns=columns, rows=tuple(rows))] if rows else []
    for titles, said in alike(
        [(alternative.title, alternative.profile.levers) for alternative in comparison.request.alternatives]
    ):
        parts += [Subheading(text=titles), Bullets(items=said or ("none is on record",))]
    return Section(key="levers", title="What lowers the cost", parts=tuple(parts))


def alike(lists: list[tuple[str, Same]]) -> list[tuple[str, Same]]:
    """Each content once, under the titles of all that share it."""
    grouped: dict[Same, list[str]] = {}
    for title, said in lists:
        grouped.setdefault(said, []).append(title)
    return [(", ".join(titles), said) for said, titles in grouped.items()]


def practice_section(comparison: Comparison) -> Section:
    """What to do to succeed with each, and the commands to try it."""
    parts: list[Part] = [Paragraph(text="Judgements, from the profiles.", tone="faint")]
    for titles, said in alike(
        [(alternative.title, alternative.profile.practices) for alternative in comparison.request.alternatives]
    ):
        parts += [Subheading(text=titles), Bullets(items=said or ("none is on record",))]
    for alternative in comparison.request.alternatives:
        if alternative.profile.try_it:
            parts.append(Subheading(text=f"Try it: {alternative.title}"))
            files = [work.workload.file or f"{work.name}.tonnage.yaml" for work in comparison.works]
            lines = [line.replace("{workload}", files[0]) for line in alternative.profile.try_it]
            parts.append(CodePart(text="\n".join(lines) + "\n", language="sh"))
    return Section(key="practice", title="Good practice", parts=tuple(parts))


def moves_section(comparison: Comparison) -> Section:
    """Every move from one to another: effort, what it gains and loses."""
    criteria = {criterion.key: criterion.title for criterion in comparison.criteria}
    rows = []
    for plan in comparison.moves:
        before, after = comparison.scores[plan.move.origin], comparison.scores[plan.move.target]
        moved = [(key, after[key].value - before[key].value) for key in criteria if key in before and key in after]
        gains = sorted((one for one in moved if one[1] >= 1), key=lambda one: (-one[1], one[0]))[:MOST]
        losses = sorted((one for one in moved if one[1] <= -1), key=lambda one: (one[1], one[0]))[:MOST]
        weeks = [plan.weeks(end) for end in ("low", "likely", "high")]
        rows.append(
            (
                plan.origin,
                plan.target,
                f"{weeks[1]:.1f} ({weeks[0]:.1f}–{weeks[2]:.1f}) weeks",
                f"{short(plan.hours.likely)} ({short(plan.hours.low)}–{short(plan.hours.high)}) h",
                ", ".join(f"{criteria[key]} (+{change:.1f})" for key, change in gains) or "none by a point",
                ", ".join(f"{criteria[key]} ({change:.1f})" for key, change in losses) or "none by a point",
            )
        )
    columns = (
        Column(title="From"),
        Column(title="To"),
        Column(title="Time"),
        Column(title="People-hours"),
        Column(title="Gains", wraps=True),
        Column(title="Losses", wraps=True),
    )
    text = "Effort is a judgement by task, of the migration plan's templates; leads of a point or more, five at most."
    people = comparison.moves[0].move.people if comparison.moves else 1
    who = counted(people, "person", "people")
    parts: tuple[Part, ...] = (Paragraph(text=f"{text} {who}.", tone="faint"), Table(columns=columns, rows=tuple(rows)))
    return Section(key="moves", title="Moving from one to another", parts=parts)


def footprint_section(comparison: Comparison) -> Section:
    """Energy and carbon with the factors they are made of, or what is missing."""
    fields: Fields[Total] = (
        cell("Alternative", lambda one: comparison.title_of[one.alternative]),
        cell("Energy a month", lambda one: amount(one.footprint.energy_kwh, "kWh")),
        cell("CO2 equivalent a month", lambda one: amount(one.footprint.carbon_kg, "kg")),
        cell("Factors", _factors, wraps=True),
        cell("Missing", lambda one: missing_words(one.footprint.missing) or "nothing", wraps=True),
    )
    totals = list(comparison.totals.values())
    evidence = {
        one.evidence.title: one.evidence.url
        for total in totals
        for _, one in total.footprint.factors
        if one.evidence is not None
    }
    text = (
        "Devices x power limit x the fraction of it they draw x hours x PUE, then the region's grid; the machines "
        "around the devices are not counted. The fraction goes from idle, with a model loaded, to at work with the "
        "load of the service: both ends are assumptions (idle_fraction, power_fraction). "
        "What is not known is not zero: the compare file may state carbon: {grid_g_per_kwh, pue, power_fraction}."
    )
    parts: list[Part] = [Paragraph(text=text, tone="faint"), field_table(fields, totals)]
    if evidence:
        parts.append(Bullets(items=tuple(f"{title}: {url}" for title, url in sorted(evidence.items()))))
    return Section(key="footprint", title="Energy and carbon", parts=tuple(parts))


def _factors(total: Total) -> str:
    factors = (f"{name}: {f'{short(one.value)} {one.unit}'.strip()} ({one.origin})"
               for name, one in total.footprint.factors)  # fmt: skip
    return "; ".join(factors) or "none"


def owned_parts(comparison: Comparison) -> list[Part]:
    """What an hour of one's own machines is made of, as stated. Nothing where none is owned."""
    rows = []
    for alternative in comparison.request.alternatives:
        if alternative.owned is not None:
            parts = alternative.owned.usd_per_hour(dedicated=False)
            rows += [(alternative.title, part, f"${usd:,.4f}", "stated") for part, usd in parts]
            rows.append((alternative.title, "together", f"${sum(usd for _, usd in parts):,.4f}", "stated"))
    if not rows:
        return []
    columns = (
        Column(title="Alternative"),
        Column(title="Part"),
        Column(title="Dollars an hour at work, one machine", align="right"),
        Column(title="Basis"),
    )
    note = (
        "As the compare file states it. A job pays for the hours it works; a service pays for every hour, since no "
        "other work fills its idle ones."
    )
    return [
        Subheading(text="Machines of one's own"),
        Table(columns=columns, rows=tuple(rows)),
        Paragraph(text=note, tone="faint"),
    ]


def untimed(kind: str) -> str:
    """Why no way of doing the work is the fastest."""
    return "runs all the time" if kind == "serve" else "time not published"


def speed_parts(comparison: Comparison) -> list[Part]:
    """The fastest way of each alternative beside the cheapest, and what it holds in memory."""
    fields: Fields[WorkRow] = (
        cell("Alternative", lambda row: comparison.title_of[row.alternative]),
        cell("Work", lambda row: row.work),
        cell("Memory, cheapest way", _memory),
        cell("Fastest way", _fastest, wraps=True),
        cell("Time of a job", lambda row: duration(row.fastest.time_s) if row.fastest else "—"),
        cell("Dollars a job", lambda row: money(row.fastest.cost_usd) if row.fastest else "—", right=True),
    )
    rows = [row for total in comparison.totals.values() for row in total.rows if row.option is not None]
    note = "Memory: of one device, or of the host where there is none. The times further up are of the cheapest way."
    return [
        Subheading(text="Memory, and the fastest way"),
        field_table(fields, rows),
        Paragraph(text=note, tone="faint"),
    ]


def _memory(row: WorkRow) -> str:
    if not isinstance(row.option, MachineOption):
        return UNKNOWN
    run = row.option.run
    return f"{short(run.memory_gib.value)} of {short(run.memory_available_gib)} GiB"


def _fastest(row: WorkRow) -> str:
    if row.fastest is None:
        return untimed(row.kind)
    machines = render_machines(row.fastest.count, row.fastest.instance_type)
    return f"{machines}, {render_purchase(row.fastest.purchase)}"


def horizon_steps(comparison: Comparison) -> list[Part]:
    """What of the migration is done and under way when each horizon ends."""
    plan = comparison.migration
    if plan is None:
        return []
    rows = tuple(
        (f"{name} term ({counted(weeks, 'week')})", _steps(plan, weeks))
        for name, weeks in comparison.request.horizon_weeks.items()
    )
    note = f"If the move to {plan.target} is started; by the likely hours."
    return [
        Subheading(text="What to do within each horizon"),
        Paragraph(text=note, tone="faint"),
        Pairs(rows=rows),
    ]


def _steps(plan: Migration, weeks: float) -> str:
    days = 5 * weeks
    done, begun, moved = [], [], False
    for key, title, purpose in plan.phases:
        slots = [plan.slots["likely"][task.id] for task in plan.tasks if task.phase == key]
        if all(slot.end_day <= days for slot in slots):
            done.append(title)
            moved = moved or key == "cutover"
        elif any(slot.start_day < days for slot in slots):
            begun.append(f"{title} ({purpose})")
    where = f"work runs on {plan.target}" if moved else f"work still runs on {plan.origin}"
    said = [f"done: {', '.join(done)}" if done else "", f"under way: {', '.join(begun)}" if begun else ""]
    return "; ".join([where, *(one for one in said if one)])
