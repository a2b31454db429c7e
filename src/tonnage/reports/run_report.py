"""`tonnage show RUN`: what was asked, predicted beside measured and why they differ, the loss, events, spend, files;
as a page and as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.plain import plain_instant, plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.run_fields import ARTIFACTS, CHECKPOINTS, COMPARED, render_minute, render_size, session_fields
from tonnage.reports.run_figures import figure_pairs, measured_document
from tonnage.reports.wording import UNKNOWN, plural, render_duration, render_money, short
from tonnage.runs.courses import load_courses, memory_courses
from tonnage.runs.diagnosis import ComparedFigure
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.states import RunState
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
    events = _without_routine([event for event in run.records.events if event.kind not in _QUIET])
    if not events:
        yield Paragraph(text="nothing yet", tone="faint")
        return
    yield field_table(_EVENTS, events[-MOST_EVENTS:])
    if len(events) > MOST_EVENTS:
        yield Paragraph(
            text=f"{len(events) - MOST_EVENTS:,} earlier ones are in the journal, and in -o json", tone="faint"
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


SCHEMA: Final = "tonnage/run-report@1"


def run_document(run: RunSummary) -> dict[str, Any]:
    """`tonnage/run-report@1`."""
    spec, training = run.records.spec, run.records.spec.training
    prediction = run.records.prediction
    return {
        "schema": SCHEMA,
        "name": run.name,
        "folder": run.folder,
        **_state_document(run.state),
        "asked": {
            "task": spec.task, "model": spec.model, "weights": spec.weights, "method": training.method,
            "precision": training.precision, "global_batch": training.global_batch, "micro_batch": training.micro_batch,
            "epochs": training.epochs, "max_steps": training.max_steps, "runner": spec.launch.runner,
            "processes": spec.launch.processes,
        },
        "predicted_for": prediction.get("device"),
        "why_not_predicted": prediction.get("why_none"),
        "figures": [_compared_document(one) for one in run.compared],
        "why": list(run.why),
        "measured": measured_document(run.measured),
        "loss": [[plain_number(step), plain_number(loss)] for step, loss in run.loss],
        "metrics": {name: _number(value) for name, value in run.metrics.items()},
        "baseline": {name: _number(value) for name, value in run.baseline.items()},
        "events": [
            {"at": event.at.isoformat(), "who": event.who, "kind": event.kind.value, **event.fields}
            for event in run.records.events
        ],
        "spend": [field_values(session_fields(run.records.spec.guard.billing_quantum_s), one) for one in run.sessions],
        "checkpoints": [field_values(CHECKPOINTS, one) for one in run.checkpoints],
        "artifacts": [field_values(ARTIFACTS, one) for one in run.artifacts],
    }  # fmt: skip


def _number(value: Any) -> Any:
    return plain_number(value) if isinstance(value, int | float) else value


def _state_document(state: RunState) -> dict[str, Any]:
    instants = {name: getattr(state, name) for name in ("submitted_at", "started_at", "ended_at")}
    return {
        "state": state.state.value,
        "reason": state.reason.value if state.reason else None,
        "message": state.message,
        **{name: None if at is None else plain_instant(at) for name, at in instants.items()},
        "starts": state.attempt,
        "step": state.step,
        "total_steps": state.total_steps,
        "lost_steps": state.lost_steps,
        "checkpoint_step": state.checkpoint_step,
    }


def _compared_document(one: ComparedFigure) -> dict[str, Any]:
    predicted = {"value": one.predicted, "low": one.low, "high": one.high}
    return {
        "figure": one.key,
        "predicted": {name: plain_number(value) for name, value in predicted.items()} | {"basis": one.basis},
        "measured": plain_number(one.measured),
        "inside": one.inside,
        "off_fraction": plain_number(one.off_fraction),
        "read_as": one.read_as,
    }
