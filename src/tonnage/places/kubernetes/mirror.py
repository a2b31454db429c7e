"""The client's copy of a run in pods: their logs have the lines of its files, each with its place (`supervisor.pod`).

The newest heartbeat is among them. A copy may be cut anywhere, and a node keeps the end of a pod's log alone. Lines
that came twice are known by their places; in the journal and the figures, which others here append to as well, by what
they say. Where lines are missing, the journal waits until the pod repeats them; a log says how many bytes they are.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tonnage.files import PRIVATE, write_whole
from tonnage.runs import log_parts
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import hold_lock, keep_beat
from tonnage.runs.log_parts import LOG, left_out
from tonnage.runs.logs import machine_logs
from tonnage.values import dataclass

HEAD: Final = re.compile(rb"(journal\.jsonl|metrics\.jsonl|log(?:-machine-\d+)?\.txt)([@~])(\d+)")
JOURNAL, METRICS = "journal.jsonl", "metrics.jsonl"
BEAT: Final = b"beat "
LOCK_WAIT_S: Final = 60.0
RECENT_S: Final = 15.0
CLOCK_S: Final = 60.0
KEEP_EVERY_BYTES: Final = 1 << 20  # between two notes of how far it came
LONGEST_LINE: Final = 2 << 20  # a pod repeats a MiB at most in one
APART: Final = ".whole"  # of the archive that a pod packs


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMirror:
    """How far the pods' logs have been read."""

    token: str  # of the submission
    there: dict[str, int] = field(default_factory=dict)  # the next byte of each file, as the pods count
    here: dict[str, int] = field(default_factory=dict)  # length of each log here when that was so
    read_until: dict[str, str] = field(default_factory=dict)  # by pod: the server's time, ISO; what is older was read
    beat_at: str | None = None  # of the newest heartbeat, by its pod's clock
    ahead_s: float = 0.0  # how far the pod's clock is ahead of the server's


