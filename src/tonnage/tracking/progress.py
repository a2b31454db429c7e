"""How far a run has been sent, remembered in its folder for each MLflow it was sent to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Final

from tonnage.files import write_whole
from tonnage.http.urls import without_secrets
from tonnage.runs.folder import RunFolder
from tonnage.values import dataclass

_NAME: Final = "tracking.json"
WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one MLflow has. Offsets are bytes of the files; `key` finds the run there even if its id was never noted."""

    key: str
    run_id: str | None = None
    metrics: int = 0
    samples: int = 0
    events: int = 0  # lines of the journal
    step: int = -1  # newest step sent
    finished: str = ""  # fingerprint of the end that was sent
    model_version: str | None = None

    def offsets(self) -> str:
        """As the tag that is sent with each batch."""
        return json.dumps([self.metrics, self.samples, self.events, self.step])

    def at_offsets(self, tag: str | None) -> Sent:
        """The same, as far as the other side says that it came."""
        if not tag:
            return replace(self, metrics=0, samples=0, events=0, step=-1)
        metrics, samples, events, step = json.loads(tag)
        return replace(self, metrics=metrics, samples=samples, events=events, step=step)


def load_sent(folder: RunFolder, uri: str) -> Sent:
    """What was sent to this URI; nothing yet where it is new, under a key that is written down first."""
    known, name = _read(folder), without_secrets(uri)
    if name in known:
        return Sent(**known[name])
    sent = Sent(key=uuid.uuid4().hex)
    save_sent(folder, uri, sent)
    return sent


def save_sent(folder: RunFolder, uri: str, sent: Sent) -> None:
    known = _read(folder) | {without_secrets(uri): asdict(sent)}
    write_whole(folder.path / _NAME, json.dumps(known, indent=2) + "\n")


@contextmanager
def only_one(folder: RunFolder) -> Iterator[bool]:
    """True for the one process that may send now; False where another has been at it for a minute."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder.path / "tracking.lock", mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=WAIT_S, poll_interval=0.1)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _read(folder: RunFolder) -> dict[str, Any]:
    path = folder.path / _NAME
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {without_secrets(uri): sent for uri, sent in found.items()} if isinstance(found, dict) else {}
