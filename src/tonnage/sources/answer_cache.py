"""Answers of price APIs kept on disk, each with its ETag and the moment it was read. Losing it costs only time."""

from __future__ import annotations

import contextlib
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tonnage.files import write_whole
from tonnage.values import dataclass

KEPT_DAYS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """A body as it was read, and what the server calls that version of it."""

    text: str
    etag: str
    read_at: datetime


def default_cache_folder() -> Path:
    """The user's cache folder for price answers."""
    from platformdirs import user_cache_path

    return user_cache_path("tonnage", appauthor=False) / "sources"


@dataclass(frozen=True, slots=True)
class ResponseCache:
    """One file an address. Keys are addresses without secrets; files are written whole or not at all."""

    folder: Path

    def load(self, key: str) -> KeptResponse | None:
        """What is kept under `key`; None when nothing is, or it is damaged."""
        try:
            head, _, text = self._path(key).read_text(encoding="utf-8").partition("\n")
            meta = json.loads(head)
            read_at = datetime.fromisoformat(meta["read_at"])
            if meta["key"] != key or meta["sha256"] != _digest(text) or read_at.tzinfo is None:
                return None
            return KeptResponse(text=text, etag=str(meta["etag"]), read_at=read_at)
        except (OSError, ValueError, KeyError, TypeError):  # not kept, or damaged: it is read again
            return None

    def keep(self, key: str, text: str, *, etag: str, read_at: datetime) -> None:
        """Keep an answer. A cache that cannot be written only costs the next fetch."""
        head = json.dumps({"key": key, "etag": etag, "read_at": read_at.isoformat(), "sha256": _digest(text)})
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(key), head + "\n" + text, durable=False)

    def prune(self, now: datetime) -> None:
        """Remove what was written more than KEPT_DAYS ago, drafts of killed processes included."""
        oldest = (now - timedelta(days=KEPT_DAYS)).timestamp()
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:  # another process was quicker
                continue

    def _path(self, key: str) -> Path:
        return self.folder / f"{_digest(key)}.txt"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_fresh(kept: KeptResponse, *, max_age_s: float, now: datetime) -> bool:
    """Whether an answer is young enough to be used without asking again (an age of 0: never)."""
    age_s = (now.astimezone(UTC) - kept.read_at).total_seconds()
    return 0 <= age_s < max_age_s
