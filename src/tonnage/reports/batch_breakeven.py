"""A batch on k machines beside prices per token (`tonnage/breakeven@1`, kind batch)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Paragraph, Table
from tonnage.reports.breakeven_document import BREAKEVEN_SCHEMA
from tonnage.reports.plain import plain_cost, plain_day, plain_figure, plain_instant, plain_number, plain_usd
from tonnage.reports.plan_document import catalog_document
from tonnage.reports.plan_page import price_blocks
from tonnage.reports.rendering import Report
from tonnage.reports.spot_words import spot_words
from tonnage.reports.wording import (
    render_count,
    render_date,
    render_duration,
    render_gpus,
    render_money,
    render_money_interval,
    render_purchase,
    render_time_interval,
)
from tonnage.service.batch_breakeven import BatchBreakEven, QueueRow

QUEUE_COLUMNS: Final = (
    "machines", "finish_s", "finish_low_s", "finish_high_s", "cost_usd", "cost_low_usd", "cost_high_usd",
    "simulated_finish_s", "simulated_cost_usd", "in_time",
)  # fmt: skip
NOTES: Final = (
    "finish, cost and intervals are those of `tonnage plan` for so many machines; each answer is kept as it comes",
    "simulated: the mean of 20 runs of the queue, event by event",
)


def batch_breakeven_report(found: BatchBreakEven) -> Report:
    """The report of a batch."""
    return Report(
        page=lambda: _page(found),
        document=lambda: _document(found),
        columns=QUEUE_COLUMNS,
        rows=lambda: [_row(row) for row in found.rows],
    )


def _page(found: BatchBreakEven) -> Page:
    blocks: list[Block] = [*_queue_blocks(found), *_api_blocks(found), *price_blocks(found.catalog)]
    blocks += [Heading(text="Notes"), Bullets(items=NOTES)]
    return Page(
        title=f"Break-even of {found.workload.name}, as of {found.workload.as_of:%Y-%m-%d}", blocks=tuple(blocks)
    )


def _queue_blocks(found: BatchBreakEven) -> Iterator[Block]:
    option = found.option
    yield Heading(text="Own machines")
    if option is None:
        yield Paragraph(text=f"Nothing fits: {found.refused:,} candidates refused; see `tonnage plan`.", tone="warning")
        return
    gpus = render_gpus(option.gpu, option.gpu_count)
    where = f"{option.instance_type} ({gpus}) at {option.provider}, {render_purchase(option.purchase)}"
    yield Paragraph(text=f"{render_count(found.job.items)} items on {where}.")
    if option.spot is not None:
        yield Paragraph(text=spot_words(option.spot), tone="faint")
    columns = (
        Column(title="machines", align="right"),
        Column(title="finish", align="right"),
        Column(title="80 %", align="right", folds=1),
        Column(title="cost", align="right"),
        Column(title="80 %", align="right", folds=2),
        Column(title="simulated", align="right", folds=3),
        Column(title="in time"),
    )
    yield Table(columns=columns, rows=tuple(_cells(row, row is found.chosen) for row in found.rows))


def _cells(row: QueueRow, chosen: bool) -> tuple[str, ...]:
    finish, usd = row.option.time_s, row.option.cost_usd
    assert finish is not None
    return (
        str(row.option.count),
        render_duration(finish.value),
        render_time_interval(finish),
        render_money(usd.value),
        render_money_interval(usd),
        f"{render_duration(row.simulated_finish_s)}, {render_money(row.simulated_usd)}",
        ("cheapest" if chosen else "yes") if row.in_time else "no",
    )


def _api_blocks(found: BatchBreakEven) -> Iterator[Block]:
    if not found.apis:
        return
    yield Heading(text="Beside prices per token")
    columns = (
        Column(title="API", wraps=True),
        Column(title="cost", align="right"),
        Column(title="machines are cheaper", wraps=True),
        Column(title="read", folds=1),
    )
    rows = tuple(
        (api.prices.name, render_money(api.usd),
         "never" if api.from_items is None else f"from {render_count(round(api.from_items))} items",
         render_date(api.prices.read_on))
        for api in found.apis
    )  # fmt: skip
    yield Table(columns=columns, rows=rows)


def _document(found: BatchBreakEven) -> dict[str, Any]:
    option = found.option
    return {
        "schema": BREAKEVEN_SCHEMA,
        "kind": "batch",
        "as_of": plain_instant(found.workload.as_of),
        "horizon": "job",
        "workload": found.workload.name,
        "items": found.job.items,
        "machine": None
        if option is None
        else {
            "provider": option.provider,
            "instance_type": option.instance_type,
            "region": option.region,
            "purchase": option.purchase,
            "usd_per_instance_hour": plain_number(option.usd_per_instance_hour),
        },
        "queue": [_row_document(row) for row in found.rows],
        "chosen_machines": None if found.chosen is None else found.chosen.option.count,
        "apis": [
            {
                "name": api.prices.name,
                "source": api.prices.source,
                "read_on": plain_day(api.prices.read_on),
                "usd": plain_usd(api.usd),
                "own_cheaper_from_items": plain_number(api.from_items),
            }
            for api in found.apis
        ],
        "catalog": catalog_document(found.catalog),
        "notes": list(NOTES),
    }


def _row_document(row: QueueRow) -> dict[str, Any]:
    return {
        "machines": row.option.count,
        "finish_s": plain_figure(row.option.time_s),
        "cost_usd": plain_cost(row.option.cost_usd),
        "simulated_finish_s": plain_number(row.simulated_finish_s),
        "simulated_cost_usd": plain_usd(row.simulated_usd),
        "in_time": row.in_time,
    }


def _row(row: QueueRow) -> list[Any]:
    finish, usd = row.option.time_s, row.option.cost_usd
    return [
        row.option.count,
        *(plain_number(getattr(finish, end)) for end in ("value", "low", "high")),
        *(plain_usd(getattr(usd, end)) for end in ("value", "low", "high")),
        plain_number(row.simulated_finish_s),
        plain_usd(row.simulated_usd),
        row.in_time,
    ]
