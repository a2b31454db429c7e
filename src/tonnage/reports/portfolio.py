"""The plan of a portfolio: assignment, spend by provider, what binds, what must give (`tonnage/portfolio@1`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.portfolios.answer import Assignment, Commit, Give, Limit, PortfolioPlan, ProviderSpend, Unplaced
from tonnage.reports.blocks import Block, Bullets, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_cost, plain_instant, plain_number, plain_usd
from tonnage.reports.plan_document import catalog_document
from tonnage.reports.plan_page import price_blocks
from tonnage.reports.reasons.flips import unplaced_hint
from tonnage.reports.reasons.notes import note_words, notes_document
from tonnage.reports.rendering import Report
from tonnage.reports.wording import (
    UNKNOWN,
    plural,
    render_bought,
    render_gpus,
    render_machines,
    render_money,
    render_money_interval,
    short,
)

PORTFOLIO_SCHEMA: Final = "tonnage/portfolio@1"


def portfolio_report(plan: PortfolioPlan) -> Report:
    """The report of a portfolio."""
    return fields_report(lambda: _page(plan), lambda: _document(plan), _ASSIGNMENT, plan.assignments)


def _page(plan: PortfolioPlan) -> Page:
    blocks: list[Block] = []
    if plan.total_usd is not None:
        blocks += [*_verdict(plan), *_assignments(plan), *_spend(plan), *_commits(plan), *_limits(plan)]
    else:
        blocks += _nothing(plan)
    blocks += price_blocks(plan.catalog)
    if plan.notes:
        blocks += [Heading(text="Notes"), Bullets(items=tuple(map(note_words, plan.notes)))]
    return Page(title=f"Portfolio {plan.name}, a month, as of {plan.as_of:%Y-%m-%d}", blocks=tuple(blocks))


def _verdict(plan: PortfolioPlan) -> Iterator[Block]:
    assert plan.total_usd is not None
    assert plan.bound_usd is not None
    interval = render_money_interval(plan.total_usd)
    cost = render_money(plan.total_usd.value) + (f" ({interval})" if interval else "")
    yield Heading(text="Cost")
    yield Paragraph(text=f"{cost} a month for {plural(plan.workloads, 'workload')}.", tone="good")
    text = f"No assignment of the {plural(plan.candidates, 'candidate')} costs less than {render_money(plan.bound_usd)}"
    yield Paragraph(text=f"{text}: proven, a gap of {_percent(plan.gap or 0.0)}.")


def _percent(fraction: float) -> str:
    return f"{short(100 * fraction)} %"


def _share(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f} %"


def _assignments(plan: PortfolioPlan) -> Iterator[Block]:
    yield Heading(text="Who runs where")
    yield field_table(_ASSIGNMENT, plan.assignments)


def _spend(plan: PortfolioPlan) -> Iterator[Block]:
    yield Heading(text="Spend by provider")
    yield field_table(_SPEND, plan.spend)


def _commits(plan: PortfolioPlan) -> Iterator[Block]:
    if plan.commits:
        yield Heading(text="Reserved base")
        yield field_table(_COMMIT, plan.commits)


def _filled(one: Commit) -> str:
    return f"{100 * one.used_gpu_hours / one.paid_gpu_hours:.0f} %" if one.paid_gpu_hours else "—"


def _limits(plan: PortfolioPlan) -> Iterator[Block]:
    if not plan.limits:
        return
    yield Heading(text="Limits, and what one step more of each saves a month")
    yield field_table(_LIMIT, sorted(plan.limits, key=lambda one: -one.saves_usd_per_month))
    text = "Each saving is the program solved again with that limit one step looser; «proven» is where it must lie."
    yield Paragraph(text=text, tone="faint")


def _proven(one: Limit) -> str:
    low, high = one.saves_low_usd_per_month, one.saves_high_usd_per_month
    return "" if low == high else f"{render_money(low)}–{render_money(high)[1:]}"


def _amount(value: float, unit: str) -> str:
    if unit == "fraction of spend":
        return f"{100 * value:.1f} %"
    if unit.startswith("USD"):
        return render_money(value)
    return f"{short(value, 4)} {unit.removesuffix('s') if value == 1 else unit}"


def _step(one: Limit) -> str:
    if one.kind == "share":
        return f"{short(100 * one.step)} point"
    return _amount(one.step, one.unit)


def _nothing(plan: PortfolioPlan) -> Iterator[Block]:
    yield Heading(text="No assignment holds every limit")
    if plan.unplaced:
        yield Paragraph(text="Some workloads fit nowhere, whatever the others do:", tone="warning")
        yield field_table(_UNPLACED, plan.unplaced)
        return
    alone = [give for give in plan.gives if give.alone]
    if alone:
        yield Paragraph(text="Any one of these giving way is enough; the smallest first:", tone="warning")
    elif plan.gives:
        yield Paragraph(text="No single limit is enough; the smallest set that has to give together:", tone="warning")
    yield field_table(_GIVE, alone or plan.gives)


def describe_give(give: Give) -> str:
    """«azure share at least: 5.0 % -> 0.4 %»."""
    return f"{give.name}: {_amount(give.limit, give.unit)} -> {_amount(give.needed, give.unit)}"


def _document(plan: PortfolioPlan) -> dict[str, Any]:
    return {
        "schema": PORTFOLIO_SCHEMA,
        "name": plan.name,
        "as_of": plain_instant(plan.as_of),
        "horizon": "month",
        "workloads": plan.workloads,
        "candidates": plan.candidates,
        "cost_usd": None if plan.total_usd is None else plain_cost(plan.total_usd),
        "proven_bound_usd": None if plan.bound_usd is None else plain_usd(plan.bound_usd),
        "proven_gap_fraction": plain_number(plan.gap),
        "assignments": [field_values(_ASSIGNMENT, one) for one in plan.assignments],
        "spend": [field_values(_SPEND, one) for one in plan.spend],
        "reserved": [field_values(_COMMIT, one) for one in plan.commits],
        "limits": [field_values(_LIMIT, one) for one in plan.limits],
        "gives": [field_values(_GIVE, one) for one in plan.gives],
        "unplaced": [field_values(_UNPLACED, one) for one in plan.unplaced],
        "catalog": catalog_document(plan.catalog),
        **notes_document(plan.notes),
    }


def _saving(one: Limit) -> dict[str, Any]:
    ends = (one.saves_usd_per_month, one.saves_low_usd_per_month, one.saves_high_usd_per_month)
    return dict(zip(("value", "low", "high"), map(plain_usd, ends), strict=True))


_ASSIGNMENT: Final[Fields[Assignment]] = (
    Field("workload", lambda one: one.workload, title="workload", wraps=True),
    Field("runs", lambda one: one.runs, title="runs", show=str, right=True),
    Field("at_once", lambda one: one.at_once),
    Field("provider", lambda one: one.option.provider, title="provider"),
    Field("instance_type", lambda one: one.option.instance_type),
    Field("region", lambda one: one.option.region),
    Field("count", lambda one: one.option.count),
    Field("purchase", lambda one: one.option.purchase),
    Field("gpu", lambda one: one.option.gpu),
    Field("gpu_count", lambda one: one.option.gpu_count),
    Field("gpus_at_once", lambda one: one.gpus_at_once),
    cell("machines", lambda one: render_machines(one.option.count, one.option.instance_type), wraps=True),
    cell("GPUs", lambda one: render_gpus(one.option.gpu, one.option.gpu_count, one.option.count), folds=3),
    cell("region", lambda one: one.option.region or "any region", folds=4, fold_text="in {}"),
    cell("bought", lambda one: render_bought(one.option.purchase, one.option.platform), folds=2),
    cell("at a time", lambda one: str(one.at_once), right=True, folds=5, fold_text="{} at a time"),
    cell("GPU-hours committed", lambda one: short(one.committed_gpu_hours, 4), right=True, folds=6,
         fold_text="{} committed GPU-hours"),
    *figure_fields("cost{}_usd_per_month", lambda one: one.cost_usd, plain_usd),
    cell("a month", lambda one: render_money(one.cost_usd.value), right=True),
    cell("80 %", lambda one: render_money_interval(one.cost_usd), right=True, folds=7),
    Field("committed_gpu_hours", lambda one: one.committed_gpu_hours),
    Field("platform", lambda one: one.option.platform),
)  # fmt: skip
_SPEND: Final[Fields[ProviderSpend]] = (
    Field("provider", lambda one: one.provider, title="provider"),
    Field("usd_per_month", lambda one: one.usd, json=plain_usd, title="a month", show=render_money, right=True),
    Field("share_fraction", lambda one: one.share, title="share", show=_share, right=True),
    Field("wanted_fraction", lambda one: one.wanted, title="wanted", show=_share, right=True),
)
_COMMIT: Final[Fields[Commit]] = (
    Field("commitment", lambda one: one.commitment.label, title="commitment", wraps=True),
    Field("gpus", lambda one: one.gpus, title="GPUs", show=str, right=True),
    Field("paid_gpu_hours", lambda one: one.paid_gpu_hours, title="hours paid", show=lambda hours: short(hours, 6),
          right=True),
    cell("filled", _filled, right=True),
    Field("used_gpu_hours", lambda one: one.used_gpu_hours),
    Field("usd_per_gpu_hour", lambda one: one.commitment.usd_per_gpu_hour, title="per GPU-hour",
          show=lambda usd: f"${short(usd, 4)}", right=True, folds=1),
    Field("usd_per_month", lambda one: one.cost_usd, json=plain_usd, title="a month", show=render_money, right=True),
    Field("source", lambda one: one.commitment.source),
)  # fmt: skip
_LIMIT: Final[Fields[Limit]] = (
    Field("limit", lambda one: one.name, title="limit", wraps=True),
    Field("kind", lambda one: one.kind),
    cell("allowed", lambda one: _amount(one.limit, one.unit), right=True),
    cell("used", lambda one: _amount(one.used, one.unit), right=True),
    cell("one step", _step, right=True, folds=1, fold_text="one step: {}"),
    Field("allowed", lambda one: one.limit),
    Field("used", lambda one: one.used),
    Field("unit", lambda one: one.unit),
    Field("step", lambda one: one.step),
    Field("saves_usd_per_month", _saving),
    cell("saves", lambda one: render_money(one.saves_usd_per_month), right=True),
    cell("proven", _proven, right=True, folds=2, fold_text="proven {}"),
    Field("binds", lambda one: one.binds, title="", show=lambda binds: "binds" if binds else ""),
)
_GIVE: Final[Fields[Give]] = (
    Field("limit", lambda one: one.name, title="limit", wraps=True),
    Field("kind", lambda one: one.kind),
    Field("now", lambda one: one.limit),
    Field("needed", lambda one: one.needed),
    Field("unit", lambda one: one.unit),
    cell("now", lambda one: _amount(one.limit, one.unit), right=True),
    cell("must be", lambda one: _amount(one.needed, one.unit), right=True),
    Field("enough_alone", lambda one: one.alone),
)
_UNPLACED: Final[Fields[Unplaced]] = (
    Field("workload", lambda one: one.workload, title="workload"),
    Field("refused", lambda one: one.refused, title="refused", show=str, right=True),
    Field("flips_when", lambda one: unplaced_hint(one) or "", title="how", show=str, wraps=True),
)
