"""`tonnage spot replay` as a report: every policy on every trace, beside on-demand and the optimum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural
from tonnage.spot_instances.replaying import POLICIES, PolicyResult, ReplayResult, TraceResult

SCHEMA: Final = "tonnage/spot-replay@1"
_COLUMNS: Final = (
    "trace", "family", "policy", "cost_vs_on_demand", "cost_vs_optimum", "misses", "windows", "finished_h", "launches",
    "slices",
)  # fmt: skip


def replay_report(found: ReplayResult) -> Report:
    """The report in its three contents."""
    return Report(
        page=lambda: Page(title="Spot replay", blocks=tuple(_blocks(found))),
        document=lambda: _document(found),
        columns=_COLUMNS,
        rows=lambda: [
            [one.trace, one.family, *_figures(line).values()] for one in found.traces for line in one.results
        ],
    )


def _figures(line: PolicyResult) -> dict[str, Any]:
    return {
        "policy": line.policy,
        "cost_vs_on_demand": plain_number(line.cost_vs_on_demand),
        "cost_vs_optimum": plain_number(line.cost_vs_optimum),
        "misses": line.misses,
        "windows": line.windows,
        "finished_h": plain_number(line.finished_h),
        "launches": plain_number(line.launches),
        "slices": line.slices,
    }


def _document(found: ReplayResult) -> dict[str, Any]:
    job = found.job
    return {
        "schema": SCHEMA,
        "job": {
            "work_h": plain_number(job.work_h),
            "deadline_h": plain_number(job.deadline_h),
            "changeover_h": plain_number(job.changeover_h),
            "price_ratio": plain_number(job.price_ratio),
        },
        "windows": found.windows,
        "seed": found.seed,
        "zones": "together" if found.together else "apart",
        "model": found.model_source,
        "traces": [_trace(one) for one in found.traces],
        "mean": [_figures(line) for line in mean_results(found)],
        "skipped": [{"trace": one.trace, "reason": one.reason} for one in found.skipped],
    }


def _trace(one: TraceResult) -> dict[str, Any]:
    return {
        "trace": one.trace,
        "family": one.family,
        "zones": list(one.zones),
        "nodes": one.nodes,
        "availability": plain_number(one.availability),
        "policies": [_figures(line) for line in one.results],
    }


def mean_results(found: ReplayResult) -> list[PolicyResult]:
    """Each policy's plain mean over the traces; misses and windows are sums."""
    return [_mean(name, [one.results[place] for one in found.traces]) for place, name in enumerate(POLICIES)]


def _mean(name: str, lines: list[PolicyResult]) -> PolicyResult:
    finished = [line.finished_h for line in lines if line.finished_h is not None]
    launches = [line.launches for line in lines if line.launches is not None]
    return PolicyResult(
        policy=name,
        cost_vs_on_demand=float(np.mean([line.cost_vs_on_demand for line in lines])),
        cost_vs_optimum=float(np.mean([line.cost_vs_optimum for line in lines])),
        misses=sum(line.misses for line in lines),
        windows=sum(line.windows for line in lines),
        finished_h=float(np.mean(finished)) if finished else None,
        launches=float(np.mean(launches)) if launches else None,
    )


def _blocks(found: ReplayResult) -> Iterator[Block]:
    job = found.job
    yield Pairs(
        rows=(
            ("job", f"{job.work_h:g} h of work, {job.deadline_h:g} h to the deadline"),
            ("changeover", f"{job.changeover_h:g} h a launch, billed"),
            ("prices", f"on-demand costs {job.price_ratio:g} times spot"),
            ("replayed", f"{plural(found.windows, 'random start')} a trace, seed {found.seed}"),
            ("hazard model", found.model_source),
        )
    )
    yield Heading(text="Cost, on-demand alone = 1")
    yield Table(columns=_trace_columns(), rows=tuple(_trace_cells(one) for one in found.traces))
    yield Heading(text="All traces" if len(found.traces) > 1 else "In detail")
    yield _summary(mean_results(found))
    if found.skipped:
        yield Heading(text="Skipped")
        yield Bullets(items=tuple(one.reason for one in found.skipped))
    yield Paragraph(
        text="Optimum: the future known. Time-sliced: the best number of slices in hindsight. Vs optimum: mean bill "
        "over the optimum's mean bill.",
        tone="faint",
    )


def _trace_columns() -> tuple[Column, ...]:
    return (
        Column(title="trace", wraps=True),
        Column(title="spot up %", align="right", folds=9, fold_text="spot up {} %"),
        *(Column(title=name, align="right") for name in POLICIES if name != "on-demand"),
    )


def _trace_cells(one: TraceResult) -> tuple[str, ...]:
    costs = [f"{line.cost_vs_on_demand:.3f}" for line in one.results if line.policy != "on-demand"]
    return (one.trace, f"{100 * one.availability:.0f}", *costs)


def _summary(lines: list[PolicyResult]) -> Table:
    columns = (
        Column(title="policy"),
        Column(title="vs on-demand", align="right"),
        Column(title="vs optimum", align="right"),
        Column(title="deadlines missed", align="right"),
        Column(title="done after h", align="right", folds=2, fold_text="done after {} h"),
        Column(title="launches", align="right", folds=1, fold_text="{} launches"),
    )
    return Table(columns=columns, rows=tuple(_summary_cells(line) for line in lines))


def _summary_cells(line: PolicyResult) -> tuple[str, ...]:
    return (
        line.policy,
        f"{line.cost_vs_on_demand:.3f}",
        f"{line.cost_vs_optimum:.3f}",
        f"{line.misses:,} of {line.windows:,}",
        "" if line.finished_h is None else f"{line.finished_h:.1f}",
        "" if line.launches is None else f"{line.launches:.1f}",
    )
