"""The size of a job: what it needs, and the smallest machine of each kind that holds it (`tonnage/size@1`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tonnage.planning.sizes import SizeMiss, SizeReport, SizeRow
from tonnage.reports.blocks import Block, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_figure, plain_instant
from tonnage.reports.plan_document import needs_document, run_document, workload_document
from tonnage.reports.plan_page import limits_table, need_blocks, workload_blocks
from tonnage.reports.reasons import miss_document, miss_words
from tonnage.reports.rendering import Format, Look, Report, render_report
from tonnage.reports.wording import (
    plural,
    render_duration,
    render_gpus,
    render_interval,
    render_quantity,
    render_time_interval,
    short,
)
from tonnage.sizing.estimates import Figure

SIZE_SCHEMA: Final = "tonnage/size@1"
IN_USE: Final = (
    "Memory is what is in use: weights, activations, the runtime's context and the cache of the requests in flight. "
    "nvidia-smi shows more where the engine sets a pool aside: all of the pool."
)
IN_A_PASS: Final = (
    "Memory is what a pass holds: weights, its activations and the runtime's context. nvidia-smi shows more: blocks "
    "that a framework's allocator keeps (TensorFlow takes the whole device by default)."
)
IN_A_STEP: Final = (
    "Memory is what a step needs at its peak: what the allocator counts as allocated, and the runtime's context "
    "outside it. Reserved memory, and with it nvidia-smi, shows more: blocks that the allocator keeps while it can."
)
READINGS: Final = (("kv_cache", IN_USE), ("concurrency", IN_A_PASS), ("micro_batch", IN_A_STEP))


def size_report(report: SizeReport, *, top: int, every_row: bool) -> Report:
    """`every_row`: pages show each machine and node count, else only the smallest of each GPU."""
    return fields_report(
        lambda: _page(report, top=top, every_row=every_row), lambda: _document(report), _ROW, report.rows
    )


def render_size(
    report: SizeReport, form: Format, *, top: int = 30, every_row: bool = False, look: Look | None = None
) -> str:
    """The text of a size report."""
    return render_report(size_report(report, top=top, every_row=every_row), form, look)


def _page(report: SizeReport, *, top: int, every_row: bool) -> Page:
    blocks: list[Block] = [*workload_blocks(report.summary), *need_blocks(report.need)]
    rows = report.rows if every_row else smallest_of_each(report.rows)
    if rows:
        what = "Machines that hold it" if every_row else "The fewest of each GPU that hold it"
        blocks += [
            Heading(text=f"{what}: {min(top, len(rows)):,} of {len(rows):,}"),
            field_table(_cells(report), rows[:top]),
        ]
        blocks.append(Paragraph(text="Memory is per GPU; times and rates are without start-up.", tone="faint"))
        stated = {name for row in rows for name, _ in row.run.layout_fields}
        if reading := next((text for name, text in READINGS if name in stated), ""):
            blocks.append(Paragraph(text=reading, tone="faint"))
    else:
        blocks.append(Heading(text="Nothing in the catalog holds it"))
        if not report.misses:
            blocks.append(Paragraph(text="No machine in the catalog has a GPU that `constraints.gpus` or --gpu names."))
    blocks += _miss_blocks(report)
    return Page(title=f"Size of {report.name} ({report.kind})", blocks=tuple(blocks))


def smallest_of_each(rows: tuple[SizeRow, ...]) -> tuple[SizeRow, ...]:
    """Of each GPU the run with the fewest devices, fewest nodes first among equals."""
    best: dict[str | None, SizeRow] = {}
    for row in rows:
        known = best.get(row.gpu)
        if known is None or (row.gpu_count * row.nodes, row.nodes) < (known.gpu_count * known.nodes, known.nodes):
            best[row.gpu] = row
    return tuple(sorted(best.values(), key=lambda row: (row.gpu_count * row.nodes, row.gpu or "")))


def _cells(report: SizeReport) -> Fields[SizeRow]:
    service = any(row.run.latency_p95_s is not None for row in report.rows)

    def time(row: SizeRow) -> Figure | None:
        return row.run.latency_p95_s if service else row.run.time_s

    def expected(row: SizeRow) -> str:
        found = time(row)
        return render_duration(found.value if found else None)

    return (
        cell("GPUs", lambda row: render_gpus(row.gpu, row.gpu_count, row.nodes)),
        cell("nodes", lambda row: str(row.nodes), right=True),
        cell("memory", lambda row: render_interval(row.run.memory_gib), right=True),
        cell("of GiB", lambda row: short(row.run.memory_available_gib), right=True),
        cell("p95" if service else "time", expected, right=True),
        cell("80 %", lambda row: render_time_interval(time(row)), right=True, folds=3),
        cell("rate", _first_rate, right=True, folds=1),
        cell("layout", lambda row: row.run.layout, folds=2, wraps=True),
        cell("machines", lambda row: _some(row.instance_types), folds=4, wraps=True),
    )


def _first_rate(row: SizeRow) -> str:
    rates = row.run.rates
    return " ".join(reversed(render_quantity(rates[0][0], rates[0][1].value))) if rates else ""


def _some(names: tuple[str, ...], most: int = 3) -> str:
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _miss_blocks(report: SizeReport) -> Iterator[Block]:
    if not report.misses:
        return
    groups: dict[str, list[SizeMiss]] = defaultdict(list)
    for miss in report.misses:
        groups[miss.miss.binding].append(miss)
    yield Heading(text=f"What does not: {plural(len(report.misses), 'kind')} of machine")
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    yield limits_table("for example", [(of, len(group), _example(group[0]), group[0].miss) for of, group in ordered])


def _example(miss: SizeMiss) -> str:
    return f"{render_gpus(miss.gpu, miss.gpu_count)}, {miss.instance_types[0]}"


def _document(report: SizeReport) -> dict[str, Any]:
    return {
        "schema": SIZE_SCHEMA,
        "as_of": plain_instant(report.as_of),
        "workload": workload_document(report.name, report.kind, report.summary),
        "needs": needs_document(report.need),
        "rows": [
            {
                **field_values(_KIND, row),
                "instance_types": list(row.instance_types),
                "layout": row.run.layout,
                "time_s": plain_figure(row.run.time_s),
                "memory_gib": plain_figure(row.run.memory_gib),
                "run": run_document(row.run),
            }
            for row in report.rows
        ],
        "misses": [field_values(_MISS, miss) for miss in report.misses],
    }


_KIND: Final[Fields[SizeRow]] = (
    Field("gpu", lambda row: row.gpu),
    Field("gpus", lambda row: row.gpu_count * row.nodes),
    Field("nodes", lambda row: row.nodes),
    Field("gpus_per_node", lambda row: row.gpu_count),
)
_ROW: Final[Fields[SizeRow]] = (
    *_KIND,
    Field("layout", lambda row: row.run.layout),
    *figure_fields("memory{}_gib", lambda row: row.run.memory_gib),
    Field("memory_available_gib", lambda row: row.run.memory_available_gib),
    *figure_fields("time{}_s", lambda row: row.run.time_s),
    Field("latency_p95_s", lambda row: row.run.latency_p95_s and row.run.latency_p95_s.value),
    Field("rate", lambda row: row.run.rates[0][0] if row.run.rates else None),
    Field("rate_value", lambda row: row.run.rates[0][1].value if row.run.rates else None),
    Field("instance_types", lambda row: row.instance_types),
)
_MISS: Final[Fields[SizeMiss]] = (
    Field("gpu", lambda one: one.gpu),
    Field("gpus_per_node", lambda one: one.gpu_count),
    Field("instance_types", lambda one: one.instance_types),
    Field("binding", lambda one: one.miss.binding),
    Field("needs", lambda one: miss_words(one.miss).needs),
    Field("has", lambda one: miss_words(one.miss).has),
    Field("flips_when", lambda one: miss_words(one.miss).lifts),
    Field("reason", lambda one: miss_document(one.miss)),
)
