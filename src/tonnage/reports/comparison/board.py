"""The two pages for those who decide: question, answer, why, cost against time, what would change it, risks, moving.

Everything here is in the whole report too, with its inputs; nothing is computed that is not there.
"""

from __future__ import annotations

from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.horizons import horizon_cost
from tonnage.comparison.request import Alternative
from tonnage.comparison.verdict import Verdict
from tonnage.reports.blocks import Bullets, Column, Pairs, Paragraph, Table
from tonnage.reports.comparison.caveats import caveats, level
from tonnage.reports.comparison.drawings import Course, Courses
from tonnage.reports.comparison.figures import UNKNOWN, counted, money
from tonnage.reports.comparison.sections import Chart, Part, Section
from tonnage.reports.comparison.verdict_words import SHORT_OUT, change_words, headline, reason_words
from tonnage.reports.reasons.risks import risk_words
from tonnage.reports.wording import short
from tonnage.sizing.estimates import Figure

MOST_REASONS: Final = 3
MOST_CHANGES: Final = 4
MOST_RISKS: Final = 5
QUESTIONS: Final = ("another model", "rule")  # changes that one question settles come first


def board_sections(comparison: Comparison) -> tuple[Section, ...]:
    """The sections of the two pages, in order."""
    return (
        _answer(comparison),
        _cost(comparison),
        _changes(comparison),
        _risks(comparison),
        _moving(comparison),
        _inputs(comparison),
    )


def _answer(comparison: Comparison) -> Section:
    answer = comparison.answer
    works = ", ".join(work.name for work in comparison.works)
    alternatives = level(comparison, [alternative.name for alternative in comparison.request.alternatives])
    weeks = counted(answer.verdict.weeks, "week")
    parts: list[Part] = [
        Paragraph(text=f"Where to do {works} for {weeks}: {alternatives}?", tone="faint"),
        Paragraph(text=headline(comparison), tone="good" if answer.choice else "warning"),
    ]
    if answer.reasons:
        reasons = answer.reasons[:MOST_REASONS]
        parts.append(Bullets(items=tuple(reason_words(comparison, one) for one in reasons)))
    parts += [Paragraph(text=text, tone="warning") for text in caveats(comparison)]
    return Section(key="summary", title="The answer", parts=tuple(parts))


def _cost(comparison: Comparison) -> Section:
    verdict = comparison.answer.verdict
    rows = []
    for alternative in comparison.request.alternatives:
        total = comparison.totals[alternative.name]
        rows.append(
            (alternative.title, money(total.run_usd_per_month), money(total.people_usd_per_month),
             _entry_usd(comparison, alternative.name),
             money(_usd(verdict, alternative.name)), _standing(verdict, alternative.name))
        )  # fmt: skip
    titles = ("", "To run, a month", "People, a month", "Getting there, once", f"{counted(verdict.weeks, 'week')}", "")
    kept = [place for place in range(len(titles)) if any(row[place] != UNKNOWN for row in rows)]
    columns = tuple(
        Column(title=titles[place], align="left" if not titles[place] else "right", wraps=place == len(titles) - 1)
        for place in kept
    )
    parts: list[Part] = [Table(columns=columns, rows=tuple(tuple(row[place] for place in kept) for row in rows))]
    if (chart := horizon_chart(comparison)) is not None:
        parts.append(chart)
    return Section(key="cost", title="What it costs", parts=tuple(parts))


def _usd(verdict: Verdict, name: str) -> Figure | None:
    """Over the horizon, whether it is in the running or not."""
    found = next((one.usd for one in verdict.contenders if one.alternative == name), None)
    out = verdict.out_of(name)
    return found if out is None else out.usd


def _standing(verdict: Verdict, name: str) -> str:
    """What became of it, in a few words."""
    out = verdict.out_of(name)
    if out is not None:
        return SHORT_OUT[out.kind]
    if name == verdict.choice:
        return "chosen"
    level = next(one.level for one in verdict.contenders if one.alternative == name)
    return "costs about as much" if level else "costs more"


def _entry_usd(comparison: Comparison, name: str) -> str:
    return "none" if name == comparison.answer.inputs.origin else money(comparison.entries[name].usd)


def _changes(comparison: Comparison) -> Section:
    asked = sorted(comparison.answer.changes, key=lambda one: one.kind not in QUESTIONS)
    changes = tuple(change_words(comparison, one) for one in asked[:MOST_CHANGES])
    nothing = ("nothing that was looked at: price, people-hours, volume, horizon, rules",)
    return Section(key="changes", title="What would change it", parts=(Bullets(items=changes or nothing),))


