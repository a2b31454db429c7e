"""Why a plan came out as it did: the winner in full, or what became of a name; assumptions and losers beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tonnage.planning.plan import MachineOption, Option, Plan, Refusal
from tonnage.planning.reasons.flips import Flip
from tonnage.reports.blocks import Block, Heading, Page, Pairs, Paragraph
from tonnage.reports.ledger_blocks import ledger_blocks
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values
from tonnage.reports.option_table import leading_fields, render_cost, render_option_bought
from tonnage.reports.plain import plain_instant, plain_number
from tonnage.reports.plan_document import (
    catalog_document,
    needs_document,
    option_document,
    refusal_document,
    workload_document,
)
from tonnage.reports.plan_page import (
    by_binding,
    describe_option,
    miss_table,
    nothing_fits_blocks,
    price_blocks,
    workload_blocks,
)
from tonnage.reports.reasons import change_document, changes_words, miss_words, risk_words
from tonnage.reports.reasons.distances import distance_words
from tonnage.reports.reasons.notes import notes_document
from tonnage.reports.rendering import Format, Look, Report, render_report
from tonnage.reports.run_blocks import run_blocks
from tonnage.reports.selection import Selection
from tonnage.reports.wording import (
    plural,
    render_bought,
    render_duration,
    render_machines,
    render_money,
    short,
)
from tonnage.sizing.assumption_table import Assumption

EXPLAIN_SCHEMA: Final = "tonnage/explain@1"
CSV_COLUMNS: Final = (
    "outcome", "rank", "provider", "instance_type", "region", "count", "purchase", "gpu", "gpu_count",
    "binding", "needs", "has", "flips_when", "platform",
)  # fmt: skip


def explain_report(
    plan: Plan,
    selection: Selection | None,
    assumptions: Sequence[Assumption],
    *,
    top: int,
    flipped: Sequence[Flipped] = (),
) -> Report:
    """The explanation of a whole plan, or of what `selection` names. Pages show `top` losers of each kind, and what
    would flip those of `flipped`."""
    return Report(
        page=lambda: _page(plan, selection, assumptions, top, flipped),
        document=lambda: {**_document(plan, selection, assumptions), "flips": flips_document(flipped)},
        columns=CSV_COLUMNS,
        rows=lambda: _rows(plan, selection),
    )


def render_explain(
    plan: Plan,
    selection: Selection | None,
    assumptions: Sequence[Assumption],
    form: Format,
    *,
    top: int = 10,
    look: Look | None = None,
) -> str:
    """The text of an explanation."""
    return render_report(explain_report(plan, selection, assumptions, top=top), form, look)


def _page(
    plan: Plan,
    selection: Selection | None,
    assumptions: Sequence[Assumption],
    top: int,
    flipped: Sequence[Flipped],
) -> Page:
    if selection is None:
        title = f"Why this plan for {plan.name} ({plan.kind}), as of {plan.as_of:%Y-%m-%d}"
        blocks = [
            *workload_blocks(plan.summary), *_whole_plan(plan, top, assumptions), *flip_blocks(flipped),
            *_assumption_blocks(assumptions),
        ]  # fmt: skip
        return Page(title=title, blocks=(*blocks, *price_blocks(plan.catalog)))
    title = f"{selection.name} in the plan for {plan.name} ({plan.kind}), as of {plan.as_of:%Y-%m-%d}"
    return Page(title=title, blocks=(*_selected(plan, selection, top, assumptions), *flip_blocks(flipped)))


def _whole_plan(plan: Plan, top: int, assumptions: Sequence[Assumption]) -> Iterator[Block]:
    if plan.best is None:
        yield from nothing_fits_blocks(plan)
    else:
        yield from option_blocks(plan, plan.best, assumptions)
        yield from _ranked_losers(plan, plan.options[1:], top)
    yield from _refused_groups(plan, top)


def _selected(plan: Plan, selection: Selection, top: int, assumptions: Sequence[Assumption]) -> Iterator[Block]:
    found, out = selection.options, selection.refused
    yield Paragraph(text=f"{selection.kind} {selection.name}: {plural(len(found), 'option')}, {len(out):,} refused.")
    if not found and not out:
        yield Paragraph(text="The catalog knows it but has no machine with it on offer.", tone="warning")
        return
    if found:
        yield from option_blocks(plan, found[0], assumptions)
        yield from _ranked_losers(plan, found[1:], top)
    if out:
        yield Heading(text="Refused")
        yield miss_table(out)


def option_blocks(plan: Plan, option: Option, assumptions: Sequence[Assumption]) -> Iterator[Block]:
    """One option in full: figures, ledger, the start-up that it assumes, run, risks."""
    first = option.rank == 1
    yield Heading(text="The winner" if first else f"Rank {option.rank} of {len(plan.options)}")
    yield Paragraph(text=describe_option(option, horizon=plan.horizon), tone="good" if first else "plain")
    if option.loses_by is not None:
        yield Paragraph(text=f"It {distance_words(option.loses_by)}.")
    yield from ledger_blocks(option, horizon=plan.horizon, as_of=plan.as_of.date())
    startup = next((one for one in assumptions if one.name == "startup_s"), None)
    if startup is not None and isinstance(option, MachineOption):
        low, high = render_duration(startup.low), render_duration(startup.high)
        yield Paragraph(tone="faint", text=(
            f"A start-up is taken as {render_duration(startup.value)} ({low} to {high}, assumed: {startup.source}); "
            "`buy.startup` states yours."
        ))  # fmt: skip
    if isinstance(option, MachineOption):
        yield from run_blocks(option.run, device="GPU" if option.gpu else "machine")
    if option.risks:
        yield Heading(text="Risks")
        yield Pairs(rows=tuple((str(number), risk_words(risk)) for number, risk in enumerate(option.risks, start=1)))


def _ranked_losers(plan: Plan, losers: Sequence[Option], top: int) -> Iterator[Block]:
    if not losers:
        return
    shown = losers[:top]
    yield Heading(text=f"Ranked behind it: {len(shown):,} of {len(losers):,}")
    limit = "time" if plan.objective == "time" else "price"
    fields: Fields[Option] = (
        *leading_fields(gpus_fold=2),
        cell("bought", render_option_bought),
        cell("cost", render_cost, right=True),
        cell("binding limit", lambda _one: limit, folds=1),
        cell("and what would make it win", lambda one: distance_words(one.loses_by), folds=3, wraps=True),
    )
    yield field_table(fields, shown)


def _refused_groups(plan: Plan, top: int) -> Iterator[Block]:
    for binding, group in by_binding(plan.refused):
        shown = group[:top]
        yield Heading(text=f"Out by {binding}: {len(shown):,} of {len(group):,}")
        yield miss_table(shown, limit=False)
    if any(len(group) > top for _, group in by_binding(plan.refused)):
        yield Paragraph(
            text="Name an instance type, GPU or provider to see it alone; `-o csv` holds all.", tone="faint"
        )


def _assumption_blocks(assumptions: Sequence[Assumption]) -> Iterator[Block]:
    yield Heading(text="Assumptions used")
    yield field_table(_ASSUMPTION, assumptions)


def _document(plan: Plan, selection: Selection | None, assumptions: Sequence[Assumption]) -> dict[str, Any]:
    options = plan.options if selection is None else selection.options
    refused = plan.refused if selection is None else selection.refused
    return {
        "schema": EXPLAIN_SCHEMA,
        "objective": plan.objective,
        "as_of": plain_instant(plan.as_of),
        "horizon": plan.horizon,
        "workload": workload_document(plan.name, plan.kind, plan.summary),
        "needs": needs_document(plan.need),
        "subject": None if selection is None else {"name": selection.name, "kind": selection.kind},
        "winner": None if plan.best is None else option_document(plan.best),
        "options": [option_document(option) for option in options],
        "refused": [refusal_document(refusal) for refusal in refused],
        "assumptions": [field_values(_ASSUMPTION, one) for one in assumptions],
        "catalog": catalog_document(plan.catalog),
        **notes_document(plan.notes),
    }


def _rows(plan: Plan, selection: Selection | None) -> list[list[Any]]:
    options = plan.options if selection is None else selection.options
    refused = plan.refused if selection is None else selection.refused
    limit = "time" if plan.objective == "time" else "price"
    ranked: list[list[Any]] = [
        ["option", one.rank, one.provider, one.instance_type, one.region, one.count, one.purchase, one.gpu,
         plain_number(one.gpu_count), "" if one.rank == 1 else limit, "", "", distance_words(one.loses_by),
         one.platform]
        for one in options
    ]  # fmt: skip
    return ranked + [
        ["refused", None, one.provider, one.instance_type, one.region, one.count, one.purchase, one.gpu,
         plain_number(one.gpu_count), one.binding, said.needs, said.has, said.lifts, one.platform]
        for one in refused
        for said in (miss_words(one.miss),)
    ]  # fmt: skip


_ASSUMPTION: Final[Fields[Assumption]] = (
    Field("name", lambda one: one.name, title="assumption"),
    Field("value", lambda one: one.value, title="value", show=lambda value: short(value, 4), right=True),
    cell("range", lambda one: f"{short(one.low)}–{short(one.high)}", folds=1),
    Field("low", lambda one: one.low),
    Field("high", lambda one: one.high),
    Field("unit", lambda one: one.unit),
    Field("fitted_by", lambda one: one.fitted_by or None),
    Field("source", lambda one: one.source, title="source", show=str, folds=2, wraps=True),
)


Flipped = tuple[Option | Refusal, tuple[Flip, ...]]


def flip_blocks(flipped: Sequence[Flipped]) -> Iterator[Block]:
    """One row a change; losers that nothing tried flips are counted below."""
    if not flipped:
        return
    yield Heading(text="What would have flipped it: each change alone, tried")
    if rows := _flip_rows(flipped):
        yield field_table(_FIELDS, rows)
    stuck = sum(not flips for _, flips in flipped)
    if stuck:
        yield Paragraph(text=f"No change that was tried flips {plural(stuck, 'candidate')}.", tone="faint")


def flips_document(flipped: Sequence[Flipped]) -> list[dict[str, Any]]:
    """One entry a change, under the identity of its loser."""
    return [field_values(_FIELDS, row) for row in _flip_rows(flipped)]


def _flip_rows(flipped: Sequence[Flipped]) -> list[tuple[Option | Refusal, Flip]]:
    return [(loser, flip) for loser, flips in flipped for flip in flips]


def _bought(loser: Option | Refusal) -> str:
    return "" if loser.purchase is None else render_bought(loser.purchase, loser.platform)


def _name(loser: Option | Refusal) -> str:
    return f"{loser.provider} {render_machines(loser.count, loser.instance_type)}"


_FIELDS: Final[Fields[tuple[Option | Refusal, Flip]]] = (
    cell("machines", lambda row: _name(row[0]), wraps=True),
    cell("bought", lambda row: _bought(row[0]), folds=2),
    Field("provider", lambda row: row[0].provider),
    Field("instance_type", lambda row: row[0].instance_type),
    Field("purchase", lambda row: row[0].purchase),
    Field("platform", lambda row: row[0].platform),
    Field("limit", lambda row: row[1].dimension, title="limit", folds=1),
    Field("change", lambda row: changes_words(row[1].changes), title="change", show=str, wraps=True),
    Field("changes", lambda row: [change_document(one) for one in row[1].changes]),
    Field("becomes", lambda row: row[1].becomes, title="makes it",
          show=lambda becomes: "the winner" if becomes == "winner" else "an option"),
    Field("cost_usd", lambda row: row[1].cost_usd, title="then", show=render_money, right=True),
    Field("time_s", lambda row: row[1].time_s),
)  # fmt: skip
