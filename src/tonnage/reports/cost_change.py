"""The report of `tonnage diff`: what a change costs a month, by workload and by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tonnage.planning.plan import Option
from tonnage.planning.whatif.cost_change import MOST_STEPS, ChangeSide, CostChange, KeyStep, total
from tonnage.planning.whatif.key_changes import KeyChange
from tonnage.reports.blocks import Block, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, named_fields
from tonnage.reports.plain import plain_cost, plain_usd
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_bought, render_machines, render_money

LONGEST_VALUE = 60


def cost_change_report(changes: Sequence[CostChange], *, before: str, after: str) -> Report:
    """What goes from `before` to `after` (a file, a revision, a snapshot) costs, each workload by itself."""
    return fields_report(
        lambda: _page(changes, before, after),
        lambda: {
            "schema": "tonnage/diff@1",
            "before": before,
            "after": after,
            "before_usd_per_month": _plain_total(changes, 0),
            "after_usd_per_month": _plain_total(changes, 1),
            "workloads": [field_values(_WORKLOAD, one) for one in changes],
        },
        _ROW,
        changes,
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
    blocks: list[Block] = [field_table(_SUMMARY, changes)]
    if len(changes) > 1:
        blocks.append(_total_line(changes))
    if any(one.before.runs or one.after.runs for one in changes):
        runs = next(side.runs for one in changes for side in (one.after, one.before) if side.runs)
        blocks.append(Paragraph(text=f"A training or a batch counts {_times(runs)} a month (--runs).", tone="faint"))
    for one in changes:
        blocks += _details(one)
    return Page(title=f"What changes a month, from {before} to {after}", blocks=tuple(blocks))


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
        blocks.append(field_table(_STEP, [(one, step) for step in change.steps for one in step.changes]))
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


def _priced(one: KeyChange, step: KeyStep) -> str:
    """Keys that only go together have their change on the last."""
    return render_change(step.change_usd) if one is step.changes[-1] else "with the next"


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


def _percent(change: CostChange) -> float | None:
    return None if change.change_fraction is None else 100 * change.change_fraction


def _plain_side(side: ChangeSide) -> dict[str, Any]:
    return {
        "lacks": side.lacks,
        "usd_per_month": None if side.month_usd is None else plain_cost(side.month_usd),
        "runs_per_month": side.runs,
        "winner": None if side.winner is None else field_values(_WINNER, side.winner),
    }


def summary_of(changes: Sequence[CostChange]) -> str:
    """One line, for an error."""
    sums = total(changes)
    if sums is None:
        return f"nothing fits one of {plural(len(changes), 'workload')}"
    old, new = sums
    return f"{render_money(old)} to {render_money(new)} a month, {render_change(new - old)}"


def _as_read(value: Any) -> Any:
    return value


_SUMMARY: Final[Fields[CostChange]] = (
    cell("workload", lambda one: one.name),
    cell("before", lambda one: _cost(one.before), right=True),
    cell("after", lambda one: _cost(one.after), right=True),
    cell("change a month", lambda one: render_change(one.change_usd, one.change_fraction), right=True),
    cell("best way before", lambda one: _way(one.before), wraps=True, folds=2),
    cell("best way after", lambda one: "the same" if one.same_winner else _way(one.after), wraps=True, folds=1),
)
_STEP: Final[Fields[tuple[KeyChange, KeyStep]]] = (
    cell("key", lambda row: row[0].key),
    cell("before", lambda row: _value(row[0].before), wraps=True),
    cell("after", lambda row: _value(row[0].after), wraps=True),
    cell("change a month", lambda row: _priced(*row), right=True),
)
_ROW: Final[Fields[CostChange]] = (
    Field("workload", lambda one: one.name),
    Field("file", lambda one: one.file),
    Field("before_usd", lambda one: one.before.counted_usd, json=_as_read),
    Field("after_usd", lambda one: one.after.counted_usd, json=_as_read),
    Field("change_usd", lambda one: one.change_usd, json=_as_read),
    Field("change_percent", _percent),
    Field("before_machine", lambda one: _way(one.before)),
    Field("after_machine", lambda one: _way(one.after)),
)
_KEY: Final[Fields[KeyChange]] = (
    Field("key", lambda one: one.key),
    Field("before", lambda one: one.before, json=_as_read),
    Field("after", lambda one: one.after, json=_as_read),
)
_STEP_VALUES: Final[Fields[KeyStep]] = (
    Field("keys", lambda step: [one.key for one in step.changes]),
    Field("change_usd_per_month", lambda step: step.change_usd, json=plain_usd),
)
_WORKLOAD: Final[Fields[CostChange]] = (
    Field("workload", lambda one: one.name),
    Field("file", lambda one: one.file),
    Field("before", lambda one: _plain_side(one.before)),
    Field("after", lambda one: _plain_side(one.after)),
    Field("change_usd_per_month", lambda one: one.change_usd, json=plain_usd),
    Field("change_percent", _percent),
    Field("same_winner", lambda one: one.same_winner),
    Field("former_winner_usd_per_month", lambda one: one.kept_usd, json=plain_usd),
    Field("changed_keys", lambda one: [field_values(_KEY, change) for change in one.changes]),
    Field("steps", lambda one: [field_values(_STEP_VALUES, step) for step in one.steps]),
)
_WINNER: Final[Fields[Option]] = named_fields("provider", "instance_type", "region", "purchase", "count", "platform")
