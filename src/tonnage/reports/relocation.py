"""A run of one place as another's: costs, changes, copies, steps, the difference in what is sent
(`tonnage/migration@1`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tonnage.pricing.extras import Charge
from tonnage.relocation.relocation import MOVED, Copied, How, PlaceSide, Relocation, Step, TermChange
from tonnage.reports.blocks import Block, Code, Heading, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.plain import plain_day, plain_figure, plain_number, plain_price, plain_usd
from tonnage.reports.rendering import Report
from tonnage.reports.wording import (
    UNKNOWN,
    render_duration,
    render_money,
    render_money_interval,
    render_time_interval,
    short,
)

MIGRATION_SCHEMA: Final = "tonnage/migration@1"
HOW: Final[dict[How, str]] = {
    "sent": "with the run", "copied": "copied once", "read": "read where it is", "fetched": "from its source",
}  # fmt: skip


def relocation_report(found: Relocation) -> Report:
    """One row a change in CSV; pages and JSON have all."""
    return fields_report(lambda: _page(found), lambda: _document(found), _CHANGE, found.changes)


def _page(found: Relocation) -> Page:
    title = f"{found.run}: from {found.before.place} to {found.after.place}"
    return Page(title=title, blocks=tuple(_blocks(found)))


def _blocks(found: Relocation) -> Iterator[Block]:
    for side in (found.before, found.after):
        if side.refused:
            text = f"{side.place} cannot carry it: {side.refused}" + (f" ({side.hint})" if side.hint else "")
            yield Paragraph(text=text, tone="warning")
    yield Heading(text="Cost")
    yield Pairs(rows=tuple(_costs(found)))
    yield Heading(text="What changes")
    yield _changes(found.changes)
    yield Heading(text="What is copied")
    yield from _copies(found)
    yield Heading(text="Steps")
    for number, step in enumerate(found.steps, start=1):
        yield from _step(number, step)
    yield Heading(text=f"What is sent: - {found.before.place}, + {found.after.place}")
    yield Code(lines=found.diff or ("the same",))


def _costs(found: Relocation) -> Iterator[tuple[str, str]]:
    for side in (found.before, found.after):
        yield side.place, _cost(side)
        if side.most_usd_a_job is not None:
            yield "", f"at most {render_money(side.most_usd_a_job)} a job, by its limit of time"
    if any(one.how in MOVED for one in found.copies):
        copied = "not known: " + _unpriced(found) if found.copy_usd is None else render_money(found.copy_usd)
        yield "copies, once", f"{copied}; {_took(found.copy_s, found.gbit_per_s)}"
    if found.saved_usd is not None:
        word = "saves" if found.saved_usd >= 0 else "costs"
        yield "each run", f"{word} {render_money(abs(found.saved_usd))}{'' if found.saved_usd >= 0 else ' more'}"
    if found.paid_back_after_runs:
        yield "paid back", f"after {short(found.paid_back_after_runs, 2)} runs"


def _cost(side: PlaceSide) -> str:
    hour = "no price an hour is known" if side.usd_per_hour is None else f"{render_money(side.usd_per_hour)} an hour"
    if side.predicted is None:
        return f"{hour}; of the whole run not predicted: {side.why_unpredicted}"
    cost, time = side.predicted.cost_usd, side.predicted.time_s
    took = "" if time is None else f", {render_duration(time.value)} ({render_time_interval(time)})"
    return f"{render_money(cost.value)} ({render_money_interval(cost)}){took}; {hour}; {side.predicted.line}"


def _unpriced(found: Relocation) -> str:
    names = [f"{one.what} ({one.origin})" for one in found.copies if one.how in MOVED and one.usd is None]
    return f"size or price of {', '.join(names)}; --data-gb states the size of rows"


def _took(seconds: float | None, rate: float) -> str:
    if seconds is None:
        return "how long is not known"
    return f"{render_duration(seconds)} at {rate:g} Gbit/s, which is assumed"


def _changes(changes: Sequence[TermChange]) -> Block:
    if not changes:
        return Paragraph(text="nothing")
    cells: Fields[TermChange] = (
        cell("what", lambda one: one.name),
        cell("before", lambda one: one.before or UNKNOWN, wraps=True),
        cell("after", lambda one: one.after or UNKNOWN, wraps=True),
        cell("", lambda one: _carried(one), wraps=True, folds=1),
    )
    return field_table(cells, changes)


def _carried(change: TermChange) -> str:
    return f"does not carry over: {change.note}" if change.dropped and change.note else change.note


def _copies(found: Relocation) -> Iterator[Block]:
    if not found.copies:
        yield Paragraph(text="nothing")
        return
    cells: Fields[Copied] = (
        cell("what", lambda one: one.what),
        cell("how", lambda one: HOW[one.how]),
        cell("from", lambda one: one.origin, wraps=True),
        cell("to", lambda one: one.target, wraps=True),
        cell("GB", _size, right=True),
        cell("USD", lambda one: UNKNOWN if one.usd is None else render_money(one.usd), right=True),
        cell("time", lambda one: render_duration(one.time_s) if one.time_s else UNKNOWN, right=True),
    )
    yield field_table(cells, found.copies)
    for one in found.copies:
        for charge in one.charges or ():
            read = "no date" if charge.read_on is None else f"read on {charge.read_on.isoformat()}"
            price = f"${float(charge.usd_per_unit):g} a {charge.unit}{charge.tier}"
            yield Paragraph(text=f"{one.what}: {price} ({charge.source}; {read})", tone="faint")
        if one.note:
            yield Paragraph(text=f"{one.what}: {one.note}", tone="faint")


def _size(one: Copied) -> str:
    return UNKNOWN if one.size_gb is None else f"{short(one.size_gb)} ({one.size_basis})"


def _step(number: int, step: Step) -> Iterator[Block]:
    yield Paragraph(text=f"{number}. {step.title}" + (f": {step.note}" if step.note else ""))
    if step.commands:
        yield Code(lines=step.commands)


def _document(found: Relocation) -> dict[str, Any]:
    return {
        "schema": MIGRATION_SCHEMA,
        "run": found.run,
        "from": _side(found.before),
        "to": _side(found.after),
        "changes": [field_values(_CHANGE, one) for one in found.changes],
        "copies": [_copied(one) for one in found.copies],
        "copy_usd": plain_usd(found.copy_usd) if found.copy_usd is not None else None,
        "copy_s": plain_number(found.copy_s),
        "gbit_per_s": {"value": plain_number(found.gbit_per_s), "basis": "assumed"},
        "saved_usd_a_run": plain_usd(found.saved_usd) if found.saved_usd is not None else None,
        "paid_back_after_runs": plain_number(found.paid_back_after_runs),
        "steps": [{"title": one.title, "commands": list(one.commands), "note": one.note} for one in found.steps],
        "diff": list(found.diff),
    }


def _side(side: PlaceSide) -> dict[str, Any]:
    predicted = side.predicted
    return {
        "place": side.place, "kind": side.kind, "usd_per_hour": plain_price(side.usd_per_hour),
        "most_usd_a_job": None if side.most_usd_a_job is None else plain_usd(side.most_usd_a_job),
        "plan": None if predicted is None else predicted.line,
        "cost_usd": None if predicted is None else plain_figure(predicted.cost_usd),
        "time_s": None if predicted is None else plain_figure(predicted.time_s),
        "why_unpredicted": side.why_unpredicted, "refused": side.refused, "hint": side.hint,
        "commands": [list(one) for one in side.commands], "script": side.script,
    }  # fmt: skip


def _copied(one: Copied) -> dict[str, Any]:
    return {
        "what": one.what, "how": one.how, "from": one.origin, "to": one.target,
        "size_gb": plain_number(one.size_gb), "size_basis": one.size_basis,
        "usd": None if one.usd is None else plain_usd(one.usd),
        "charges": None if one.charges is None else [_charge(charge) for charge in one.charges],
        "time_s": plain_number(one.time_s), "commands": list(one.commands), "note": one.note,
    }  # fmt: skip


def _charge(charge: Charge) -> dict[str, Any]:
    return {
        "quantity": plain_number(charge.quantity), "unit": charge.unit,
        "usd_per_unit": plain_price(charge.usd_per_unit),
        "source": charge.source, "read_on": None if charge.read_on is None else plain_day(charge.read_on),
    }  # fmt: skip


_CHANGE: Final[Fields[TermChange]] = (
    Field("name", lambda one: one.name),
    Field("before", lambda one: one.before),
    Field("after", lambda one: one.after),
    Field("dropped", lambda one: one.dropped),
    Field("note", lambda one: one.note),
)
