"""How one option does the work, in full: time parts, memory parts, rates, layout."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.planning.intervals import Interval
from tonnage.planning.plan import RunDetail
from tonnage.reports.blocks import Block, Column, Heading, Paragraph, Table
from tonnage.reports.reasons.notes import interval_words, note_words
from tonnage.reports.wording import (
    render_duration,
    render_gib,
    render_interval,
    render_quantity,
    render_time_interval,
    short,
)

PERCENTILE_WORDS = {"ttft": "first token", "tpot": "per further token", "latency": "whole answer"}


def run_blocks(run: RunDetail, *, device: str) -> Iterator[Block]:
    """Sections of a run; `device` is whose memory it is («GPU» or «machine»)."""
    yield Heading(text="How it runs")
    yield Table(columns=_PLAIN, rows=tuple(_run_rows(run)))
    if run.time_parts:
        yield Heading(text=f"Where the time of one {run.time_parts_of} goes")
        yield Table(columns=_PARTS, rows=tuple(_time_rows(run)))
    yield Heading(text=f"What the memory of one {device} holds")
    yield Table(columns=_PARTS, rows=tuple(_memory_rows(run)))
    total, room = render_interval(run.memory_gib, "GiB"), run.memory_available_gib
    yield Paragraph(text=f"{total} of {short(room)} GiB usable: {100 * run.memory_gib.value / room:.0f} % full.")
    if run.notes:
        yield Paragraph(text="; ".join(note_words(note) for note in run.notes) + ".", tone="faint")
    if run.intervals:
        yield Heading(text="What the 80 % intervals stand on")
        yield Table(columns=_INTERVALS, rows=tuple(_interval_row(one) for one in run.intervals))


_PLAIN = (Column(title=""), Column(title="", wraps=True), Column(title="", wraps=True))
_INTERVALS = (Column(title="of"), Column(title="measured / predicted"), Column(title="rows", wraps=True))
_PARTS = (Column(title=""), Column(title="", align="right"), Column(title="", align="right"))


def _interval_row(one: Interval) -> tuple[str, str, str]:
    return one.of, f"{short(one.spread.low_factor)}–{short(one.spread.high_factor)}", interval_words(one)


def _run_rows(run: RunDetail) -> Iterator[tuple[str, str, str]]:
    yield "layout", run.layout, ""
    if run.time_s is not None:
        yield "work alone", render_duration(run.time_s.value), _interval_note(render_time_interval(run.time_s))
    if run.latency_p95_s is not None:
        note = _interval_note(render_time_interval(run.latency_p95_s))
        yield "p95 latency", render_duration(run.latency_p95_s.value), note
    if run.ttft_p95_s is not None:
        note = _interval_note(render_time_interval(run.ttft_p95_s))
        yield "p95 TTFT", render_duration(run.ttft_p95_s.value), note
    for of, at in run.percentiles:
        seconds = dict(at)
        text = ", ".join(render_duration(seconds[name]) for name in ("p50", "p95", "p99"))
        yield f"{PERCENTILE_WORDS[of]} p50, p95, p99", text, f"mean {render_duration(seconds['mean'])}"
    for key, figure in run.rates:
        label, value = render_quantity(key, figure.value)
        low, high = (render_quantity(key, end)[1] for end in (figure.low, figure.high))
        yield label, value, _interval_note(f"{low} – {high}" if figure.low != figure.high else "")


def _interval_note(interval: str) -> str:
    return f"80 % interval {interval}" if interval else ""


def _time_rows(run: RunDetail) -> Iterator[tuple[str, str, str]]:
    total = sum(seconds for _, seconds in run.time_parts)
    whole = run.time_parts_of == "step"  # parts of a step add up; those of a request overlap
    for part, seconds in run.time_parts:
        share = f"{100 * seconds / total:.0f} %" if whole and total > 0 else ""
        yield part.replace("_", " "), render_duration(seconds), share


def _memory_rows(run: RunDetail) -> Iterator[tuple[str, str, str]]:
    total = sum(gib for _, gib in run.memory_parts_gib)
    for part, gib in run.memory_parts_gib:
        yield part.replace("_", " "), render_gib(gib), f"{100 * gib / total:.0f} %" if total > 0 else ""