def _risks(comparison: Comparison) -> Section:
    """Of the choice alone: those of the offers that its cost is based on, then those of its profile."""
    choice = comparison.answer.choice
    if choice is None:
        lacking = [
            f"{comparison.title_of[one.alternative]}: {SHORT_OUT[one.kind]}" for one in comparison.answer.verdict.out
        ]
        return Section(key="risks", title="Why none", parts=(Bullets(items=tuple(lacking)),))
    alternative = next(one for one in comparison.request.alternatives if one.name == choice)
    found = [
        f"{row.work} on {row.option.instance_type}: {risk_words(risk)}"
        for row in comparison.totals[choice].rows
        if row.option is not None
        for risk in row.option.risks
    ]
    risks = tuple(dict.fromkeys([*found[: MOST_RISKS - 2], *alternative.profile.risks, *found]))[:MOST_RISKS]
    return Section(key="risks", title="Risks of the choice", parts=(Bullets(items=risks or ("none is on record",)),))


def _moving(comparison: Comparison) -> Section:
    rows = _entries(comparison)
    if (plan := comparison.migration) is not None:
        weeks = [plan.weeks(end) for end in ("low", "likely", "high")]
        said = f"{weeks[1]:.0f} weeks ({weeks[0]:.0f}–{weeks[2]:.0f}), {short(plan.hours.likely)} people-hours"
        rows.append((f"planned in the full report: to {plan.target}", said))
    return Section(key="moving", title="What it takes to move", parts=(Pairs(rows=tuple(rows)),))


def _entries(comparison: Comparison) -> list[tuple[str, str]]:
    """Each alternative's, or one line where all take the same."""
    said = {comparison.title_of[name]: _entry(comparison, name) for name in comparison.entries}
    if len(said) > 1 and len(set(said.values())) == 1:
        return [("each of them", next(iter(said.values())))]
    return list(said.items())


def _entry(comparison: Comparison, name: str) -> str:
    entry = comparison.entries[name]
    if name == comparison.answer.inputs.origin:
        return "nothing: work runs there today"
    weeks = "" if entry.weeks is None else counted(float(f"{entry.weeks:.2g}"), "week")
    usd = "" if entry.usd is None else money(entry.usd)
    return ", ".join(filter(None, (usd, weeks))) or UNKNOWN


def _inputs(comparison: Comparison) -> Section:
    lines = [
        line
        for name in comparison.able
        for row in comparison.totals[name].rows
        for line in (row.option.ledger.lines if row.option is not None else ())
    ]
    days = sorted(line.read_on for line in lines if line.read_on is not None)
    undated = sum(line.read_on is None for line in lines)
    ages = f"read between {days[0].isoformat()} and {days[-1].isoformat()}" if days else "none carries a date"
    rows = (
        ("prices", f"{ages}; {undated} of {len(lines)} lines carry no date" if undated else ages),
        ("intervals", "80 %: of predictions from what measured runs missed by, of people-hours as judged"),
        ("grounds", "matrix, sources, scores, migration and assumptions stand in the full report"),
    )
    return Section(key="grounds", title="Date and sources", parts=(Pairs(rows=rows),))


STEPS: Final = 26
MOST_COURSES: Final = 6


def horizon_chart(comparison: Comparison) -> Chart | None:
    """Cost against time, moving included; None where no cost is known."""
    inputs, verdict = comparison.answer.inputs, comparison.answer.verdict
    today = None if inputs.origin is None else inputs.bills[inputs.origin]
    courses, words = [], []
    for alternative in _drawn(comparison):
        bill = inputs.bills[alternative.name]
        before = None if alternative.name == inputs.origin else today
        points = []
        for step in range(STEPS + 1):
            weeks = verdict.weeks * step / STEPS
            usd = horizon_cost(bill, weeks, today=before)
            if usd is not None:
                points.append((weeks, usd.value, usd.low, usd.high))
        if points:
            courses.append(Course(name=alternative.title, points=tuple(points)))
            words.append(f"{alternative.title}: {money(horizon_cost(bill, verdict.weeks, today=before))}")
    if not courses:
        return None
    return Chart(
        key="chart-horizon",
        title=f"Cost so far, over {counted(verdict.weeks, 'week')}",
        note="Moving or set-up first, then running and people. Bands: 80 % intervals.",
        text="; ".join(words),
        drawing=Courses(courses=tuple(courses), x_title="weeks from now", y_title="dollars so far"),
    )


def _drawn(comparison: Comparison) -> list[Alternative]:
    """The alternatives that can do all the work: the choice, what runs it today and the cheapest others, as listed."""
    inputs, verdict = comparison.answer.inputs, comparison.answer.verdict
    first = [name for name in (verdict.choice, inputs.origin) if name is not None]
    known = {name: total for name in comparison.able if (total := comparison.totals[name].usd_per_month) is not None}
    order = [*first, *sorted(known, key=lambda name: known[name].value)]
    names = set([name for name in dict.fromkeys(order) if name in known][:MOST_COURSES])
    return [alternative for alternative in comparison.request.alternatives if alternative.name in names]
