"""The client's copy of a run in pods: their log has the lines of its files, each with its place (`supervisor.pod`).

The newest heartbeat is among them. The copy may be cut anywhere. Lines that came twice are known by their places; in
the journal and the figures, which others here append to as well, by what they say.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from typing import Final

from tonnage.files import PRIVATE, write_whole
from tonnage.places.heartbeat import keep_beat
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import hold_lock
from tonnage.values import dataclass

LINE: Final = re.compile(r"(journal\.jsonl|metrics\.jsonl|log\.txt)([@~])(\d+) (.*)", re.DOTALL)
LOG: Final = "log.txt"
BEAT: Final = "beat "
LOCK_WAIT_S: Final = 60.0
KEEP_EVERY: Final = 2000  # lines between two notes of how far it came


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMirror:
    """How far the pods' log has been read."""

    token: str  # of the submission
    there: dict[str, int] = field(default_factory=dict)  # the next byte of each file, as the pods count
    log_bytes: int = 0  # length of the log here when that was so
    read_until: str | None = None  # the server's time, ISO: what is older has been read


def read_mirror(folder: RunFolder, token: str) -> PodMirror:
    """That of this submission; a new one begins where the last one left the files, which lie on the same volume."""
    try:
        found = PodMirror(**json.loads(folder.mirror_file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return PodMirror(token=token)
    return found if found.token == token else replace(found, token=token, read_until=None)


def append(folder: RunFolder, token: str, lines: Iterable[str], *, now: datetime | None) -> None:
    """Take over the lines of a pod's log. `now`: the server's time when it was asked."""
    with hold_lock(folder.path / "mirror.lock", wait_s=LOCK_WAIT_S):
        mirror = read_mirror(folder, token)
        copies = _Copies(folder, mirror)
        for number, line in enumerate(lines, start=1):
            copies.take(line)
            if number % KEEP_EVERY == 0:
                copies.keep(mirror.read_until)
        copies.keep(mirror.read_until if now is None else now.isoformat())
        copies.keep_beat(now or datetime.now(UTC))


class _Copies:
    """The files here, as they are appended to."""

    def __init__(self, folder: RunFolder, mirror: PodMirror) -> None:
        self._folder, self._mirror, self._there = folder, mirror, dict(mirror.there)
        self._known: dict[str, set[str]] = {}
        self._beat: str | None = None
        self._cut_log(mirror.log_bytes)

    def take(self, line: str) -> None:
        if line.startswith(BEAT):
            self._beat = line.removeprefix(BEAT)
            return
        found = LINE.fullmatch(line)
        if found is None:
            return  # of something else in the pod
        name, mark, offset, text = found[1], found[2], int(found[3]), found[4]
        end = offset + len(text.encode()) + (mark == "@")
        if end <= self._there.get(name, 0):
            return
        self._there[name] = end
        content = text + ("\n" if mark == "@" else "")
        if name == LOG or self._is_new(name, text):
            self._write(name, content)

    def keep(self, read_until: str | None) -> None:
        """Note how far it came, after the bytes that it speaks of."""
        log = self._folder.log_file
        kept = replace(self._mirror, there=dict(self._there), read_until=read_until,
                       log_bytes=log.stat().st_size if log.exists() else 0)  # fmt: skip
        write_whole(self._folder.mirror_file, json.dumps(asdict(kept)) + "\n", durable=False)

    def keep_beat(self, now: datetime) -> None:
        """The newest heartbeat. `now`: by the clock of the cluster, as its pods'."""
        if self._beat is None:
            return
        try:
            told = json.loads(self._beat)
        except ValueError:
            return  # a line cut by the node's own limit: the next one comes in seconds
        age_s = max((now - datetime.fromisoformat(told["at"])).total_seconds(), 0.0)
        keep_beat(self._folder, told["beat"], progress=base64.b64decode(told["progress"]), age_s=age_s,
                  supervised=told["supervised"], host="kubernetes")  # fmt: skip

    def _is_new(self, name: str, text: str) -> bool:
        if name not in self._known:
            path = self._folder.path / name
            self._known[name] = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
        if text in self._known[name]:
            return False
        self._known[name].add(text)
        return True

    def _write(self, name: str, content: str) -> None:
        descriptor = os.open(self._folder.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode())

    def _cut_log(self, length: int) -> None:
        """What a client that died had written and not noted comes again."""
        log = self._folder.log_file
        if log.exists() and log.stat().st_size > length:
            os.truncate(log, length)
