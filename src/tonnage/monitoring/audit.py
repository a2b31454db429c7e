"""A file of what was done that shows whether a line of it was changed: each line carries the hash of all before it.
Lines that the disk does not take are held in memory, and written in order once it takes them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final

from tonnage.errors import DataError, TonnageError
from tonnage.files import make_private_folder
from tonnage.runs.folder import append_line
from tonnage.runs.journal import CUT
from tonnage.runs.tail import last_lines
from tonnage.values import dataclass

ANCHOR_AGAIN_S: Final = 60.0
FIRST: Final = "0" * 64
MOST_HELD: Final = 10_000  # lines of some 300 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One thing that was done, or was about to be."""

    number: int  # from 1
    at: str
    who: str
    what: str
    fields: Mapping[str, Any]
    hash: str


class AuditFile:
    """An append-only file, written by several processes in turn. OSError where it cannot be written."""

    def __init__(self, path: Path, *, anchor: Callable[[str, AuditLine], None] | None = None) -> None:
        """`anchor` gets each line that is written, with the hash of the first: what it keeps elsewhere shows a file
        whose end was cut off. It may fail; the next line tells it again how far the audit has come."""
        self.path, self._anchor = path, anchor
        self._first_hash: str | None = None
        self._anchor_again_s = 0.0  # of the steady clock: one that does not answer is not waited for at every line
        self.anchor_fault = ""  # why the newest line is not kept elsewhere; empty: it is, or there is no such place

    def append(self, *, at: datetime, who: str, what: str, **fields: Any) -> AuditLine:
        """One line, on the disk when this comes back."""
        make_private_folder(self.path.parent)
        with (self.path.parent / f"{self.path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            number, before = self._end()
            values = {"number": number + 1, "at": at.isoformat(), "who": who, "what": what, **fields}
            digest = _digest(before, values)
            append_line(
                self.path, json.dumps({**values, "hash": digest}, ensure_ascii=False, sort_keys=True), sync=True
            )
            made = AuditLine(number=number + 1, at=values["at"], who=who, what=what, fields=fields, hash=digest)
            self._anchored(made)
        return made

    def lines(self) -> Iterator[AuditLine]:
        """Every line, the oldest first. DataError names the first that does not follow from those before it."""
        number, before = 0, FIRST
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for place, raw in enumerate(file, start=1):
                if not raw.endswith("\n") or raw.rstrip("\n").endswith(CUT):
                    continue  # cut by a kill, before anything reported it as written
                values = self._values(raw, place)
                digest = values.pop("hash", None)
                if values.get("number") != number + 1 or digest != _digest(before, values):
                    raise DataError(
                        f"{self.path}:{place}: this line was changed, or one before it was taken out",
                        hint="compare it with a backup; what follows it cannot be relied on",
                    )
                number, before = number + 1, digest
                yield AuditLine(
                    number=values.pop("number"), at=values.pop("at"), who=values.pop("who"), what=values.pop("what"),
                    fields=values, hash=digest,
                )  # fmt: skip

    def _anchored(self, line: AuditLine) -> None:
        if self._anchor is None or monotonic() < self._anchor_again_s:
            return
        try:
            if line.number == 1:
                self._first_hash = line.hash
            elif self._first_hash is None:
                self._first_hash = next(iter(self.lines())).hash
            self._anchor(self._first_hash, line)
            self.anchor_fault = ""
        except (
            OSError,
            TonnageError,
        ) as error:  # the line is written; `audit verify` says how far it is known elsewhere
            self.anchor_fault, self._anchor_again_s = str(error), monotonic() + ANCHOR_AGAIN_S

    def _values(self, raw: str, place: int) -> dict[str, Any]:
        try:
            found = json.loads(raw)
        except ValueError as error:
            raise DataError(f"{self.path}:{place}: not a line of the audit: {error}") from error
        if not isinstance(found, dict):
            raise DataError(f"{self.path}:{place}: not a line of the audit")
        return found

    def _end(self) -> tuple[int, str]:
        """Number and hash of the newest whole line."""
        for line in reversed(last_lines(self.path, 2)):
            if line and not line.endswith(CUT):
                values = self._values(line, 0)
                return int(values["number"]), str(values["hash"])
        return 0, FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldLine:
    at: datetime
    who: str
    what: str
    fields: dict[str, Any]


class LateAudit:
    """Writes to an audit for a program that goes on where the disk is full. A line that came late carries its own time
    in `at`, and in `written_at` when it was written. `say` hears when lines begin to be held and when none is any more.
    """

    def __init__(self, audit: AuditFile, say: Callable[[str], None], *, most: int = MOST_HELD) -> None:
        self._audit, self._say, self._most = audit, say, most
        self._held, self._lost, self._lock = deque[_HeldLine](), 0, Lock()

    def put(self, *, at: datetime, who: str, what: str, **fields: Any) -> None:
        """One line behind those that are held: written now, or held too. Of over `most` the oldest is lost, and the
        audit says later how many were."""
        with self._lock:
            line = _HeldLine(at=at, who=who, what=what, fields=fields)
            if self._held:
                self._hold(line)
                self._flush(at)
                return
            try:
                self._audit.append(at=at, who=who, what=what, **fields)
            except OSError as error:
                self._hold(line)
                self._say(f"audit: {error}: its lines are held in memory and written when the disk takes them")

    def flush(self, now: datetime) -> None:
        """Write what is held, as far as the disk takes it."""
        with self._lock:
            self._flush(now)

    def close(self, now: datetime) -> None:
        """Write what is held, and say how many lines the disk never took."""
        self.flush(now)
        if self._held:
            self._say(f"audit: {len(self._held)} lines could not be written, and are lost")

    def _hold(self, line: _HeldLine) -> None:
        if len(self._held) >= self._most:
            self._held.popleft()
            self._lost += 1
        self._held.append(line)

    def _flush(self, now: datetime) -> None:
        written, lost = 0, self._lost
        try:
            if self._held and lost:
                self._audit.append(at=now, who="watch", what="lines lost", lines=lost)
                self._lost = 0
            while self._held:
                one = self._held[0]
                self._audit.append(at=one.at, who=one.who, what=one.what, written_at=now.isoformat(), **one.fields)
                self._held.popleft()
                written += 1
        except OSError:  # said when the first was held
            return
        if written:
            self._say(f"audit: works again; {written} lines written late" + (f", {lost} lost" if lost else ""))


def _digest(before: str, values: Mapping[str, Any]) -> str:
    text = json.dumps(values, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()
