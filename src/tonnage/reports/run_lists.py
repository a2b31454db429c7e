"""`tonnage runs list` and the measurements of the store as lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_money

RUNS: Final = "tonnage/runs@1"


class RunLine(Protocol):
    """A run as an index knows it."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def runner(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def submitted_at(self) -> datetime | None: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def usd(self) -> float | None: ...


def runs_list(runs: Sequence[RunLine], *, database: str, top: int | None) -> Report:
    """Runs of the index, the newest first."""
    fields: tuple[Field[RunLine], ...] = (
        Field(key="name", read=lambda run: run.name, title="run"),
        Field(key="state", read=lambda run: run.state, title="state"),
        Field(key="reason", read=lambda run: run.reason, title="reason", folds=1),
        Field(key="task", read=lambda run: run.task, title="task", folds=4),
        Field(key="model", read=lambda run: run.model, title="model", folds=3, wraps=True),
        Field(key="runner", read=lambda run: run.runner, title="runner", folds=6),
        Field(key="step", read=lambda run: run.step, title="step", right=True, show=lambda step: f"{step:,}"),
        Field(key="starts", read=lambda run: run.attempt, title="starts", right=True, folds=5, fold_text="{} starts"),
        Field(key="cost_usd", read=lambda run: run.usd, title="cost", right=True, show=_money),
        Field(key="submitted_at", read=lambda run: _instant(run.submitted_at), title="submitted (UTC)", show=_minute,
              folds=2),
        Field(key="ended_at", read=lambda run: _instant(run.ended_at)),
        Field(key="folder", read=lambda run: run.folder),
    )  # fmt: skip
    remarks = () if runs else ("`tonnage run FILE` starts one; `tonnage runs reindex` reads folders into the index",)
    listing = Listing(
        schema=RUNS, title="Runs", name="runs", head={"database": database}, fields=fields, items=runs,
        remarks=remarks, most=top,
    )  # fmt: skip
    return listing_report(listing)


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _minute(at: Any) -> str:
    return UNKNOWN if at is None else f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M}"


def _money(usd: Any) -> str:
    return UNKNOWN if usd is None else render_money(usd)
