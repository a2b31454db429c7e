"""What each alternative has cost by each week: getting there, today's bill until then, then its own."""

from __future__ import annotations

from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.horizons import horizon_cost
from tonnage.comparison.request import Alternative
from tonnage.reports.comparison.drawings import Course, Courses
from tonnage.reports.comparison.figures import counted, money
from tonnage.reports.comparison.sections import Chart

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
