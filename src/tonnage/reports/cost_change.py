"""The report of `tonnage diff`: what a change costs a month, by workload and by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.planning.plan import Option
from tonnage.planning.whatif.cost_change import MOST_STEPS, ChangeSide, CostChange, KeyStep, total
from tonnage.planning.whatif.key_changes import KeyChange
from tonnage.reports.blocks import Block, Column, Heading, Page, Paragraph, Table
from tonnage.reports.plain import plain_cost, plain_number, plain_usd
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_bought, render_machines, render_money

LONGEST_VALUE = 60
_COLUMNS = ("workload", "file", "before_usd", "after_usd", "change_usd", "change_percent", "before_machine",
            "after_machine")  # fmt: skip


def cost_change_report(changes: Sequence[CostChange], *, before: str, after: str) -> Report:
    """What goes from `before` to `after` (a file, a revision, a snapshot) costs, each workload by itself."""
    return Report(
        page=lambda: _page(changes, before, after),
        document=lambda: {
            "schema": "tonnage/diff@1",
            "before": before,
            "after": after,
            "before_usd_per_month": _plain_total(changes, 0),
            "after_usd_per_month": _plain_total(changes, 1),
            "workloads": [_document(one) for one in changes],
        },
        columns=_COLUMNS,
        rows=lambda: [_row(one) for one in changes],
    )


def render_change(usd: float | None, fraction: float | None = None) -> str:
    """A change as people read it.

    >>> render_change(12.5, 0.1), render_change(-3.0), render_change(0.0, 0.0)
    ('+$12.50 (+10.0 %)', '-$3.00', 'no change')
    """
    if usd is None:
        return UNKNOWN
    if usd == 0:
        return "no change"
    sign = "+" if usd > 0 else "-"
    share = "" if fraction is None else f" ({100 * fraction:+,.1f} %)"
    return f"{sign}{render_money(abs(usd))}{share}"


def _page(changes: Sequence[CostChange], before: str, after: str) -> Page:
    blocks: list[Block] = [_summary(changes)]
    if len(changes) > 1:
        blocks.append(_total_line(changes))
    if any(one.before.runs or one.after.runs for one in changes):
        runs = next(side.runs for one in changes for side in (one.after, one.before) if side.runs)
        blocks.append(Paragraph(text=f"A training or a batch counts {_times(runs)} a month (--runs).", tone="faint"))
    for one in changes:
        blocks += _details(one)
    return Page(title=f"What changes a month, from {before} to {after}", blocks=tuple(blocks))


def _summary(changes: Sequence[CostChange]) -> Table:
    columns = (
        Column(title="workload"), Column(title="before", align="right"), Column(title="after", align="right"),
        Column(title="change a month", align="right"), Column(title="best way before", wraps=True, folds=2),
        Column(title="best way after", wraps=True, folds=1),
    )  # fmt: skip
    rows = tuple(
        (one.name, _cost(one.before), _cost(one.after), render_change(one.change_usd, one.change_fraction),
         _way(one.before), "the same" if one.same_winner else _way(one.after))
        for one in changes
    )  # fmt: skip
    return Table(columns=columns, rows=rows)


def _total_line(changes: Sequence[CostChange]) -> Paragraph:
    sums = total(changes)
    if sums is None:
        return Paragraph(text="No total: nothing fits one of them.", tone="warning")
    old, new = sums
    share = (new - old) / old if old else None
    said = render_change(new - old, share)
    return Paragraph(text=f"All {len(changes)}: {render_money(old)} to {render_money(new)} a month, {said}.")


def _details(change: CostChange) -> list[Block]:
    blocks: list[Block] = []
    if change.steps:
        columns = (Column(title="key"), Column(title="before", wraps=True), Column(title="after", wraps=True),
                   Column(title="change a month", align="right"))  # fmt: skip
        rows = [row for step in change.steps for row in _step_rows(step)]
        blocks.append(Table(columns=columns, rows=tuple(rows)))
        if len(change.steps) > 1:
            blocks.append(Paragraph(text="Each key with those above it changed already, in the file's order.",
                                    tone="faint"))  # fmt: skip
    elif change.changes:
        named = ", ".join(one.key for one in change.changes)
        why = f" (more than {MOST_STEPS}: not priced one by one)" if len(change.changes) > MOST_STEPS else ""
        blocks.append(Paragraph(text=f"Changed: {named}{why}."))
    if (kept := _kept(change)) is not None:
        blocks.append(Paragraph(text=kept, tone="faint"))
    return [Heading(text=change.name), *blocks] if blocks else []


def _step_rows(step: KeyStep) -> Iterator[tuple[str, ...]]:
    """A row a key; keys that only go together have their change on the last."""
    for one in step.changes:
        said = render_change(step.change_usd) if one is step.changes[-1] else "with the next"
        yield (one.key, _value(one.before), _value(one.after), said)


def _kept(change: CostChange) -> str | None:
    """What becomes of the machine that was best before."""
    if change.before.winner is None or change.after.winner is None or change.same_winner:
        return None
    name = _machine(change.before.winner)
    if change.kept_usd is None:
        return f"What was best, {name}, is no option any more."
    return f"What was best, {name}, would now cost {render_money(change.kept_usd)} a month."


def _cost(side: ChangeSide) -> str:
    if side.lacks is not None:
        return {"no file": "not there", "nothing fits": "nothing fits"}[side.lacks]
    return UNKNOWN if side.month_usd is None else render_money(side.month_usd.value)


def _way(side: ChangeSide) -> str:
    return UNKNOWN if side.winner is None else _machine(side.winner)


def _machine(option: Option) -> str:
    bought = render_bought(option.purchase, option.platform)
    return f"{render_machines(option.count, option.instance_type)} at {option.provider}, {bought}"


def _times(runs: float) -> str:
    return "once" if runs == 1 else f"{runs:g} times"


def _value(value: Any) -> str:
    text = UNKNOWN if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _plain_total(changes: Sequence[CostChange], side: int) -> float | int | None:
    sums = total(changes)
    return None if sums is None else plain_usd(sums[side])


def _document(change: CostChange) -> dict[str, Any]:
    return {
        "workload": change.name,
        "file": change.file,
        "before": _plain_side(change.before),
        "after": _plain_side(change.after),
        "change_usd_per_month": None if change.change_usd is None else plain_usd(change.change_usd),
        "change_percent": _percent(change),
        "same_winner": change.same_winner,
        "former_winner_usd_per_month": None if change.kept_usd is None else plain_usd(change.kept_usd),
        "changed_keys": [_plain_key(one) for one in change.changes],
        "steps": [
            {
                "keys": [one.key for one in step.changes],
                "change_usd_per_month": None if step.change_usd is None else plain_usd(step.change_usd),
            }
            for step in change.steps
        ],
    }


def _percent(change: CostChange) -> float | int | None:
    return None if change.change_fraction is None else plain_number(100 * change.change_fraction)


def _plain_key(change: KeyChange) -> dict[str, Any]:
    return {"key": change.key, "before": change.before, "after": change.after}


def _plain_side(side: ChangeSide) -> dict[str, Any]:
    winner = side.winner
    return {
        "lacks": side.lacks,
        "usd_per_month": None if side.month_usd is None else plain_cost(side.month_usd),
        "runs_per_month": side.runs,
        "winner": None
        if winner is None
        else {
            "provider": winner.provider,
            "instance_type": winner.instance_type,
            "region": winner.region,
            "purchase": winner.purchase,
            "count": winner.count,
            "platform": winner.platform,
        },
    }


def _row(change: CostChange) -> list[Any]:
    return [
        change.name, change.file, change.before.counted_usd, change.after.counted_usd, change.change_usd,
        _percent(change), _way(change.before), _way(change.after),
    ]  # fmt: skip


def summary_of(changes: Sequence[CostChange]) -> str:
    """One line, for an error."""
    sums = total(changes)
    if sums is None:
        return f"nothing fits one of {plural(len(changes), 'workload')}"
    old, new = sums
    return f"{render_money(old)} to {render_money(new)} a month, {render_change(new - old)}"