def read_mirror(folder: RunFolder, token: str) -> PodMirror:
    """That of this submission; a new one begins where the last one left the files, which lie on the same volume.

    Its pods' clocks may be others: nothing is known of them. Without any, logs are appended to as they are here.
    """
    try:
        stored: dict[str, Any] = json.loads(folder.mirror_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return PodMirror(token=token, here=_sizes(folder, (LOG, *machine_logs(folder))))
    found = PodMirror(**_as_now(stored))
    return found if found.token == token else PodMirror(token=token, there=found.there, here=found.here)


def _as_now(stored: dict[str, Any]) -> dict[str, Any]:
    """As it is written now; an older version had one log, and read that of the first pod alone."""
    if "log_bytes" not in stored:
        return stored
    until = stored["read_until"]
    return {"token": stored["token"], "there": stored["there"], "here": {LOG: stored["log_bytes"]},
            "read_until": {} if until is None else {"0": until}}  # fmt: skip


def _sizes(folder: RunFolder, names: Iterable[str]) -> dict[str, int]:
    """Bytes of the files that are here."""
    return {name: path.stat().st_size for name in names if (path := folder.path / name).exists()}


def append(
    folder: RunFolder, token: str, blocks: Iterable[bytes], *, now: datetime | None, where: Path, pod: str = "0"
) -> None:
    """Take over a pod's log, however long it is: never more than a few MiB of it are in memory.

    `now`: the server's time when it was asked; `where`: the run's folder there; `pod`: its index.
    """
    with hold_lock(folder.path / "mirror.lock", wait_s=LOCK_WAIT_S):
        copies = _Copies(folder, read_mirror(folder, token), where)
        for line in lines_of(blocks):
            copies.take(line)
        copies.keep_beat(now or datetime.now(UTC), pod)
        copies.keep({} if now is None else {pod: now.isoformat()}, last=True)


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends. One that is longer than any of ours is none: it is passed over, not kept."""
    rest, passing = b"", False
    for block in blocks:
        first, *others = block.split(b"\n")
        rest = b"" if passing else rest + first
        if not others:
            passing = passing or len(rest) > LONGEST_LINE
            continue
        if not passing:
            yield rest
        yield from others[:-1]
        rest, passing = others[-1], False
    if rest and not passing:
        yield rest


def merge_whole(folder: RunFolder, token: str, where: Path) -> None:
    """Journal and figures as the pod has packed them: what had not come before is taken over, each in its order."""
    apart = folder.path / APART
    if not apart.is_dir():
        return
    with hold_lock(folder.path / "mirror.lock", wait_s=LOCK_WAIT_S):
        copies = _Copies(folder, read_mirror(folder, token), where)
        offset = 0
        for line in _whole_lines(apart / JOURNAL):
            copies.take(b"journal.jsonl@%d %s" % (offset, line))
            offset += len(line) + 1
        packed = _whole_lines(apart / METRICS)
        known = set(packed)
        ours = [line for line in _whole_lines(folder.metrics_file) if line not in known]
        if packed:
            write_whole(folder.metrics_file, b"".join(line + b"\n" for line in (*packed, *ours)))
            copies.has(METRICS, sum(len(line) + 1 for line in packed))
        copies.keep({}, last=True)
    shutil.rmtree(apart)


def _whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def with_clock(mirror: PodMirror, at: str, *, now: datetime, pod: str) -> PodMirror:
    """With what a new heartbeat tells of the pod's clock: one that has come since a reading of seconds ago is young.

    A clock that differs by less than CLOCK_S is taken to be right: a heartbeat is that old before it is read.
    """
    before = mirror.read_until.get(pod)
    if at == mirror.beat_at:
        return mirror
    young = before is not None and (now - datetime.fromisoformat(before)).total_seconds() < RECENT_S
    if not young or mirror.beat_at is None:  # the first one may have been there for long
        return replace(mirror, beat_at=at)
    ahead_s = (datetime.fromisoformat(at) - now).total_seconds()
    return replace(mirror, beat_at=at, ahead_s=ahead_s if abs(ahead_s) > CLOCK_S else 0.0)


class _Copies:
    """The files here, as they are appended to."""

    def __init__(self, folder: RunFolder, mirror: PodMirror, where: Path) -> None:
        self._folder, self._mirror, self._where = folder, mirror, where
        self._there, self._seen = dict(mirror.there), dict(mirror.there)  # written here; read
        self._taken: dict[str, int] = {}  # bytes of each log in this reading
        self._ends: dict[str, deque[bytes]] = {}  # of a log that is too long: its end
        self._sizes: dict[str, int] = {}  # of these ends
        self._waiting: dict[str, list[bytes]] = {}
        self._bytes = 0
        self._known: dict[str, set[bytes]] = {}
        self._beat: bytes | None = None
        for name in (LOG, *mirror.here):
            self._cut_log(name, mirror.here.get(name, 0))
        if not folder.mirror_file.exists():
            self.keep({}, last=False)  # a client that dies in its first reading leaves nothing that comes twice

    def take(self, line: bytes) -> None:
        if line.startswith(BEAT):
            self._beat = line.removeprefix(BEAT)
            return
        head, _, text = line.partition(b" ")
        found = HEAD.fullmatch(head)
        if found is None:
            return  # of something else in the pod
        name, offset = found[1].decode(), int(found[3])
        content = text + b"\n" if found[2] == b"@" else text
        have, end = self._seen.get(name, 0), offset + len(content)
        if end <= have or (name == JOURNAL and offset > have):
            return  # it came before; or lines before it are missing, and the pod repeats all of them
        self._seen[name] = end
        if name in {JOURNAL, METRICS}:
            if self._is_new(name, text):
                self._write(name, content)
            self._there[name] = end
            return
        if offset > have:
            self._take_log(name, left_out(offset - have, f"{self._where}/{name}").encode(), have)
        self._take_log(name, content[max(0, have - offset) :], end)

    def has(self, name: str, end: int) -> None:
        """A file is here up to this byte."""
        self._there[name] = max(end, self._there.get(name, 0))

    def _take_log(self, name: str, content: bytes, end: int) -> None:
        """As it comes; of what is more than a client takes over at once, the end alone."""
        taken = self._taken[name] = self._taken.get(name, 0) + len(content)
        if taken <= log_parts.MOST_LOG_BYTES:
            self._there[name] = end
            self._write(name, content)
            return
        kept = self._ends.setdefault(name, deque())
        kept.append(content)
        size = self._sizes.get(name, 0) + len(content)
        while size > log_parts.KEPT_LOG_BYTES and len(kept) > 1:
            size -= len(kept.popleft())
        self._sizes[name] = size

    def keep(self, read_until: dict[str, str], *, last: bool) -> None:
        """Note how far it came, after the bytes that it speaks of."""
        if last:
            for name, kept in self._ends.items():
                begin = self._seen[name] - self._sizes[name]
                if begin > self._there.get(name, 0):
                    note = left_out(begin - self._there.get(name, 0), f"{self._where}/{name}")
                    self._write(name, note.encode())
                self._write(name, b"".join(kept))
                self._there[name] = self._seen[name]
        for name, content in self._waiting.items():
            descriptor = os.open(self._folder.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(content)
        self._waiting, self._bytes = {}, 0
        logs = [name for name in {LOG, *self._there} if name not in {JOURNAL, METRICS}]
        here = _sizes(self._folder, logs)
        until = {**self._mirror.read_until, **read_until}
        kept_mirror = replace(self._mirror, there=dict(self._there), here=here, read_until=until)
        write_whole(self._folder.mirror_file, json.dumps(asdict(kept_mirror)) + "\n", durable=False)

    def keep_beat(self, now: datetime, pod: str) -> None:
        """The newest heartbeat. `now`: by the clock of the cluster, as its pods' should be."""
        if self._beat is None:
            return
        try:
            content: dict[str, Any] = json.loads(self._beat)
        except ValueError:
            return  # a line cut by the node's own limit: the next one comes in seconds
        self._mirror = with_clock(self._mirror, str(content["at"]), now=now, pod=pod)
        at = datetime.fromisoformat(content["at"]) - timedelta(seconds=self._mirror.ahead_s)
        age_s = max((now - at).total_seconds(), 0.0)
        keep_beat(self._folder, content["beat"], progress=base64.b64decode(content["progress"]), age_s=age_s,
                  supervised=content["supervised"], host="kubernetes")  # fmt: skip

    def _is_new(self, name: str, text: bytes) -> bool:
        if name not in self._known:
            path = self._folder.path / name
            self._known[name] = set(path.read_bytes().split(b"\n")) if path.exists() else set()
        if text in self._known[name]:
            return False
        self._known[name].add(text)
        return True

    def _write(self, name: str, content: bytes) -> None:
        """Soon: many lines at once."""
        self._waiting.setdefault(name, []).append(content)
        self._bytes += len(content)
        if self._bytes >= KEEP_EVERY_BYTES:
            self.keep({}, last=False)

    def _cut_log(self, name: str, length: int) -> None:
        """What a client that died had written and not noted comes again."""
        log = self._folder.path / name
        if log.exists() and log.stat().st_size > length:
            os.truncate(log, length)
