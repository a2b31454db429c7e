"""`tonnage ps`: every run and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage.cli import options
from tonnage.cli.session import open_session

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.runs.folder import RunFolder


def ps(
    every: Annotated[bool, typer.Option("-a", "--all", help="Ended runs too.")] = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Runs that are under way, and those that were lost; with --all every run. The newest comes first.

    A run whose supervisor is gone without a last word is `lost`: `tonnage resume` goes on with it.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.cli.home_runs import all_runs
    from tonnage.runs.liveness import observed_state
    from tonnage.runs.states import State

    folders = [
        folder
        for folder in all_runs(session.settings)
        if every or (state := observed_state(folder).state) is State.LOST or not state.ended
    ]
    session.show(run_listing(folders, title="Runs", remark="" if every else "--all lists ended runs too"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    task: str
    runner: str
    processes: int
    state: Any
    step: int
    spent_usd: float | None
    forecast_usd: float | None
    folder: str


def run_listing(folders: Sequence[RunFolder], *, title: str, remark: str = "") -> Report:
    """Runs as a report, the newest first."""
    from tonnage.reports.listing import Field, Listing, listing_report

    rows = sorted((_row(folder) for folder in folders), key=_age, reverse=True)
    fields: list[Field[_Row]] = [
        Field(key="name", title="run", read=lambda row: row.name),
        Field(key="state", title="state", read=lambda row: row.state.state.value),
        Field(key="reason", title="reason", read=lambda row: row.state.reason and row.state.reason.value),
        Field(key="step", title="step", read=lambda row: row.step, right=True),
        Field(key="checkpoint_step", title="saved", read=lambda row: row.state.checkpoint_step, right=True),
        Field(key="attempt", title="starts", read=lambda row: row.state.attempt, right=True),
        Field(key="lost_steps", read=lambda row: row.state.lost_steps),
        Field(key="task", title="task", read=lambda row: row.task),
        Field(key="runner", title="runner", read=lambda row: row.runner),
        Field(key="processes", title="procs", read=lambda row: row.processes, right=True),
        Field(key="spent_usd", title="spent USD", read=lambda row: row.spent_usd, right=True),
        Field(key="forecast_usd", read=lambda row: row.forecast_usd),
        Field(key="submitted_at", title="submitted", read=lambda row: _instant(row.state.submitted_at), show=_minute),
        Field(key="started_at", read=lambda row: _instant(row.state.started_at)),
        Field(key="ended_at", read=lambda row: _instant(row.state.ended_at)),
        Field(key="message", title="", read=lambda row: row.state.message),
        Field(key="folder", read=lambda row: row.folder),
    ]  # fmt: skip
    remarks = [f"{row.name}: {row.state.message}" for row in rows if row.state.message]
    return listing_report(
        Listing(
            schema="tonnage/runs@1",
            title=title,
            name="runs",
            head={},
            fields=fields,
            items=rows,
            remarks=[*remarks, *([remark] if remark else [])],
        )
    )


def _row(folder: RunFolder) -> _Row:
    from tonnage.runs.liveness import observed_state, read_heartbeat

    spec, state, beat = folder.spec(), observed_state(folder), read_heartbeat(folder)
    return _Row(
        name=folder.path.name,
        task=spec.task,
        runner=spec.launch.runner,
        processes=spec.launch.processes,
        state=state,
        step=max(state.step, _newest_step(folder)),
        spent_usd=beat.spent_usd if beat else None,
        forecast_usd=beat.forecast_usd if beat and not state.state.ended else None,
        folder=str(folder.path),
    )


def _newest_step(folder: RunFolder) -> int:
    import json

    from tonnage.runs.tail import last_lines

    lines = last_lines(folder.metrics_file, 1)
    try:
        return int(json.loads(lines[0])["step"]) if lines else 0
    except (ValueError, KeyError, TypeError):  # a line cut off by a kill: the journal's step stands
        return 0


def _age(row: _Row) -> datetime:
    submitted: datetime | None = row.state.submitted_at
    return submitted or datetime.fromtimestamp(0, UTC)


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _minute(value: str | None) -> str:
    return "" if value is None else value[:16].replace("T", " ")
