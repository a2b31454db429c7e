"""What others ask of a running run: files in its folder that its supervisor looks for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from tonnage.files import write_whole
from tonnage.runs.folder import RunFolder
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Who asked, and why."""

    by: str
    reason: str
    at: datetime


def notice_request(folder: RunFolder) -> Path:
    """The file that says in how many seconds the machine goes: workers save and end with the exit code «preempted»."""
    return folder.path / "notice"


def cancel_request(folder: RunFolder) -> Path:
    """The file whose presence ends the run at once, without a save."""
    return folder.path / "cancel"


def write_request(path: Path, *, by: str, reason: str, at: datetime | None = None) -> None:
    """Ask. Asking twice is asking once: the newer words count."""
    write_whole(path, json.dumps({"by": by, "reason": reason, "at": (at or datetime.now(UTC)).isoformat()}) + "\n")


def read_request(path: Path) -> RunRequest | None:
    """What was asked, or None. An empty file (`touch stop`) asks as well."""
    try:
        text = path.read_text(encoding="utf-8")
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        return RunRequest(by=str(found["by"]), reason=str(found["reason"]), at=datetime.fromisoformat(found["at"]))
    except (ValueError, KeyError, TypeError):
        return RunRequest(by="someone", reason="", at=changed)


def clear_requests(folder: RunFolder) -> None:
    """Forget what was asked before: the run starts again."""
    folder.stop_request.unlink(missing_ok=True)
    cancel_request(folder).unlink(missing_ok=True)
    notice_request(folder).unlink(missing_ok=True)
