"""What the store gives back: one value per row."""

from __future__ import annotations

from datetime import datetime

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run as the index knows it; its folder knows more."""

    name: str
    folder: str
    host: str  # whose folder it is; empty: this machine's (SQLite)
    task: str
    model: str
    runner: str
    state: str
    reason: str | None
    message: str
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    step: int
    lost_steps: int
    events: int
    usd: float | None  # spent so far; None: no price was given


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRow:
    """What one session of a run took: from its start to its end, restarts and waits between included."""

    run: str
    session: int
    started_at: datetime
    ended_at: datetime | None  # None: still running, or never heard of again
    seconds: float
    usd_per_hour: float | None
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A plan as it was asked for: its JSON, under the SHA-256 of that text."""

    sha256: str
    name: str
    made_at: datetime
    document: str
