"""`tonnage show RUN`: what was asked, predicted beside measured and why they differ, the loss, events, spend, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.listing import Field, Fields, cell, field_table, fields_report
from tonnage.reports.rendering import Report
from tonnage.reports.run_document import run_document
from tonnage.reports.run_fields import ARTIFACTS, CHECKPOINTS, COMPARED, render_minute, render_size, session_fields
from tonnage.reports.run_figures import figure_pairs
from tonnage.reports.wording import UNKNOWN, plural, render_duration, render_money, short
from tonnage.runs.courses import load_courses, memory_courses
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.summary import RunSummary

MOST_EVENTS: Final = 30
_QUIET: Final = frozenset({EventKind.FORECAST, EventKind.TRACKING_SYNCED})


def run_report(run: RunSummary) -> Report:
    """The report in its three contents. As CSV: predicted beside measured."""
    return fields_report(
        lambda: Page(title=f"Run {run.name}: {run.state.state.value}", blocks=tuple(_blocks(run))),
        lambda: run_document(run), COMPARED, run.compared,
    )  # fmt: skip


def _blocks(run: RunSummary) -> Iterator[Block]:
    yield Pairs(rows=tuple(_head(run)))
    yield Heading(text="Predicted beside measured")
    yield from _comparison(run)
    yield Heading(text="Measured")
    yield Pairs(rows=tuple(figure_pairs(run.measured)))
    if run.loss:
        yield Heading(text="Loss")
        yield LineChart(title="Training loss", x_title="step", y_title="loss", series=(("loss", run.loss),))
    yield from _courses(run)
    if run.metrics:
        yield Heading(text="How good it is")
        yield _quality(run)
    yield Heading(text="What happened")
    yield from _events(run)
    if run.sessions:
        yield Heading(text="Spend")
        quantum_s = run.records.spec.guard.billing_quantum_s
        yield field_table(session_fields(quantum_s), run.sessions)
        if any(one.usd is not None for one in run.sessions):
            said = f"Each session is billed by {render_duration(quantum_s)} begun"
            yield Paragraph(text=f"{said} (`run.limits.billing_quantum`, --billing-quantum).", tone="faint")
    if run.checkpoints:
        yield Heading(text="Checkpoints")
        yield from _checkpoints(run)
    yield Heading(text="Files")
    yield field_table(ARTIFACTS, run.artifacts)


def _courses(run: RunSummary) -> Iterator[Block]:
    """Memory and load over the run's time, where they were sampled at least twice."""
    charts = (("Memory", "GiB", memory_courses), ("Load", "%", load_courses))
    for title, unit, courses in charts:
        series = tuple((name, course) for name, course in courses(run.records.samples) if len(course) > 1)
        if series:
            yield Heading(text=title)
            yield LineChart(title=title, x_title="minute", y_title=unit, series=series)


def _head(run: RunSummary) -> Iterator[tuple[str, str]]:
    spec, state = run.records.spec, run.state
    yield "state", " — ".join(filter(None, (state.state.value, state.reason and state.reason.value, state.message)))
    yield "task", spec.task
    yield "model", spec.model or str(spec.weights or UNKNOWN)
    yield "on", f"{run.measured.device or UNKNOWN}, {plural(run.measured.processes, 'process')} ({spec.launch.runner})"
    for before, after in pairwise(run.records.stretches):
        where = f"{plural(before.processes, 'process')} ({before.runner}, {before.device})"
        yield "before", f"steps {before.step:,} to {after.step:,} on {where}; what was measured is of the steps since"
    training = spec.training
    batch = f"{training.global_batch} samples a step, micro-batch {run.measured.micro_batch or UNKNOWN}"
    yield "learns by", f"{training.method}, {training.precision}, {batch}, {training.optimizer}"
    of = f" of {state.total_steps:,}" if state.total_steps else ""
    yield "steps", f"{state.step:,}{of}, checkpoint at {state.checkpoint_step or 0:,}"
    yield "starts", f"{state.attempt}, {plural(state.lost_steps, 'step')} done again"
    yield "submitted", render_minute(state.submitted_at)
    yield "took", render_duration(run.measured.seconds)
    yield "spent", UNKNOWN + " (no price given)" if run.measured.usd is None else render_money(run.measured.usd)
    yield "folder", run.folder


