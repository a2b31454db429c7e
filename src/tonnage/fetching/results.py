"""What was asked for, and what became of each file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from tonnage.values import dataclass

Outcome = Literal["fetched", "from cache", "already there", "to fetch", "failed"]


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
class FetchedFile:
    """One file: what happened, how it was verified, where it stands."""

    name: str
    source: str
    outcome: Outcome
    size_bytes: int | None
    version: str | None = None
    sha256: str | None = None
    verified_by: str = ""
    places: tuple[str, ...] = ()
    problem: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """One file of a manifest, read again."""

    name: str
    target: str
    state: Literal["ok", "changed", "missing"]
    size_bytes: int
    sha256: str
    found_sha256: str | None = None
