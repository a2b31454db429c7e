"""The tables of a run's report: predicted beside measured figures, sessions, checkpoints, files."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from tonnage.reports.listing import Field, Fields, cell
from tonnage.reports.plain import plain_instant, plain_usd
from tonnage.reports.run_figures import render_value
from tonnage.reports.wording import UNKNOWN, render_duration, render_gib, render_money, short
from tonnage.runs.diagnosis import ComparedFigure
from tonnage.runs.guards import SpendSession
from tonnage.runs.summary import Artifact, CheckpointRecord
from tonnage.units import to_gib


def render_minute(at: datetime | None) -> str:
    """An instant to the minute."""
    return UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M}"


def render_size(size_bytes: int | None) -> str:
    """A size in GiB."""
    return UNKNOWN if size_bytes is None else render_gib(to_gib(size_bytes))


def _money(usd: float | None) -> str:
    return UNKNOWN if usd is None else render_money(usd)


def _file_size(size_bytes: int) -> str:
    return f"{short(size_bytes / 1024)} KiB" if size_bytes < 100 * 1024 else render_size(size_bytes)


def _text(one: ComparedFigure, value: float | None) -> str:
    return UNKNOWN if value is None else render_value(one.key, value)[1]


def _off(one: ComparedFigure) -> str:
    return "" if one.off_fraction is None else f"{100 * one.off_fraction:+.0f} %"


def _as_read(value: Any) -> Any:
    """CSV holds figures of a run with every digit."""
    return value


_INSIDE: Final = {True: "yes", False: "NO", None: UNKNOWN}
COMPARED: Final[Fields[ComparedFigure]] = (
    Field("figure", lambda one: one.key),
    cell("figure", lambda one: render_value(one.key, one.predicted)[0]),
    cell("predicted", lambda one: _text(one, one.predicted), right=True),
    cell("80 % interval", lambda one: f"{_text(one, one.low)} – {_text(one, one.high)}", right=True, folds=1,
         fold_text="80 % interval {}"),
    *(Field(name, attrgetter(name), json=_as_read) for name in ("predicted", "low", "high", "measured")),
    cell("measured", lambda one: _text(one, one.measured), right=True),
    cell("off", _off, right=True, folds=3, fold_text="off {}"),
    Field("inside", lambda one: one.inside, title="inside", show=_INSIDE.__getitem__),
    Field("read_as", lambda one: one.read_as, title="read as", show=str, folds=2, wraps=True),
)  # fmt: skip
CHECKPOINTS: Final[Fields[CheckpointRecord]] = (
    Field("step", lambda one: one.step, title="step", show="{:,}".format, right=True),
    Field("path", lambda one: one.path),
    Field("size_bytes", lambda one: one.bytes, title="size", show=render_size, right=True),
    Field("written_in_s", lambda one: one.seconds, title="written in", show=render_duration, right=True),
    cell("path", lambda one: one.path, wraps=True),
    Field("kept", lambda one: one.there),
)
ARTIFACTS: Final[Fields[Artifact]] = (
    Field("what", lambda one: one.what, title="what"),
    cell("size", lambda one: _file_size(one.bytes), right=True),
    Field("path", lambda one: one.path, title="path", wraps=True),
    Field("size_bytes", lambda one: one.bytes),
)


def session_fields(billing_quantum_s: float) -> Fields[SpendSession]:
    """Sessions, billed by a quantum of so many seconds begun."""
    return (
        Field("session", lambda one: one.number, title="session", show=str, right=True),
        Field("starts", lambda one: one.attempts),
        Field("started_at", lambda one: one.started_at, json=plain_instant, title="started (UTC)", show=render_minute),
        Field("ended_at", lambda one: one.ended_at, json=plain_instant),
        Field("held_s", lambda one: one.seconds, title="machines held", show=render_duration, right=True),
        cell("starts", lambda one: str(one.attempts), right=True),
        Field("usd_per_hour", lambda one: one.usd_per_hour, json=_as_read, title="$/h", right=True,
              show=lambda usd: UNKNOWN if usd is None else f"{usd:g}"),
        Field("billing_quantum_s", lambda _: billing_quantum_s),
        Field("cost_usd", lambda one: one.usd, json=plain_usd, title="cost", show=_money, right=True),
    )  # fmt: skip
