"""The size of a job: what it needs, and the smallest machine of each kind that holds it (`tonnage/size@1`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tonnage.planning.sizes import SizeMiss, SizeReport, SizeRow
from tonnage.reports.blocks import Block, Column, Heading, Page, Paragraph, Table
from tonnage.reports.plain import plain_figure, plain_instant, plain_number
from tonnage.reports.plan_document import needs_document, run_document, workload_document
from tonnage.reports.plan_page import need_blocks, workload_blocks
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

SIZE_SCHEMA: Final = "tonnage/size@1"
SIZE_COLUMNS: Final = (
    "gpu", "gpus", "nodes", "gpus_per_node", "layout", "memory_gib", "memory_low_gib", "memory_high_gib",
    "memory_available_gib", "time_s", "time_low_s", "time_high_s", "latency_p95_s", "rate", "rate_value",
    "instance_types",
)  # fmt: skip
IN_USE: Final = (
    "Memory is what is in use: weights, activations, the runtime's context and the cache of the requests in flight. "
    "nvidia-smi shows more where the engine sets a pool aside: all of the pool."
)
IN_A_PASS: Final = (
    "Memory is what a pass holds: weights, its activations and the runtime's context. nvidia-smi shows more: blocks "
    "that a framework's allocator keeps (TensorFlow takes the whole device unless told otherwise)."
)
IN_A_STEP: Final = (
    "Memory is what a step needs at its peak: what the allocator counts as allocated, and the runtime's context "
    "outside it. Reserved memory, and with it nvidia-smi, shows more: blocks that the allocator keeps while it can."
)
READINGS: Final = (("kv_cache", IN_USE), ("concurrency", IN_A_PASS), ("micro_batch", IN_A_STEP))


def size_report(report: SizeReport, *, top: int, every_row: bool) -> Report:
    """`every_row`: pages show each machine and node count, else only the smallest of each GPU."""
    return Report(
        page=lambda: _page(report, top=top, every_row=every_row),
        document=lambda: _document(report),
        columns=SIZE_COLUMNS,
        rows=lambda: [_row(row) for row in report.rows],
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
        blocks += [Heading(text=f"{what}: {min(top, len(rows)):,} of {len(rows):,}"), _table(report, rows[:top])]
        blocks.append(Paragraph(text="Memory is per GPU; times and rates are without start-up.", tone="faint"))
        stated = {name for row in rows for name, _ in row.run.layout_fields}
        if reading := next((text for name, text in READINGS if name in stated), ""):
            blocks.append(Paragraph(text=reading, tone="faint"))
    else:
        blocks.append(Heading(text="Nothing in the catalog holds it"))
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


def _table(report: SizeReport, rows: tuple[SizeRow, ...]) -> Table:
    service = any(row.run.latency_p95_s is not None for row in report.rows)
    columns = (
        Column(title="GPUs"),
        Column(title="nodes", align="right"),
        Column(title="memory", align="right"),
        Column(title="of GiB", align="right"),
        Column(title="p95" if service else "time", align="right"),
        Column(title="80 %", align="right", folds=3),
        Column(title="rate", align="right", folds=1),
        Column(title="layout", folds=2, wraps=True),
        Column(title="machines", folds=4, wraps=True),
    )
    return Table(columns=columns, rows=tuple(_cells(row, service) for row in rows))


def _cells(row: SizeRow, service: bool) -> tuple[str, ...]:
    run = row.run
    time = run.latency_p95_s if service else run.time_s
    return (
        render_gpus(row.gpu, row.gpu_count, row.nodes),
        str(row.nodes),
        render_interval(run.memory_gib),
        short(run.memory_available_gib),
        render_duration(time.value if time else None),
        render_time_interval(time),
        " ".join(reversed(render_quantity(run.rates[0][0], run.rates[0][1].value))) if run.rates else "",
        run.layout,
        _some(row.instance_types),
    )


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
    columns = (
        Column(title="limit"),
        Column(title="out", align="right"),
        Column(title="for example", wraps=True),
        Column(title="needs", wraps=True, folds=1, fold_text="needs {}"),
        Column(title="has", wraps=True, folds=2, fold_text="has {}"),
        Column(title="what lifts this limit", wraps=True, folds=3, fold_text="→ {}"),
    )
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    yield Table(columns=columns, rows=tuple(_miss_row(binding, group) for binding, group in ordered))


def _miss_row(binding: str, group: list[SizeMiss]) -> tuple[str, ...]:
    first, words = group[0], miss_words(group[0].miss)
    example = f"{render_gpus(first.gpu, first.gpu_count)}, {first.instance_types[0]}"
    return (binding, str(len(group)), example, words.needs, words.has, words.lifts)


def _document(report: SizeReport) -> dict[str, Any]:
    return {
        "schema": SIZE_SCHEMA,
        "as_of": plain_instant(report.as_of),
        "workload": workload_document(report.name, report.kind, report.summary),
        "needs": needs_document(report.need),
        "rows": [
            {
                "gpu": row.gpu,
                "gpus": plain_number(row.gpu_count * row.nodes),
                "nodes": row.nodes,
                "gpus_per_node": plain_number(row.gpu_count),
                "instance_types": list(row.instance_types),
                "layout": row.run.layout,
                "time_s": plain_figure(row.run.time_s),
                "memory_gib": plain_figure(row.run.memory_gib),
                "run": run_document(row.run),
            }
            for row in report.rows
        ],
        "misses": [_miss(miss) for miss in report.misses],
    }


def _miss(miss: SizeMiss) -> dict[str, Any]:
    words = miss_words(miss.miss)
    return {
        "gpu": miss.gpu,
        "gpus_per_node": plain_number(miss.gpu_count),
        "instance_types": list(miss.instance_types),
        "binding": miss.miss.binding,
        "needs": words.needs,
        "has": words.has,
        "flips_when": words.lifts,
        "reason": miss_document(miss.miss),
    }


def _row(row: SizeRow) -> list[Any]:
    run, time, latency = row.run, row.run.time_s, row.run.latency_p95_s
    rate = run.rates[0] if run.rates else None
    return [
        row.gpu,
        plain_number(row.gpu_count * row.nodes),
        row.nodes,
        plain_number(row.gpu_count),
        run.layout,
        *(plain_number(getattr(run.memory_gib, end)) for end in ("value", "low", "high")),
        plain_number(run.memory_available_gib),
        *(plain_number(getattr(time, end)) if time else None for end in ("value", "low", "high")),
        plain_number(latency.value) if latency else None,
        rate[0] if rate else None,
        plain_number(rate[1].value) if rate else None,
        " ".join(row.instance_types),
    ]
