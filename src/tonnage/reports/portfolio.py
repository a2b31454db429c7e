"""The plan of a portfolio: assignment, spend by provider, what binds, what must give (`tonnage/portfolio@1`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.portfolios.answer import Assignment, Commit, Give, Limit, PortfolioPlan
from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Paragraph, Table
from tonnage.reports.plain import plain_cost, plain_instant, plain_number, plain_usd
from tonnage.reports.plan_document import catalog_document
from tonnage.reports.plan_page import price_blocks
from tonnage.reports.reasons.flips import unplaced_hint
from tonnage.reports.reasons.notes import note_words, notes_document
from tonnage.reports.rendering import Format, Look, Report, render_report
from tonnage.reports.wording import (
    plural,
    render_bought,
    render_gpus,
    render_machines,
    render_money,
    render_money_interval,
    short,
)

PORTFOLIO_SCHEMA: Final = "tonnage/portfolio@1"
ASSIGNMENT_COLUMNS: Final = (
    "workload", "runs", "at_once", "provider", "instance_type", "region", "count", "purchase", "gpu", "gpu_count",
    "gpus_at_once", "cost_usd_per_month", "cost_low_usd_per_month", "cost_high_usd_per_month", "committed_gpu_hours",
    "platform",
)  # fmt: skip


def portfolio_report(plan: PortfolioPlan) -> Report:
    """The report of a portfolio."""
    return Report(
        page=lambda: _page(plan),
        document=lambda: _document(plan),
        columns=ASSIGNMENT_COLUMNS,
        rows=lambda: [_row(one) for one in plan.assignments],
    )


def render_portfolio(plan: PortfolioPlan, form: Format, *, look: Look | None = None) -> str:
    """The text of a portfolio's plan."""
    return render_report(portfolio_report(plan), form, look)


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


def _assignments(plan: PortfolioPlan) -> Iterator[Block]:
    yield Heading(text="Who runs where")
    columns = (
        Column(title="workload", wraps=True),
        Column(title="runs", align="right"),
        Column(title="provider"),
        Column(title="machines", wraps=True),
        Column(title="GPUs", folds=3),
        Column(title="region", folds=4, fold_text="in {}"),
        Column(title="bought", folds=2),
        Column(title="at a time", align="right", folds=5, fold_text="{} at a time"),
        Column(title="GPU-hours committed", align="right", folds=6, fold_text="{} committed GPU-hours"),
        Column(title="a month", align="right"),
        Column(title="80 %", align="right", folds=7),
    )
    yield Table(columns=columns, rows=tuple(_cells(one) for one in plan.assignments))


def _cells(one: Assignment) -> tuple[str, ...]:
    option = one.option
    return (
        one.workload,
        str(one.runs),
        option.provider,
        render_machines(option.count, option.instance_type),
        render_gpus(option.gpu, option.gpu_count, option.count),
        option.region or "any region",
        render_bought(option.purchase, option.platform),
        str(one.at_once),
        short(one.committed_gpu_hours, 4),
        render_money(one.cost_usd.value),
        render_money_interval(one.cost_usd),
    )


def _spend(plan: PortfolioPlan) -> Iterator[Block]:
    yield Heading(text="Spend by provider")
    columns = (
        Column(title="provider"),
        Column(title="a month", align="right"),
        Column(title="share", align="right"),
        Column(title="wanted", align="right"),
    )
    rows = tuple(
        (one.provider, render_money(one.usd), f"{100 * one.share:.1f} %",
         "—" if one.wanted is None else f"{100 * one.wanted:.1f} %")
        for one in plan.spend
    )  # fmt: skip
    yield Table(columns=columns, rows=rows)


def _commits(plan: PortfolioPlan) -> Iterator[Block]:
    if not plan.commits:
        return
    yield Heading(text="Reserved base")
    columns = (
        Column(title="commitment", wraps=True),
        Column(title="GPUs", align="right"),
        Column(title="hours paid", align="right"),
        Column(title="filled", align="right"),
        Column(title="per GPU-hour", align="right", folds=1),
        Column(title="a month", align="right"),
    )
    rows = tuple(
        (one.commitment.label, str(one.gpus), short(one.paid_gpu_hours, 6), _filled(one),
         f"${short(one.commitment.usd_per_gpu_hour, 4)}", render_money(one.cost_usd))
        for one in plan.commits
    )  # fmt: skip
    yield Table(columns=columns, rows=rows)


