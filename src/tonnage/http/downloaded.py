"""What became of files that were to be downloaded, and of those read again."""

from __future__ import annotations

from typing import Literal

from tonnage.values import dataclass

Outcome = Literal["fetched", "from cache", "already there", "to fetch", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """One file: what happened, how it was verified, its path."""

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
class VerifiedFile:
    """One file of a manifest, read again."""

    name: str
    target: str
    state: Literal["ok", "changed", "missing"]
    size_bytes: int
    sha256: str
    found_sha256: str | None = None
