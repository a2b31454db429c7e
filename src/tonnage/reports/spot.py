"""`tonnage spot replay` as a report: every policy on every trace, beside on-demand and the optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tonnage.reports.blocks import Block, Bullets, Heading, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, part_fields
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural
from tonnage.spot_instances.replaying import POLICIES, ReplayResult, SpotPolicyResult, TraceResult

SCHEMA: Final = "tonnage/spot-replay@1"


def replay_report(found: ReplayResult) -> Report:
    """The report in its three contents."""
    return fields_report(
        lambda: Page(title="Spot replay", blocks=tuple(_blocks(found))),
        lambda: _document(found),
        (Field("trace", lambda row: row[0].trace), Field("family", lambda row: row[0].family),
         *part_fields("", lambda row: row[1], _POLICY)),
        [(one, line) for one in found.traces for line in one.results],
    )  # fmt: skip


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
        "mean": [field_values(_POLICY, line) for line in mean_results(found)],
        "skipped": [{"trace": one.trace, "reason": one.reason} for one in found.skipped],
    }


def _trace(one: TraceResult) -> dict[str, Any]:
    return {
        "trace": one.trace,
        "family": one.family,
        "zones": list(one.zones),
        "nodes": one.nodes,
        "availability": plain_number(one.availability),
        "policies": [field_values(_POLICY, line) for line in one.results],
    }


def mean_results(found: ReplayResult) -> list[SpotPolicyResult]:
    """Each policy's plain mean over the traces; misses and windows are sums."""
    return [_mean(name, [one.results[place] for one in found.traces]) for place, name in enumerate(POLICIES)]


def _mean(name: str, lines: list[SpotPolicyResult]) -> SpotPolicyResult:
    finished = [line.finished_h for line in lines if line.finished_h is not None]
    launches = [line.launches for line in lines if line.launches is not None]
    return SpotPolicyResult(
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
    yield field_table(_TRACE, found.traces)
    yield Heading(text="All traces" if len(found.traces) > 1 else "In detail")
    yield field_table(_POLICY, mean_results(found))
    if found.skipped:
        yield Heading(text="Skipped")
        yield Bullets(items=tuple(one.reason for one in found.skipped))
    yield Paragraph(
        text="Optimum: the future known. Time-sliced: the best number of slices in hindsight. Vs optimum: mean bill "
        "over the optimum's mean bill.",
        tone="faint",
    )


def _ratio(place: int) -> Callable[[TraceResult], str]:
    return lambda one: f"{one.results[place].cost_vs_on_demand:.3f}"


def _tenths(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


_TRACE: Final[Fields[TraceResult]] = (
    cell("trace", lambda one: one.trace, wraps=True),
    cell("spot up %", lambda one: f"{100 * one.availability:.0f}", right=True, folds=9, fold_text="spot up {} %"),
    *(cell(name, _ratio(place), right=True) for place, name in enumerate(POLICIES) if name != "on-demand"),
)
_POLICY: Final[Fields[SpotPolicyResult]] = (
    Field("policy", lambda line: line.policy, title="policy"),
    Field("cost_vs_on_demand", lambda line: line.cost_vs_on_demand, title="vs on-demand", show="{:.3f}".format,
          right=True),
    Field("cost_vs_optimum", lambda line: line.cost_vs_optimum, title="vs optimum", show="{:.3f}".format, right=True),
    cell("deadlines missed", lambda line: f"{line.misses:,} of {line.windows:,}", right=True),
    Field("misses", lambda line: line.misses),
    Field("windows", lambda line: line.windows),
    Field("finished_h", lambda line: line.finished_h, title="done after h", show=_tenths, right=True, folds=2,
          fold_text="done after {} h"),
    Field("launches", lambda line: line.launches, title="launches", show=_tenths, right=True, folds=1,
          fold_text="{} launches"),
    Field("slices", lambda line: line.slices),
)  # fmt: skip
