"""What became of the newest backup, noted at home: `watch` tells of one that failed or is old."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tonnage.files import write_whole
from tonnage.values import dataclass

NOTE: Final = "backup-note.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupNote:
    """When a backup last succeeded, where to, and when one last failed, and why."""

    succeeded_at: datetime | None = None
    target: str = ""
    failed_at: datetime | None = None
    why: str = ""

    @property
    def fails(self) -> bool:
        """Whether the newest attempt failed."""
        return self.failed_at is not None and (self.succeeded_at is None or self.failed_at > self.succeeded_at)


def read_backup_note(home: Path) -> BackupNote:
    """The note of a home; an empty one where there is none."""
    try:
        read = json.loads((home / NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return BackupNote()
    times = {name: None if read[name] is None else datetime.fromisoformat(read[name])
             for name in ("succeeded_at", "failed_at")}  # fmt: skip
    return BackupNote(target=read["target"], why=read["why"], **times)


def note_backup(home: Path, *, target: str = "", why: str = "") -> None:
    """Write down what became of it: `target` where it succeeded, `why` where it failed."""
    old, now = read_backup_note(home), datetime.now(UTC)
    values = {
        "succeeded_at": now if target else old.succeeded_at, "target": target or old.target,
        "failed_at": now if why else old.failed_at, "why": why or old.why,
    }  # fmt: skip
    text = json.dumps({name: one.isoformat() if isinstance(one, datetime) else one for name, one in values.items()})
    write_whole(home / NOTE, text + "\n")
