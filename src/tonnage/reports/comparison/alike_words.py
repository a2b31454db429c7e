"""Like with like: speed for the same money and on as many accelerators; cost bought the same way."""

from __future__ import annotations

from tonnage.comparison.alike import Alike, bought_as
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import WorkRow
from tonnage.planning.plan import Option
from tonnage.reports.blocks import Column, Paragraph, Table
from tonnage.reports.cheaper import doubt_words
from tonnage.reports.comparison.figures import UNKNOWN, duration, money
from tonnage.reports.comparison.sections import Part, Subheading
from tonnage.reports.wording import render_machines, render_money, render_purchase


def alike_parts(comparison: Comparison) -> list[Part]:
    """Two tables: speed, and cost by way of buying. Nothing where no job is done by two alternatives."""
    parts: list[Part] = []
    for one in comparison.alike:
        parts += [Subheading(text=f"Like with like: speed of {one.work}"), _speeds(comparison, one)]
    rows = [
        row
        for alternative in comparison.request.alternatives
        for row in comparison.totals[alternative.name].rows
        if row.purchases
    ]
    if len(rows) > 1:
        columns = (
            Column(title="Alternative"),
            Column(title="Work"),
            Column(title="On demand", align="right"),
            Column(title="Spot", align="right"),
        )
        table = Table(columns=columns, rows=tuple(_bought(comparison, row) for row in rows))
        note = "Dollars a job, or a month of a service: set spot beside spot and on-demand beside on-demand."
        parts += [Subheading(text="Like with like: bought the same way"), table, Paragraph(text=note, tone="faint")]
    return parts


def _speeds(comparison: Comparison, one: Alike) -> Table:
    on = (
        "as many accelerators"
        if one.devices is None
        else f"{one.devices:g} accelerator{'' if one.devices == 1 else 's'}"
    )
    columns = (
        Column(title="Alternative"),
        Column(title=f"For at most {render_money(one.budget_usd)} a job", wraps=True),
        Column(title=f"On {on}", wraps=True),
    )
    rows = [
        (
            comparison.title_of[name],
            _time(option, "none costs so little"),
            _time(one.on_devices[name], "none has so many"),
        )
        for name, option in one.within_budget.items()
    ]
    return Table(columns=columns, rows=tuple(rows))


def _time(option: Option | None, none: str) -> str:
    if option is None:
        return none
    machines = render_machines(option.count, option.instance_type)
    bought = f"{machines}, {render_purchase(option.purchase)}, {render_money(option.cost_usd.value)}"
    return f"{duration(option.time_s)}: {bought}"


def _bought(comparison: Comparison, row: WorkRow) -> tuple[str, ...]:
    ways = [_way(row, purchase) for purchase in ("on_demand", "spot")]
    return (comparison.title_of[row.alternative], row.work, *ways)


def _way(row: WorkRow, purchase: str) -> str:
    """What a way of buying costs; where its price is not relied on, as little as it would cost at that, and why: what
    is wrong with the machine's price, or with its platform's fee where only that is in doubt."""
    one, doubted = bought_as(row, purchase), row.doubted
    if one is not None:
        return money(one.cost_usd)
    if doubted is None or doubted.purchase != purchase:
        return UNKNOWN
    of_machine = [doubt for doubt in doubted.doubts if getattr(doubt, "platform", None) is None]
    why = ", ".join(doubt_words(doubt) for doubt in of_machine or doubted.doubts)
    return f"not relied on: {render_money(doubted.cost_usd.value)} ({why})"