def _filled(one: Commit) -> str:
    return f"{100 * one.used_gpu_hours / one.paid_gpu_hours:.0f} %" if one.paid_gpu_hours else "—"


def _limits(plan: PortfolioPlan) -> Iterator[Block]:
    if not plan.limits:
        return
    yield Heading(text="Limits, and what one step more of each saves a month")
    columns = (
        Column(title="limit", wraps=True),
        Column(title="allowed", align="right"),
        Column(title="used", align="right"),
        Column(title="one step", align="right", folds=1, fold_text="one step: {}"),
        Column(title="saves", align="right"),
        Column(title="proven", align="right", folds=2, fold_text="proven {}"),
        Column(title=""),
    )
    order = sorted(plan.limits, key=lambda one: -one.saves_usd_per_month)
    rows = tuple(
        (one.name, _amount(one.limit, one.unit), _amount(one.used, one.unit), _step(one),
         render_money(one.saves_usd_per_month), _proven(one), "binds" if one.binds else "")
        for one in order
    )  # fmt: skip
    yield Table(columns=columns, rows=rows)
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
        columns = (Column(title="workload"), Column(title="refused", align="right"), Column(title="how", wraps=True))
        yield Table(
            columns=columns,
            rows=tuple((one.workload, str(one.refused), unplaced_hint(one) or "") for one in plan.unplaced),
        )
        return
    alone = [give for give in plan.gives if give.alone]
    if alone:
        yield Paragraph(text="Any one of these giving way is enough; the smallest first:", tone="warning")
    elif plan.gives:
        yield Paragraph(text="No single limit is enough; the smallest set that has to give together:", tone="warning")
    columns = (
        Column(title="limit", wraps=True), Column(title="now", align="right"), Column(title="must be", align="right"),
    )  # fmt: skip
    yield Table(columns=columns, rows=tuple(_give_cells(give) for give in alone or plan.gives))


def _give_cells(give: Give) -> tuple[str, ...]:
    return (give.name, _amount(give.limit, give.unit), _amount(give.needed, give.unit))


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
        "assignments": [dict(zip(ASSIGNMENT_COLUMNS, _row(one), strict=True)) for one in plan.assignments],
        "spend": [
            {"provider": one.provider, "usd_per_month": plain_usd(one.usd), "share_fraction": plain_number(one.share),
             "wanted_fraction": plain_number(one.wanted)}
            for one in plan.spend
        ],
        "reserved": [_commit_document(one) for one in plan.commits],
        "limits": [_limit_document(one) for one in plan.limits],
        "gives": [
            {"limit": give.name, "kind": give.kind, "now": plain_number(give.limit),
             "needed": plain_number(give.needed), "unit": give.unit, "enough_alone": give.alone}
            for give in plan.gives
        ],
        "unplaced": [
            {"workload": one.workload, "refused": one.refused, "flips_when": unplaced_hint(one) or ""}
            for one in plan.unplaced
        ],
        "catalog": catalog_document(plan.catalog),
        **notes_document(plan.notes),
    }  # fmt: skip


def _commit_document(one: Commit) -> dict[str, Any]:
    return {
        "commitment": one.commitment.label,
        "gpus": one.gpus,
        "paid_gpu_hours": plain_number(one.paid_gpu_hours),
        "used_gpu_hours": plain_number(one.used_gpu_hours),
        "usd_per_gpu_hour": plain_number(one.commitment.usd_per_gpu_hour),
        "usd_per_month": plain_usd(one.cost_usd),
        "source": one.commitment.source,
    }


def _limit_document(one: Limit) -> dict[str, Any]:
    return {
        "limit": one.name,
        "kind": one.kind,
        "allowed": plain_number(one.limit),
        "used": plain_number(one.used),
        "unit": one.unit,
        "step": plain_number(one.step),
        "saves_usd_per_month": {
            "value": plain_usd(one.saves_usd_per_month),
            "low": plain_usd(one.saves_low_usd_per_month),
            "high": plain_usd(one.saves_high_usd_per_month),
        },
        "binds": one.binds,
    }


def _row(one: Assignment) -> list[Any]:
    option = one.option
    return [
        one.workload,
        one.runs,
        one.at_once,
        option.provider,
        option.instance_type,
        option.region,
        option.count,
        option.purchase,
        option.gpu,
        plain_number(option.gpu_count),
        plain_number(one.gpus_at_once),
        *(plain_usd(getattr(one.cost_usd, end)) for end in ("value", "low", "high")),
        plain_number(one.committed_gpu_hours),
        option.platform,
    ]
