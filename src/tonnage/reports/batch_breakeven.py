"""A batch on k machines beside prices per token (`tonnage/breakeven@1`, kind batch)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Heading, Page, Paragraph
from tonnage.reports.breakeven_document import BREAKEVEN_SCHEMA
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_cost, plain_figure, plain_instant, plain_number, plain_usd
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
from tonnage.service.batch_breakeven import BatchApi, BatchBreakEven, QueueRow

NOTES: Final = (
    "finish, cost and intervals are those of `tonnage plan` for so many machines; each answer is kept as it comes",
    "simulated: the mean of 20 runs of the queue, event by event",
)


def batch_breakeven_report(found: BatchBreakEven) -> Report:
    """The report of a batch."""
    return fields_report(lambda: _page(found), lambda: _document(found), _QUEUE_ROW, found.rows)


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
    yield field_table(_queue_cells(found.chosen), found.rows)


def _queue_cells(chosen: QueueRow | None) -> Fields[QueueRow]:
    def in_time(row: QueueRow) -> str:
        return ("cheapest" if row is chosen else "yes") if row.in_time else "no"

    return (
        cell("machines", lambda row: str(row.option.count), right=True),
        cell("finish", lambda row: render_duration(row.option.time_s and row.option.time_s.value), right=True),
        cell("80 %", lambda row: render_time_interval(row.option.time_s), right=True, folds=1),
        cell("cost", lambda row: render_money(row.option.cost_usd.value), right=True),
        cell("80 %", lambda row: render_money_interval(row.option.cost_usd), right=True, folds=2),
        cell("simulated", lambda row: f"{render_duration(row.simulated_finish_s)}, {render_money(row.simulated_usd)}",
             right=True, folds=3),
        cell("in time", in_time),
    )  # fmt: skip


def _api_blocks(found: BatchBreakEven) -> Iterator[Block]:
    if found.apis:
        yield Heading(text="Beside prices per token")
        yield field_table(_API, found.apis)


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
        "queue": [field_values(_QUEUE, row) for row in found.rows],
        "chosen_machines": None if found.chosen is None else found.chosen.option.count,
        "apis": [field_values(_API, api) for api in found.apis],
        "catalog": catalog_document(found.catalog),
        "notes": list(NOTES),
    }


_API: Final[Fields[BatchApi]] = (
    Field("name", lambda api: api.prices.name, title="API", wraps=True),
    Field("source", lambda api: api.prices.source),
    Field("read_on", lambda api: api.prices.read_on),
    Field("usd", lambda api: api.usd, json=plain_usd, title="cost", show=render_money, right=True),
    Field("own_cheaper_from_items", lambda api: api.from_items, title="machines are cheaper", wraps=True,
          show=lambda items: "never" if items is None else f"from {render_count(round(items))} items"),
    cell("read", lambda api: render_date(api.prices.read_on), folds=1),
)  # fmt: skip
_MACHINES: Final[Field[QueueRow]] = Field("machines", lambda row: row.option.count)
_SIMULATED: Final[Fields[QueueRow]] = (
    Field("simulated_finish_s", lambda row: row.simulated_finish_s),
    Field("simulated_cost_usd", lambda row: row.simulated_usd, json=plain_usd),
    Field("in_time", lambda row: row.in_time),
)
_QUEUE: Final[Fields[QueueRow]] = (
    _MACHINES,
    Field("finish_s", lambda row: row.option.time_s, json=plain_figure),
    Field("cost_usd", lambda row: row.option.cost_usd, json=plain_cost),
    *_SIMULATED,
)
_QUEUE_ROW: Final[Fields[QueueRow]] = (
    _MACHINES,
    *figure_fields("finish{}_s", lambda row: row.option.time_s),
    *figure_fields("cost{}_usd", lambda row: row.option.cost_usd, plain_usd),
    *_SIMULATED,
)
