"""`tonnage bench serve` as a report: how a service answered, whether it kept its promise, what a search tried."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

from tonnage.reports.blocks import Block, Heading, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.plain import plain_instant, plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import render_duration, short
from tonnage.traffic.bench import PredictedFigure, ServiceBench
from tonnage.traffic.exchanges import LoadResult, TimingSummary

SCHEMA: Final = "tonnage/bench@1"
_NAMES: Final = {
    "latency": "whole answer",
    "ttft": "first token",
    "tpot": "per token after it",
    "gaps": "between pieces",
    "lateness": "sent late (the client's own)",
}
_PROMISED: Final = {"latency_s": "whole answer", "ttft_s": "first token", "tpot_s": "per token after it"}


def service_bench_report(bench: ServiceBench) -> Report:
    """The report in its three contents; the CSV has a line a figure, in seconds."""
    return fields_report(
        lambda: Page(title=f"{bench.model} at {bench.url}", blocks=tuple(_blocks(bench))),
        lambda: _document(bench),
        (Field("figure", lambda row: row[0]), *(_of_spread(one) for one in _SPREAD)),
        _spreads(bench.result),
    )


def _of_spread(field: Field[TimingSummary]) -> Field[tuple[str, TimingSummary]]:
    return Field(field.key, lambda row: field.read(row[1]))


def _spreads(result: LoadResult) -> list[tuple[str, TimingSummary]]:
    named = [(name, getattr(result, name)) for name in _NAMES]
    return [(name, found) for name, found in named if found is not None]


def _document(bench: ServiceBench) -> dict[str, Any]:
    capacity = bench.capacity
    return {
        "schema": SCHEMA, "url": bench.url, "protocol": bench.protocol, "model": bench.model,
        "arrivals": bench.arrivals, "began": plain_instant(bench.began),
        "promise_p95": {name: plain_number(limit) for name, limit in bench.promise.limits.items()},
        **_result_document(bench.result),
        "client_cpu_s_per_request": plain_number(bench.client_cpu_s_per_request),
        "capacity": None if capacity is None else {
            "held_per_s": plain_number(capacity.held_per_s), "broken_per_s": plain_number(capacity.broken_per_s),
            "client_bound": capacity.client_bound,
            "trials": [{"rate_per_s": plain_number(rate), **_result_document(one)} for rate, one in capacity.trials],
        },
        "predicted": [field_values(_PREDICTED, one) for one in bench.predicted],
        "rows": [dict(row) for row in bench.rows], "remarks": list(bench.remarks),
    }  # fmt: skip


def _result_document(result: LoadResult) -> dict[str, Any]:
    spreads = {f"{name}_s": None if one is None else field_values(_SPREAD, one)
               for name, one in ((name, getattr(result, name)) for name in _NAMES)}  # fmt: skip
    return {
        **field_values(_RESULT, result), "errors": dict(result.faults), "broken": list(result.broken),
        "tail_is_late": result.tail_is_late, "holds": result.holds, "void": result.void or None, **spreads,
    }  # fmt: skip


def _blocks(bench: ServiceBench) -> Iterator[Block]:
    result = bench.result
    if result.void:
        yield Paragraph(text=f"Void: {result.void}.", tone="warning")
    yield Pairs(rows=tuple(_pairs(bench)))
    yield field_table(_TIMES, _spreads(result))
    if result.tail_is_late and not result.void:
        yield Paragraph(text="The 99th percentiles hold lateness of the client, and give no rows.", tone="warning")
    if result.faults:
        yield Heading(text="Errors")
        yield Pairs(rows=tuple((kind, f"{count:,}") for kind, count in result.faults))
    if bench.predicted:
        yield Heading(text="Predicted for this load, beside it")
        yield field_table(_PREDICTED, bench.predicted)
    if bench.capacity is not None:
        yield Heading(text="Rates tried")
        yield field_table(_TRIALS, bench.capacity.trials)
        yield Paragraph(text=_capacity_words(bench))
    if result.holds is not None and not result.void:
        yield _verdict(bench)


def _pairs(bench: ServiceBench) -> Iterator[tuple[str, str]]:
    result = bench.result
    yield "arrivals", f"{bench.arrivals}, over {bench.protocol}"
    yield "offered", f"{short(result.offered_per_s)} requests/s for {render_duration(result.window_s)}: {result.sent:,}"
    yield "answered", f"{short(result.requests_per_s)} requests/s, {result.answered:,} in all"
    if result.output_tokens_per_s is not None:
        yield "written", f"{short(result.output_tokens_per_s)} tokens/s"
    if result.input_tokens is not None:
        written = "" if result.output_tokens is None else f", {short(result.output_tokens)} out"
        yield "tokens a request", f"{short(result.input_tokens)} in{written}"
    yield "in flight", f"{short(result.in_flight)} on average"
    if result.goodput_per_s is not None and result.kept_fraction is not None:
        yield "inside the promise", f"{short(result.goodput_per_s)} requests/s, {100 * result.kept_fraction:.1f} %"
    yield "client's CPU", f"{1e6 * bench.client_cpu_s_per_request:,.0f} µs a request"


def _verdict(bench: ServiceBench) -> Paragraph:
    limits = bench.promise.limits
    if bench.result.holds:
        kept = ", ".join(f"{_PROMISED[name]} {render_duration(limit)}" for name, limit in limits.items())
        return Paragraph(text=f"The promise holds (p95): {kept}.", tone="good")
    broken = ", ".join(f"{_PROMISED[name]} {render_duration(limits[name])}" for name in bench.result.broken)
    return Paragraph(text=f"The promise is broken (p95): {broken}.", tone="warning")


def _capacity_words(bench: ServiceBench) -> str:
    capacity = bench.capacity
    assert capacity is not None
    if capacity.held_per_s is None:
        return "No rate that was tried keeps the promise."
    if capacity.broken_per_s is None:
        return f"The promise holds up to {short(capacity.held_per_s)} requests/s, the most that was tried."
    above = "the client could not offer" if capacity.client_bound else "the promise breaks at"
    return (
        f"The promise holds up to {short(capacity.held_per_s)} requests/s; {above} {short(capacity.broken_per_s)} "
        "requests/s."
    )


def _percent(value: float) -> str:
    return f"{value:+.0f} %"


def _seconds(name: str) -> Any:
    return lambda row: render_duration(getattr(row[1], name))


def _trial_p95(row: tuple[float, LoadResult]) -> str:
    spread = row[1].latency
    return render_duration(None if spread is None else spread.p95)


_SPREAD: Final[Fields[TimingSummary]] = tuple(
    Field(name, attrgetter(name)) for name in ("count", "mean", "p50", "p90", "p95", "p99", "longest")
)
_RESULT: Final[Fields[LoadResult]] = tuple(
    Field(name, attrgetter(name))
    for name in (
        "offered_per_s", "window_s", "sent", "answered", "requests_per_s", "output_tokens_per_s", "input_tokens",
        "output_tokens", "in_flight", "kept_fraction", "goodput_per_s",
    )
)  # fmt: skip
_PREDICTED: Final[Fields[PredictedFigure]] = (
    Field("metric", lambda one: one.metric, title=""),
    Field("measured", lambda one: one.measured, title="measured", right=True),
    Field("predicted", lambda one: one.predicted, title="predicted", right=True),
    Field("low", lambda one: one.low, title="low", right=True),
    Field("high", lambda one: one.high, title="high", right=True),
    Field("error_percent", lambda one: one.error_percent, title="error", right=True, show=_percent),
)
_TIMES: Final[Fields[tuple[str, TimingSummary]]] = (
    cell("", lambda row: _NAMES[row[0]], wraps=True),
    *(cell(name, _seconds(name), right=True) for name in ("mean", "p50", "p90", "p95", "p99", "longest")),
)
_TRIALS: Final[Fields[tuple[float, LoadResult]]] = (
    cell("requests/s", lambda row: short(row[0]), right=True),
    cell("answered/s", lambda row: short(row[1].requests_per_s), right=True),
    cell("p95", _trial_p95, right=True),
    cell("inside the promise", lambda row: f"{100 * (row[1].kept_fraction or 0.0):.1f} %", right=True),
    cell("", lambda row: "void" if row[1].void else "holds" if row[1].holds else "breaks"),
)
