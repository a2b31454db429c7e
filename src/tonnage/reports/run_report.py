"""`tonnage show RUN`: what was asked, predicted beside measured and why they differ, the loss, events, spend, files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Column, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.rendering import Report
from tonnage.reports.run_document import run_document
from tonnage.reports.run_figures import figure_pairs, render_value
from tonnage.reports.wording import UNKNOWN, plural, render_duration, render_gib, render_money, short
from tonnage.runs.courses import load_courses, memory_courses
from tonnage.runs.diagnosis import Compared
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.summary import RunSummary
from tonnage.units import to_gib

MOST_EVENTS: Final = 30
_CSV: Final = ("figure", "predicted", "low", "high", "measured", "inside", "read_as")
_QUIET: Final = frozenset({EventKind.FORECAST, EventKind.TRACKING_SYNCED})


def run_report(run: RunSummary) -> Report:
    """The report in its three contents. As CSV: predicted beside measured."""
    return Report(
        page=lambda: Page(title=f"Run {run.name}: {run.state.state.value}", blocks=tuple(_blocks(run))),
        document=lambda: run_document(run),
        columns=_CSV,
        rows=lambda: [
            [one.key, one.predicted, one.low, one.high, one.measured, one.inside, one.read_as] for one in run.compared
        ],
    )


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
        yield _spend(run)
        if any(one.usd is not None for one in run.sessions):
            quantum = render_duration(run.records.spec.guard.billing_quantum_s)
            text = f"Each session is billed by {quantum} begun (`run.limits.billing_quantum`, --billing-quantum)."
            yield Paragraph(text=text, tone="faint")
    if run.checkpoints:
        yield Heading(text="Checkpoints")
        yield from _checkpoints(run)
    yield Heading(text="Files")
    yield _files(run)


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
    yield "submitted", _minute(state.submitted_at)
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
    columns = (
        Column(title="figure"),
        Column(title="predicted", align="right"),
        Column(title="80 % interval", align="right", folds=1, fold_text="80 % interval {}"),
        Column(title="measured", align="right"),
        Column(title="off", align="right", folds=3, fold_text="off {}"),
        Column(title="inside"),
        Column(title="read as", folds=2, wraps=True),
    )
    yield Table(columns=columns, rows=tuple(_compared_row(one) for one in run.compared))
    if run.why:
        yield Paragraph(text="Outside its interval, because:", tone="warning")
        yield Bullets(items=run.why)
    elif any(one.inside for one in run.compared):
        yield Paragraph(text="What was measured lies inside the intervals.", tone="good")


def _compared_row(one: Compared) -> tuple[str, ...]:
    label, predicted = render_value(one.key, one.predicted)
    low, high = (render_value(one.key, end)[1] for end in (one.low, one.high))
    measured = UNKNOWN if one.measured is None else render_value(one.key, one.measured)[1]
    off = "" if one.off_fraction is None else f"{100 * one.off_fraction:+.0f} %"
    inside = {True: "yes", False: "NO", None: UNKNOWN}[one.inside]
    return label, predicted, f"{low} – {high}", measured, off, inside, one.read_as


def _quality(run: RunSummary) -> Table:
    """Each metric of the model, and of the baselines: a baseline's name ends with the metric's."""
    names = sorted({name.removesuffix(f"_{metric}") if name != metric else "" for name in run.baseline
                    for metric in run.metrics if name == metric or name.endswith(f"_{metric}")})  # fmt: skip
    titles = [name.replace("_", " ") or "baseline" for name in names]
    columns = (Column(title="metric"), *(Column(title=title, align="right") for title in ["this model", *titles]))
    rows = [
        (metric, _plain(value), *(_plain(run.baseline.get(f"{name}_{metric}".lstrip("_"))) for name in names))
        for metric, value in run.metrics.items()
    ]
    return Table(columns=columns, rows=tuple(rows))


def _plain(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return short(float(value), 4) if isinstance(value, int | float) else str(value)


def _events(run: RunSummary) -> Iterator[Block]:
    told = _without_routine([event for event in run.records.events if event.kind not in _QUIET])
    if not told:
        yield Paragraph(text="nothing yet", tone="faint")
        return
    columns = (
        Column(title="at (UTC)"),
        Column(title="what"),
        Column(title="by", folds=1),
        Column(title="", wraps=True),
    )
    yield Table(columns=columns, rows=tuple(_event_row(event) for event in told[-MOST_EVENTS:]))
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


def _event_row(event: Event) -> tuple[str, str, str, str]:
    details = [str(event.fields["message"])] if event.fields.get("message") else []
    details += [
        f"{name.removesuffix('_bytes')} {_size(name, value)}" for name, value in event.fields.items()
        if name not in {"message", "command", "pid"} and value is not None
    ]  # fmt: skip
    return f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind.value.replace("_", " "), event.who, "; ".join(details)


def _size(name: str, value: Any) -> str:
    return render_gib(to_gib(value)) if name.endswith("bytes") and isinstance(value, int) else _detail(value)


def _detail(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_detail(inner)}" for name, inner in value.items())
    return short(value, 4) if isinstance(value, float) else str(value)


def _spend(run: RunSummary) -> Table:
    columns = (
        Column(title="session", align="right"), Column(title="started (UTC)"),
        Column(title="machines held", align="right"), Column(title="starts", align="right"),
        Column(title="$/h", align="right"), Column(title="cost", align="right"),
    )  # fmt: skip
    rows = [
        (str(one.number), _minute(one.started_at), render_duration(one.seconds), str(one.attempts),
         UNKNOWN if one.usd_per_hour is None else f"{one.usd_per_hour:g}",
         UNKNOWN if one.usd is None else render_money(one.usd))
        for one in run.sessions
    ]  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))


def _checkpoints(run: RunSummary) -> Iterator[Block]:
    columns = (
        Column(title="step", align="right"), Column(title="size", align="right"),
        Column(title="written in", align="right"), Column(title="path", wraps=True),
    )  # fmt: skip
    kept = [one for one in run.checkpoints if one.there]
    rows = [
        (f"{one.step:,}", UNKNOWN if one.bytes is None else render_gib(to_gib(one.bytes)), render_duration(one.seconds),
         one.path)
        for one in kept
    ]  # fmt: skip
    yield Table(columns=columns, rows=tuple(rows))
    gone = [one.step for one in run.checkpoints if not one.there]
    if gone:
        text = f"{plural(len(gone), 'older one')} gone since, of steps {min(gone):,} to {max(gone):,}"
        yield Paragraph(text=text, tone="faint")


def _files(run: RunSummary) -> Table:
    columns = (Column(title="what"), Column(title="size", align="right"), Column(title="path", wraps=True))
    return Table(columns=columns, rows=tuple((one.what, _bytes(one.bytes), one.path) for one in run.artifacts))


def _bytes(size: int) -> str:
    return f"{short(size / 1024)} KiB" if size < 100 * 1024 else render_gib(to_gib(size))


def _minute(at: datetime | None) -> str:
    return UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M}"
