"""Runs and their states, as a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.reports.listing import Fields
    from tonnage.reports.rendering import Report
    from tonnage.runs.folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedRun:
    name: str
    task: str
    runner: str
    processes: int
    state: Any
    step: int
    spent_usd: float | None
    forecast_usd: float | None
    forecast_end_at: datetime | None
    folder: str


def run_listing(
    folders: Sequence[RunFolder], *, title: str, remark: str = "", every: bool = True, services: Sequence[str] = ()
) -> Report:
    """Runs as a report, the newest first: all of them, or those under way and lost. What cannot be read is named.

    `services`: a line for each service, below.
    """
    from tonnage.reports.listing import Listing, listing_report
    from tonnage.runs.states import RunStatus

    now = datetime.now(UTC)
    found, broken = _read(folders)
    rows = [row for row in found if every or row.state.state is RunStatus.LOST or not row.state.state.ended]
    broken += [_fault(row) for row in rows if row.state.faults]
    rows.sort(key=_age, reverse=True)
    remarks = [f"{row.name}: {row.state.message}" for row in rows if row.state.message]
    return listing_report(
        Listing(
            schema="tonnage/runs@1",
            title=title,
            name="runs",
            head={},
            fields=_fields(now),
            items=rows,
            remarks=[*remarks, *broken, *services, *([remark] if remark else [])],
        )
    )


def _fields(now: datetime) -> Fields[_ListedRun]:
    from tonnage.reports.listing import Field

    return [
        Field(key="name", title="run", read=lambda row: row.name),
        Field(key="state", title="state", read=lambda row: row.state.state.value),
        Field(key="reason", title="reason", read=lambda row: row.state.reason and row.state.reason.value, show=_given),
        Field(key="step", title="step", read=lambda row: row.step, show=_whole, right=True),
        Field(key="total_steps", title="of", read=lambda row: row.state.total_steps, show=_whole, right=True),
        Field(key="checkpoint_step", title="saved", read=lambda row: row.state.checkpoint_step, show=_whole,
              right=True),
        Field(key="left_s", title="left", read=lambda row: _left_s(row, now), show=_duration, right=True),
        Field(key="spent_usd", title="USD", read=lambda row: row.spent_usd, right=True),
        Field(key="attempt", read=lambda row: row.state.attempt),
        Field(key="lost_steps", read=lambda row: row.state.lost_steps),
        Field(key="task", read=lambda row: row.task),
        Field(key="runner", read=lambda row: row.runner),
        Field(key="processes", read=lambda row: row.processes),
        Field(key="forecast_usd", read=lambda row: row.forecast_usd),
        Field(key="submitted_at", title="submitted", read=lambda row: _instant(row.state.submitted_at), show=_minute),
        Field(key="started_at", read=lambda row: _instant(row.state.started_at)),
        Field(key="ended_at", read=lambda row: _instant(row.state.ended_at)),
        Field(key="message", read=lambda row: row.state.message),
        Field(key="folder", read=lambda row: row.folder),
    ]  # fmt: skip


def _read(folders: Sequence[RunFolder]) -> tuple[list[_ListedRun], list[str]]:
    """A row for each folder that can be read, and what is wrong with the others: one must not hide all."""
    from tonnage.errors import InputError

    rows, broken = [], []
    for folder in folders:
        try:
            row = _row(folder)
        except (InputError, ValueError, OSError) as error:
            broken.append(f"{folder.path.name} cannot be read: {getattr(error, 'message', error)}")
            continue
        rows.append(row)
    return rows, broken


def _fault(row: _ListedRun) -> str:
    many = f" ({len(row.state.faults)} such lines)" if len(row.state.faults) > 1 else ""
    return f"{row.name}: a line of its journal is left out{many}: {row.state.faults[0]}"


def _row(folder: RunFolder) -> _ListedRun:
    from tonnage.runs.liveness import observed_state, read_heartbeat

    spec, state, beat = folder.spec(), observed_state(folder), read_heartbeat(folder)
    ahead = beat if not state.state.ended else None
    return _ListedRun(
        name=folder.path.name,
        task=spec.task,
        runner=spec.launch.runner,
        processes=spec.launch.processes,
        state=state,
        step=state.step,
        spent_usd=beat.spent_usd if beat else None,
        forecast_usd=ahead.forecast_usd if ahead else None,
        forecast_end_at=ahead.forecast_end_at if ahead else None,
        folder=str(folder.path),
    )


def _left_s(row: _ListedRun, now: datetime) -> float | None:
    """Seconds until the end that was foreseen last; nothing before three steps were measured."""
    return None if row.forecast_end_at is None else max(0.0, (row.forecast_end_at - now).total_seconds())


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _whole(value: int | None) -> str:
    """A count in full."""
    return "" if value is None else f"{value:,}"


def _given(value: str | None) -> str:
    return value or ""


def _age(row: _ListedRun) -> datetime:
    submitted: datetime | None = row.state.submitted_at
    return submitted or datetime.fromtimestamp(0, UTC)


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _minute(value: str | None) -> str:
    return "" if value is None else value[:16].replace("T", " ")


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(3725), duration(65)
    ('1:02:05', '1:05')
    """
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
