"""The heartbeat and progress of a run that lies elsewhere, kept here by this machine's clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tonnage.files import write_whole
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import SILENT_AFTER_S, heartbeat_file


def keep_beat(
    folder: RunFolder, beat: Mapping[str, Any], *, progress: bytes, age_s: float, supervised: bool, host: str
) -> None:
    """Write down what the supervisor there knew `age_s` ago; as of a dead one where nobody holds the run any more.

    `host` must not be the name of this machine: its own runs are known by their lock.
    """
    if progress:
        write_whole(folder.path / "progress", progress, durable=False)
    if not beat:
        return
    at = datetime.now(UTC) - timedelta(seconds=age_s if supervised else max(age_s, SILENT_AFTER_S + 1))
    write_whole(heartbeat_file(folder), json.dumps({**beat, "host": host, "at": at.isoformat()}) + "\n", durable=False)