def _comparison(run: RunSummary) -> Iterator[Block]:
    prediction = run.records.prediction
    if not run.compared:
        why = prediction.get("why_none") or ("no prediction was made" if not prediction else "it names no figure")
        yield Paragraph(text=f"Nothing was predicted: {why}.", tone="faint")
        return
    if prediction.get("device"):
        yield Paragraph(text=f"Predicted for {prediction['device']}.", tone="faint")
    yield field_table(COMPARED, run.compared)
    if run.why:
        yield Paragraph(text="Outside its interval, because:", tone="warning")
        yield Bullets(items=run.why)
    elif any(one.inside for one in run.compared):
        yield Paragraph(text="What was measured lies inside the intervals.", tone="good")


def _quality(run: RunSummary) -> Table:
    """Each metric of the model, and of the baselines: a baseline's name ends with the metric's."""
    names = sorted({name.removesuffix(f"_{metric}") if name != metric else "" for name in run.baseline
                    for metric in run.metrics if name == metric or name.endswith(f"_{metric}")})  # fmt: skip
    titles = [name.replace("_", " ") or "baseline" for name in names]
    fields: list[Field[tuple[str, float]]] = [
        cell("metric", lambda one: one[0]),
        cell("this model", lambda one: _plain(one[1]), right=True),
    ]
    fields += [cell(title, _baseline_of(run, name), right=True) for name, title in zip(names, titles, strict=True)]
    return field_table(fields, list(run.metrics.items()))


def _baseline_of(run: RunSummary, name: str) -> Callable[[tuple[str, float]], str]:
    return lambda one: _plain(run.baseline.get(f"{name}_{one[0]}".lstrip("_")))


def _plain(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return short(float(value), 4) if isinstance(value, int | float) else str(value)


def _events(run: RunSummary) -> Iterator[Block]:
    told = _without_routine([event for event in run.records.events if event.kind not in _QUIET])
    if not told:
        yield Paragraph(text="nothing yet", tone="faint")
        return
    yield field_table(_EVENTS, told[-MOST_EVENTS:])
    if len(told) > MOST_EVENTS:
        yield Paragraph(
            text=f"{len(told) - MOST_EVENTS:,} earlier ones are in the journal, and in -o json", tone="faint"
        )


def _without_routine(events: list[Event]) -> list[Event]:
    """Of checkpoints that follow one another the newest: all of them have a section of their own."""
    following = [*(event.kind for event in events[1:]), None]
    return [
        event for event, after in zip(events, following, strict=False)
        if not event.kind is after is EventKind.CHECKPOINT
    ]  # fmt: skip


def _details(event: Event) -> str:
    details = [str(event.fields["message"])] if event.fields.get("message") else []
    details += [
        f"{name.removesuffix('_bytes')} {_size(name, value)}" for name, value in event.fields.items()
        if name not in {"message", "command", "pid"} and value is not None
    ]  # fmt: skip
    return "; ".join(details)


def _size(name: str, value: Any) -> str:
    return render_size(value) if name.endswith("bytes") and isinstance(value, int) else _detail(value)


def _detail(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_detail(inner)}" for name, inner in value.items())
    return short(value, 4) if isinstance(value, float) else str(value)


_EVENTS: Final[Fields[Event]] = (
    cell("at (UTC)", lambda event: f"{event.at:%Y-%m-%d %H:%M:%S}"),
    cell("what", lambda event: event.kind.value.replace("_", " ")),
    cell("by", lambda event: event.who, folds=1),
    cell("", _details, wraps=True),
)


def _checkpoints(run: RunSummary) -> Iterator[Block]:
    there = [one for one in run.checkpoints if one.there]
    if there:
        yield field_table(CHECKPOINTS, there)
    gone = [one.step for one in run.checkpoints if not one.there]
    if gone:
        what = plural(len(gone), "older one" if there else "checkpoint")
        text = f"{what} gone since, of steps {min(gone):,} to {max(gone):,}"
        yield Paragraph(text=text, tone="faint")
