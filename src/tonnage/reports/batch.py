"""`tonnage batch` as a report, and its line of progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.reports.blocks import Block, Heading, Page, Pairs
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural, render_duration, render_money, short
from tonnage.traffic.batch import BatchOutcome, BatchProgress, PlannedBatch

SCHEMA: Final = "tonnage/batch@1"
_ENDINGS: Final = {"done": "all rows are done", "cost": "stopped at --max-cost", "deadline": "stopped at --deadline",
                   "interrupted": "interrupted", "upstream": "the service refused",
                   "away": "stopped at --patience: nothing answered"}  # fmt: skip


def batch_report(outcome: BatchOutcome) -> Report:
    """The report in its three contents; the CSV has one row."""
    flat = {name: value for name, value in _document(outcome).items() if name not in ("schema", "errors", "planned")}
    return Report(
        page=lambda: Page(title=f"{outcome.output}: {_ENDINGS[outcome.ending]}", blocks=tuple(_blocks(outcome))),
        document=lambda: _document(outcome),
        columns=tuple(flat),
        rows=lambda: [list(flat.values())],
    )


def progress_line(progress: BatchProgress, planned: PlannedBatch | None = None) -> str:
    """The state of the batch, in one line, beside its plan."""
    parts = [progress.away] if progress.away else []
    parts.append(f"{progress.finished:,} of {progress.total:,} rows")
    if progress.per_s is not None:
        parts.append(f"{short(progress.per_s)}/s, {render_duration(progress.left_s)} left")
    parts.append(f"{progress.limit} at a time")
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if progress.usd is not None and progress.usd_in_all is not None:
        parts.append(f"{render_money(progress.usd)} of about {render_money(progress.usd_in_all)}")
    if planned is not None:
        parts.append(f"planned {short(planned.rows_per_s)}/s, {render_money(planned.usd_per_row * progress.total)}")
    return ", ".join(parts)


def _document(outcome: BatchOutcome) -> dict[str, Any]:
    progress = outcome.progress
    return {
        "schema": SCHEMA, "ending": outcome.ending, "reason": outcome.reason or None, "output": outcome.output,
        "errors_file": outcome.errors if progress.failed else None, "rows": progress.total,
        "done_before": progress.done_before, "answered": progress.answered, "failed": progress.failed,
        "left": progress.total - progress.finished, "retries": progress.retries,
        "seconds": plain_number(progress.seconds), "rows_per_s": plain_number(progress.per_s),
        "concurrency": progress.limit, "input_tokens": progress.input_tokens, "output_tokens": progress.output_tokens,
        "usd": plain_number(progress.usd), "usd_forecast": plain_number(progress.usd_in_all),
        "planned": _planned_document(outcome),
        "cut_bytes": outcome.cut_bytes, "cpu_s": plain_number(outcome.cpu_s), "errors": dict(outcome.faults),
    }  # fmt: skip


def _planned_document(outcome: BatchOutcome) -> dict[str, Any] | None:
    planned, per_s = outcome.planned, outcome.progress.per_s
    if planned is None:
        return None
    here = None if per_s is None else planned.usd_at(per_s)
    return {
        "rows_per_s": {"value": plain_number(planned.rows_per_s), "low": plain_number(planned.rows_per_s_low),
                       "high": plain_number(planned.rows_per_s_high), "basis": "computed"},
        "usd": plain_number(planned.usd_per_row * outcome.progress.total),
        "usd_of_machines_at_this_speed": None if here is None else plain_number(here * outcome.progress.total),
    }  # fmt: skip


def _planned_pairs(outcome: BatchOutcome) -> Iterator[tuple[str, str]]:
    planned, progress = outcome.planned, outcome.progress
    if planned is None:
        return
    interval = f"{short(planned.rows_per_s_low)} to {short(planned.rows_per_s_high)}"
    yield "planned speed", f"{short(planned.rows_per_s)} rows/s ({interval})"
    yield "planned cost", render_money(planned.usd_per_row * progress.total)
    here = None if progress.per_s is None else planned.usd_at(progress.per_s)
    if here is not None:
        yield "machines of the plan at this speed", render_money(here * progress.total)


def _blocks(outcome: BatchOutcome) -> Iterator[Block]:
    yield Pairs(rows=tuple(_pairs(outcome)))
    if outcome.faults:
        yield Heading(text="Rows without an answer")
        yield Pairs(rows=tuple((kind, f"{count:,}") for kind, count in outcome.faults))


def _pairs(outcome: BatchOutcome) -> Iterator[tuple[str, str]]:
    progress = outcome.progress
    yield "rows", f"{progress.finished:,} of {progress.total:,}"
    if progress.done_before:
        yield "done before", f"{progress.done_before:,}"
    yield "answered now", f"{progress.answered:,}"
    if progress.failed:
        yield "without answer", f"{progress.failed:,}, see {outcome.errors}"
    if progress.per_s is not None:
        yield "speed", f"{short(progress.per_s)} rows/s for {render_duration(progress.seconds)}"
        yield "at a time, last", f"{progress.limit}"
    if progress.retries:
        yield "tried again", plural(progress.retries, "time")
    if progress.input_tokens or progress.output_tokens:
        yield "tokens", f"{progress.input_tokens:,} in, {progress.output_tokens:,} out"
    if progress.usd is not None:
        yield "cost", render_money(progress.usd)
        if progress.usd_in_all is not None and progress.finished < progress.total:
            yield "cost of all rows", f"about {render_money(progress.usd_in_all)}"
    yield from _planned_pairs(outcome)
    if outcome.cut_bytes:
        yield "cut off at the start", f"{outcome.cut_bytes:,} bytes of a line that a kill left unfinished"
