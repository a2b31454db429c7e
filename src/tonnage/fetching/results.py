"""What was asked for, and what became of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tonnage.http.downloaded import FetchedFile
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """One call of `tonnage fetch`."""

    sources: tuple[str, ...]
    targets: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sha256: str | None = None
    sums: tuple[str, ...] = ()  # files or URLs of `SHA256SUMS`
    jobs: int = 8
    attempts: int = 6
    first_wait_s: float = 0.5
    copy: bool = False
    offline: bool = False
    dry_run: bool = False
    force: bool = False
    cache: Path
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Every file of a request, in the order of its sources."""

    files: tuple[FetchedFile, ...]
    seconds: float
    dry_run: bool
    offline: bool = False

    @property
    def failures(self) -> tuple[FetchedFile, ...]:
        """What did not come."""
        return tuple(one for one in self.files if one.outcome == "failed")
